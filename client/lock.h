/*
 * A mount's side of locks (fcntl, flock): the MDS decides, this remembers what it has given, to
 * tell it after a restart. Taking a lock forgets what was cached of the file's data; giving one
 * back comes after the data written under it is seen by all.
 *
 * Owned by the client's loop; taking and giving back is in ll.h.
 */
#ifndef LEAT_CLIENT_LOCK_H
#define LEAT_CLIENT_LOCK_H

#include "client/io.h"

/* The MDS says that somebody has unlocked the file. */
void lock_unlocked(struct client *c, struct ino ino);
/* The connection is back: who waits asks again. */
void lock_ask_again(struct client *c);
/* All that is held, as mds_reclaim wants it; *ret_buf is the caller's to free. */
int lock_list(struct client *c, uint8_t **ret_buf, uint32_t *ret_len) CHECK_RESULT;
/* Bytes of one of them: the number of the inode, the length of what follows, the lock. */
#define LOCK_RECLAIM_ENTRY (8u + 2u + 30u)
/* The session has ended, and its locks with it: others may have had them since, and have changed
 * what was read under them. The file reports that as an error of its writes, also where all are
 * free by now and are taken again. */
void lock_session_gone(struct idata *d);
/* The session is a new one: takes the file's locks again. What somebody else has taken meanwhile
 * is lost. Yields. */
int lock_renew(struct client *c, struct idata *d, uint16_t flags) CHECK_RESULT;

#endif
