/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's i_size of files of which the kernel shows pages without a lease, and the kernel's
 * idea of an inode's owner. kernel_size.c says why both matter. These functions are for kernel/;
 * kernel_pages.h declares those for the other rooms.
 *
 * Terms: a page is *short* when the reply to READ did not fill it, so that the rest of it is zeros.
 * No program may read these zeros as data, so no reply raises i_size beyond the end of the data
 * until the page has been dropped. The *helper* is a process that makes the kernel request
 * attributes (kernel_size_helper.h).
 *
 * Owner: the mount's loop. Functions do not yield, unless the comment says otherwise.
 */
#ifndef LEAT_FUSE_KERNEL_KERNEL_SIZE_H
#define LEAT_FUSE_KERNEL_KERNEL_SIZE_H

#include "fuse/mount.h"

struct kernel_size;

/* The daemon's record of an inode's i_size, shared by all open files of the inode. get takes a
 * reference, put drops it (NULL is fine). get returns NULL if there is no memory. */
struct kernel_size *kernel_size_get(struct leatfs *fs, struct ino ino);
void kernel_size_put(struct kernel_size *k);
/* busy and idle enclose an operation (a read or write for pages, a drop of pages). When it ends,
 * the kernel discards replies to requests that it sent earlier. busy returns NULL if the inode has
 * no record, else a reference that idle drops. idle accepts NULL. */
struct kernel_size *kernel_size_busy(struct leatfs *fs, struct ino ino);
void kernel_size_idle(struct kernel_size *k);

/* A READ that fills pages, from its arrival until its reply. k must be busy. */
struct kernel_size_reader {
	struct list link;
	uint64_t seq;
};
void kernel_size_read(struct kernel_size *k, struct kernel_size_reader *r);
void kernel_size_answered(struct kernel_size *k, struct kernel_size_reader *r);

/* True if i_size is certainly not above `end`. False means that i_size may be above it. */
bool kernel_size_within(const struct kernel_size *k, uint64_t end);
/* Call before a short reply to READ with data up to `end`: has the helper make the kernel request
 * the size, so that i_size is not above `end`. *begun_us: 0 for the first call of a request.
 * Returns 0: read again, and call again if the read is still short; -LE_INTR; -LE_IO: the helper
 * cannot make the kernel do so, or the file was truncated repeatedly for PROBE_US. Yields. */
int kernel_size_before_reply(struct kernel_size *k, uint64_t end, uint64_t *begun_us) CHECK_RESULT;
/* Call visible before a short reply with data up to `end`, and the other when the pages that it
 * filled have been dropped. */
void kernel_size_visible(struct kernel_size *k, uint64_t end);
void kernel_size_gone(struct kernel_size *k);
/* Waits at most 20 ms while a request of the helper is in flight, since the kernel would discard
 * the reply if the caller's operation ended now. Yields. */
void kernel_size_wait(struct kernel_size *k);

/* Notes that the kernel may have pages of the inode which a previous daemon filled. Until they are
 * dropped, replies give the file no bytes. Returns 0 or -LE_NOMEM. */
int kernel_size_previous(struct leatfs *fs, struct ino ino) CHECK_RESULT;
/* Queues the notifications that drop all such pages. Does not wait for them; a notification that is
 * queued later is sent after they are dropped. Yields only while the queue is full. */
void kernel_size_drop_previous(struct leatfs *fs);

/* Makes the kernel request owner and group of an inode until it has those of the metadata server.
 * Returns 0, -LE_NOT_READY while pages of a previous daemon exist, -LE_TIMEDOUT after OWNER_MS, or
 * another status. Yields. */
int kernel_owner_refresh(struct leatfs *fs, struct ino ino) CHECK_RESULT;

/* Ends the idle helper processes. */
void kernel_size_fini(struct leatfs *fs);

#endif
