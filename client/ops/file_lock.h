/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's part of file locks (fcntl, flock). The MDS decides; this module records the granted
 * locks, to report them after a restart of the MDS. Taking a lock drops cached data of the file.
 * Before a lock is released, the data written under it is made visible to all clients.
 *
 * Owned by the client's loop. Taking and releasing locks is in ll.h.
 */
#ifndef LEAT_CLIENT_OPS_FILE_LOCK_H
#define LEAT_CLIENT_OPS_FILE_LOCK_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/proto/types.h"

struct client;
struct inode_io;

/* Called when the MDS notifies that a lock of the file was released: wakes its waiters. Does not
 * yield. */
void lock_unlocked(struct client *c, struct ino ino);
/* Called when the session is resumed: all fibers that wait for a lock request it again. Does not
 * yield. */
void lock_ask_again(struct client *c);
/* Encodes all locks that are held, for mds_reclaim, into *ret_buf, which the caller frees. Returns
 * 0 or -LE_NOMEM. Does not yield. */
int lock_list(struct client *c, uint8_t **ret_buf, uint32_t *ret_len) CHECK_RESULT;

/* Bytes of one entry: inode number, length of what follows, lock. */
#define LOCK_RECLAIM_ENTRY (8u + 2u + 30u)

/* Called when the session is lost, and its locks with it. Other clients may have held them since,
 * and may have changed data that was read under them. Records an error that each open file reports
 * once, even if all locks can be taken again. Does not yield. */
void lock_session_gone(struct inode_io *d);
/* Takes the file's locks again, in a new session. A lock that another client has taken meanwhile is
 * lost: it is dropped and recorded as an error. flags: of the calls. Returns 0 or the error.
 * Yields. */
int lock_renew(struct client *c, struct inode_io *d, uint16_t flags) CHECK_RESULT;

#endif
