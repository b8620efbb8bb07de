/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops what the kernel caches of an inode: its attributes, or its pages too.
 *
 * The kernel may hold a notification back until the daemon has answered a request (which holds a
 * page or a directory), so two threads send notifications, each from a queue of 4096 jobs.
 * invalidate_inode_behind uses a separate thread, because the other one may wait for a page of the
 * very request that calls it: the next write of a file begins in the page in which the last one
 * ended.
 *
 * off -1: attributes only. len 0: to the end of the file.
 */
#ifndef LEAT_FUSE_KERNEL_INVALIDATE_H
#define LEAT_FUSE_KERNEL_INVALIDATE_H

#include "fuse/mount.h"

/* Starts both threads. Returns 0, -LE_NOMEM, or the status of pthread_create. */
int invalidator_start(struct leatfs *fs) CHECK_RESULT;
/* Sends what is queued, and ends both threads. Threads that were not started are fine. */
void invalidator_stop(struct leatfs *fs);

/* Queues a notification, and posts `then` to the loop when it has been sent; NULL: nothing. Yields
 * only while the queue is full. */
void invalidate_inode(struct leatfs *fs, struct ino ino, int64_t off, int64_t len,
		      struct mail *then);
/* Queues a notification, and waits until it has been sent. Must not be called while the current
 * request holds a page. Yields. */
void invalidate_inode_now(struct leatfs *fs, struct ino ino, int64_t off, int64_t len);
/* Like invalidate_inode_now(), for a request that counts as one of the kernel's background
 * requests. A page may wait for its write-back, which is a background request as well; so the wait
 * is bounded by BEHIND_MS, and by BEHIND_LAST_MS while three quarters of the background requests
 * wait here. The notification is sent later in any case. Yields. */
void invalidate_inode_behind(struct leatfs *fs, struct ino ino, int64_t off, int64_t len);

#endif
