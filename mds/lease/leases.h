/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of leases: which session may cache an inode or append to it. A session has at most one
 * lease on an inode, with one caching mode, with LEASE_APPEND, or with both (enum lease_mode):
 *
 *   LEASE_READ    The client caches attributes, the entries of a directory (also the absence of a
 *                 name) and the data of a file.
 *   LEASE_SHARED  Several sessions have the file open, one of them for writing. The client caches
 *                 only the attributes that writers do not change.
 *   LEASE_WRITE   Only this session has the file open. Its client may delay writes, and only this
 *                 client has the current size and mtime.
 *   LEASE_APPEND  The client may write in ranges that mds_append has reserved (ops/append.c). Only
 *                 a truncation recalls it.
 *
 * Soft state: after a restart no session has a lease, and nothing that a client may have cached or
 * reserved is changed until its lease has expired (lease_check.h).
 *
 * A contended inode, whose caching leases are recalled repeatedly, gets none for 50 ms, and for
 * twice as long each time up to 3.2 s: a request without a lease costs one round trip, a recall
 * three.
 *
 * Owned by the loop; nothing here yields.
 */
#ifndef LEAT_MDS_LEASE_LEASES_H
#define LEAT_MDS_LEASE_LEASES_H

#include "common/proto/mds_proto.h"
#include "mds/session/session.h"

#define LEASE_CONTENDED_MAX 4096u

struct lease_file {
	struct hmap_node node;
	struct ino ino;
	struct list leases; /* struct lease, by_file */
	uint32_t n_blocked; /* operations that have recalled it and still run: no new leases */
	struct waitq q;     /* woken when a recall has ended */
};

struct lease {
	struct list by_file, by_session;
	struct lease_file *file;
	struct session *session;
	uint8_t modes; /* enum lease_mode; never 0 */
	bool recalling : 1;
	bool claimed : 1; /* reclaimed by a client of a squashed network: no right to the inode */
	/* For how long requests have waited for this recall without result, in tenths of a
	 * second, added up over requests that follow each other within session_ttl_ms; and when
	 * the last one stopped waiting, in seconds of the loop's clock. */
	uint16_t waited_ds;
	uint32_t waited_until_s;
};

struct leases {
	struct hmap map;
	uint32_t n, n_max;
	/* Inodes with recent recalls, by hash. A collision only makes the server give a lease
	 * earlier. */
	struct lease_contention {
		struct ino ino;
		uint64_t until_us;
		uint32_t ms;
	} contentions[LEASE_CONTENDED_MAX];
};

/* Makes an empty table for at most n_max leases. */
void leases_init(struct leases *ls, uint32_t n_max);
/* Frees the table and all leases. */
void leases_fini(struct leases *ls);

/* Gives the session a lease on the inode with this caching mode, or sets the caching mode of the
 * lease that it has. Returns false if the session has ended, leases on the inode are blocked,
 * recalled or contended, the table is full, or there is no memory. */
bool lease_give(struct leases *ls, struct session *se, struct ino ino, enum lease_mode caching);
/* Adds LEASE_APPEND to the session's lease on the inode, or gives one. Nothing but lack of memory
 * prevents that: a reservation that the server does not record could not be recalled. Returns 0,
 * -LE_SESSION_GONE or -LE_NOMEM. */
int lease_give_append(struct leases *ls, struct session *se, struct ino ino) CHECK_RESULT;
/* True if a session other than se has a lease on the inode with one of these modes. se NULL: any
 * session. */
bool lease_foreign(const struct leases *ls, struct ino ino, const struct session *se,
		   unsigned modes);
/* The leases on the inode; NULL: there are none, and none is being recalled. */
struct lease_file *lease_file_find(const struct leases *ls, struct ino ino);
/* The lease of the session on the inode; NULL: none. */
struct lease *lease_find(const struct leases *ls, struct ino ino, const struct session *se);
/* The modes of the session's lease on the inode; 0: it has none. */
unsigned lease_modes(const struct leases *ls, struct ino ino, const struct session *se);
/* Ends these modes of the lease and wakes the requests that wait for its recall. Frees a lease
 * without modes. */
void lease_end(struct leases *ls, struct lease *l, unsigned modes);
/* Drops up to n_max leases of the session. Returns true if there are more. */
bool leases_drop_some(struct leases *ls, struct session *se, uint32_t n_max);
/* Drops all leases on an inode that is removed. */
void leases_drop_inode(struct leases *ls, struct ino ino);

/* Blocks new leases on the inode until leases_unblock was called as often. Returns NULL without
 * memory. */
struct lease_file *leases_block(struct leases *ls, struct ino ino);
/* Undoes one leases_block. f may be freed. */
void leases_unblock(struct leases *ls, struct lease_file *f);
/* Notes that the leases on the inode were recalled. If that happens often, it is contended. */
void lease_mark_contended(struct leases *ls, struct ino ino);

#endif
