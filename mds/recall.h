/*
 * Taking leases back (session/leases.h), before something changes that somebody may have cached,
 * or, a write lease, before somebody else looks. A critical section says what it is about to change
 * (op_changes) or to look at (op_looks); when others have leases on it it is left, they are
 * recalled, and it is run again, while nobody gets a new one.
 *
 * A holder answers when neither it nor its kernel caches the inode any more, and, of a write lease,
 * all that was written is seen by all. One that is silent for client_lease_ms has lost its leases
 * by itself, so a read lease needs no answer then; if it was a write lease, or it has a lock that
 * somebody asks for, the session ends, and the object servers refuse what still comes of it. One
 * that is heard of but does not answer is ended as well, when it was asked for session_ttl_ms in
 * all, by one request after the other (less than session_ttl_ms later).
 *
 * Under a lease clients open files for reading without a word; recalled, they tell first what they
 * have open (client/delegation.h). Of one that was silent it is presumed that it has the file open,
 * until it can be asked or its session ends.
 *
 * A request that has to wait for a recall is one that nobody who is asked to give up a lease waits
 * for: clients answer recalls without waiting for requests of their own (client/lease.h).
 */
#ifndef LEAT_MDS_RECALL_H
#define LEAT_MDS_RECALL_H

#include "mds/op.h"

/* In a critical section, before its first write, and in what reads: 0 or -LE_LEASED. */
int op_changes_all(struct op *op, const struct ino *inos, uint32_t n) CHECK_RESULT;
#define op_changes(op, ...)                                                                        \
	op_changes_all(op, (const struct ino[]){__VA_ARGS__},                                      \
		       sizeof((const struct ino[]){__VA_ARGS__}) / sizeof(struct ino))
int op_looks(struct op *op, const struct attr *a) CHECK_RESULT;
/* What matters is whether anybody has the inode open: of what the session itself has opened under
 * its lease the MDS has been told if told is this inode; else it is asked as well. */
int op_asks_own(struct op *op, struct ino ino, struct ino told) CHECK_RESULT;

/* Recalls what the last -LE_LEASED was about, and blocks it until op_unblock. Yields. */
int op_recall(struct op *op) CHECK_RESULT;
void op_unblock(struct op *op);
/* The inode is given to another owner or group, by which kernels judge. In a critical section,
 * ahead of op_changes: notes who has a lease on it; opens of directories are not counted.
 * -LE_NOMEM. When it is done: tells these, and who has the file open, and waits for their answers,
 * not for those of the silent; yields. The end of an operation forgets them. */
int op_gives(struct op *op, struct ino ino) CHECK_RESULT;
void op_given(struct op *op, struct ino ino);
void op_gives_end(struct op *op);
/* Before the file is trimmed, and while appends are given no places (f->cutting): nobody writes any
 * more, then or later, at one that he was given before. Who is silent, or does not answer, is ended
 * as above. The caller has a reference to f. Yields. */
int recall_places(struct op *op, struct open_file *f) CHECK_RESULT;
/* Who has not returned from before a restart, and is not about to, may have what somebody asks for:
 * it is ended, as soon as clients have had the time to return. Yields. */
int recall_missing(const struct op *op) CHECK_RESULT;
/* The session has a lock on the file that somebody asks for. If it has been silent for
 * client_lease_ms it is asked, in the background, whether it is there still, and ended if not. */
void recall_silent(struct mds *m, struct session *se, struct ino ino);
/* Background: asks sessions that are heard again what is presumed of them. */
void recall_presumed(struct mds *m);

/*
 * The end of an operation: a lease on the inode that is described in the reply, if these attributes
 * are the present ones and nobody is about to change them; ATTR_LEASED tells the client. On an
 * inode with writers it is a write lease, for the only one who has it open; else those who have it
 * open get a read lease that leaves out what writers change (ATTR_SHARED).
 */
void op_lease(struct op *op, struct attr *a);

#endif
