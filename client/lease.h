/*
 * The leases of this client (mds/session/leases.h): while it has one on an inode, what it knows of
 * it holds, and the kernel may cache it. Answers of the MDS give them (ATTR_LEASED); cb_recall
 * takes them back, and they all end when nothing was heard of the MDS for its lease time, when it
 * has restarted, and with the session.
 *
 * An answer gives a lease only if its request was sent after the last recall: the two may overtake
 * each other. A recall waits for no request of this client but for what makes written data seen.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_LEASE_H
#define LEAT_CLIENT_LEASE_H

#include "client/departed.h"
#include "client/inode.h"
#include "client/names.h"

struct client;


struct client_leases {
	uint64_t term_us;  /* how long they hold after heard_us */
	uint64_t heard_us; /* when the newest answered request was sent */
	uint64_t void_us;  /* what was given for older requests is void, */
	uint64_t unshared_us; /* and what is shared: it is told to a server that has restarted */
	bool lapsed; /* heard of nothing for too long; the kernel has been told */
	/* delegation.h: inodes with delegated opens of which the MDS does not know; and changes
	 * that may hit any inode, while there are none: meanwhile no open is delegated */
	uint32_t n_untold, n_blind;
	struct fmutex telling;
	struct departures departures; /* inodes that are not remembered any more */
};

/* The MDS has answered a request that was sent then. */
void lease_heard(struct client *c, uint64_t sent_us);
/* A session has been opened, or taken up at an MDS that has restarted: no lease is left, and when
 * this returns the kernel answers with no names and attributes of before. But what is shared stays,
 * if the MDS will be told (goes_on) while the leases of before last: until it has been, nothing
 * changes there. Yields. */
void lease_void_all(struct client *c, uint32_t lease_ms, bool goes_on);
/* Notices that nothing is heard any more; returns what is no more remembered. Does not yield. */
void lease_tick(struct client *c);
/* The answer to a request of that time says that it is leased. */
void lease_given(struct client *c, struct inode *i, uint64_t sent_us);
/* Several have it open, this client among them, and one may write: what the MDS would say of it is
 * known. Size, blocks and mtime are what the chains say, if that is more. The MDS is asked now and
 * then, behind, whether it is still so. */
bool lease_shared(struct client *c, struct inode *i);
/* An answer, which i->attr has been taken from, says whether it is so. */
void lease_shared_update(struct client *c, struct inode *i, const struct attr *attr,
			 uint64_t sent_us);
/* A truncation by this client has failed, but the MDS may be at it yet. */
void lease_doubted(struct inode *i);
/* The same, where it is not known to be refused: what is kept of the data goes, too. */
void lease_data_doubted(struct client *c, struct inode *i);
/* This client has closed it everywhere; i->data is there still. */
void lease_shared_end(struct client *c, struct inode *i);
/* As a server that has restarted has to be told. */
bool lease_shared_lasts(const struct client *c, const struct inode *i);
/* It is told otherwise of this one. */
void lease_unshare(struct inode *i);
/* It could not take all. */
void lease_unshare_all(struct client *c);
void lease_init(struct client *c);
void lease_fini(struct client *c);
/* It is not remembered any more. */
void lease_forgotten(struct client *c, const struct inode *i);
/* What is known holds, and this client alone changes it. */
bool lease_held(const struct client *c, const struct inode *i);
/* As it was for a request of that time. */
bool lease_held_since(const struct client *c, const struct inode *i, uint64_t since_us);
/* Until when the leases hold if nothing more is heard. */
uint64_t lease_until_us(const struct client *c);
/*
 * A change of this client's, while it is under way: others may see it before its answer is here, so
 * what is cached of these inodes answers nobody.
 */
struct changing {
	struct client *c;
	bool blind; /* what is hit is not known */
	uint32_t n, n_names;
	struct inode *inodes[4], *dirs[2];
	struct name_change names[2]; /* in dirs */
};
void changing_begin(struct client *c, struct changing *ch, struct ino ino);
void changing_also(struct changing *ch, struct ino ino);
/* The name, of a directory of which that is what changes, and the inode that it is, if that is
 * known: returns it, or 0. ch stays where it is until changing_end. */
struct ino changing_name(struct changing *ch, struct ino dir, struct bytes name);
/* ino, one of those that change, may lose its data or last name, and this client may have it open
 * (delegation.h); 0: it is not known which one it is. `told` of the request. Yields. */
int changing_tell(struct changing *ch, struct ino ino, struct ino *ret_told) CHECK_RESULT;
/* rc < 0: what has become of it is not known. */
void changing_end(struct changing *ch, int rc);

/* A name is to go from one directory to another: the kernel takes along for how long it believes
 * it, so the other one is recalled no sooner. */
void lease_name_moves(struct client *c, struct ino from, struct ino to);
/* It has gone; where nobody has to recall that directory, this waits instead. Yields. */
void lease_name_moved(struct client *c, struct ino from, struct ino to);

/* cb_recall: returns when nothing of it is cached and all that was written is seen. Yields. */
int lease_recall(struct client *c, struct ino ino) CHECK_RESULT;
/* cb_owner: returns when the kernel knows, if the inode is open. Yields. */
int lease_owner_changed(struct client *c, struct ino ino) CHECK_RESULT;

#endif
