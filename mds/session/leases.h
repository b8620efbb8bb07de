/*
 * Who may cache what is known of an inode. A *read* lease: attributes, a directory's entries (also
 * that there is none of a name), a file's data. A *write* lease, of the only session that has the
 * file open: what it writes may wait, and it alone knows size and mtime. Soft state: after a
 * restart nobody has one, and nothing that others might have cached changes until they cannot have
 * it any more (recall.h).
 *
 * What is recalled again and again is not given for a while: then everybody asks, which is one
 * round trip instead of three.
 *
 * Owned by the loop; nothing here yields.
 */
#ifndef LEAT_MDS_SESSION_LEASES_H
#define LEAT_MDS_SESSION_LEASES_H

#include "mds/session/session.h"

#define LEASE_QUARRELS 4096u

struct lease_file {
	struct hmap_node node;
	struct ino ino;
	struct list leases; /* struct lease, by_file */
	uint32_t n_blocked; /* operations that have recalled it and are not done: none are given */
	struct waitq q;     /* a recall has ended */
};

struct lease {
	struct list by_file, by_session;
	struct lease_file *file;
	struct session *session;
	bool write : 1;
	bool recalling : 1;
	bool claimed : 1; /* by a client that is not believed: it is no right to the inode */
	uint16_t asked_ds; /* it was recalled for so long, in all, by requests that followed each
			    * other, and not given back; tenths of a second */
	uint32_t asked_s;  /* when the last of them ended, of the loop's clock */
};

struct leases {
	struct hmap map;
	uint32_t n, n_max;
	/* Inodes that were recalled of late, by hash: forgetting one costs a recall. */
	struct lease_quarrel {
		struct ino ino;
		uint64_t until_us;
		uint32_t ms;
	} quarrels[LEASE_QUARRELS];
};

void leases_init(struct leases *ls, uint32_t n_max);
void leases_fini(struct leases *ls);

/* Gives one, or makes a read lease a write lease. False: not now. */
bool lease_give(struct leases *ls, struct session *se, struct ino ino, bool write);
/* Somebody else than se (which may be NULL) has one; write: a write lease. */
bool lease_foreign(const struct leases *ls, struct ino ino, const struct session *se, bool write);
/* NULL: nobody has one, and nobody has recalled it. */
struct lease_file *lease_file_find(const struct leases *ls, struct ino ino);
struct lease *lease_find(const struct leases *ls, struct ino ino, const struct session *se);
void lease_drop(struct leases *ls, struct lease *l);
/* So many of the session's. True: there are more. */
bool leases_drop_some(struct leases *ls, struct session *se, uint32_t n_max);
/* The inode is gone. */
void leases_drop_inode(struct leases *ls, struct ino ino);

/* None are given until the same number of unblocks. NULL without memory. */
struct lease_file *leases_block(struct leases *ls, struct ino ino);
void leases_unblock(struct leases *ls, struct lease_file *f);
/* They have been recalled: no new ones for a while, if that happens often. */
void leases_quarrel(struct leases *ls, struct ino ino);

#endif
