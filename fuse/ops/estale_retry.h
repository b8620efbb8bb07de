/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that got ESTALE for an open, because a rename has replaced the file since the kernel
 * cached its name. The kernel then looks up every name of the path again and repeats the open once;
 * a second ESTALE would reach the program. So the next open of such a thread belongs to its last
 * lookup, and opens the inode that this lookup found, even if a rename has replaced it since
 * (LL_FOUND). A thread that opens the same inode again without a lookup uses an open file, not a
 * name (/proc/self/fd/N): it is opened as well.
 *
 * Owned by the mount's loop. Bounded: the oldest thread is dropped, and gets an ESTALE at worst.
 * Nothing yields.
 */
#ifndef LEAT_FUSE_OPS_ESTALE_RETRY_H
#define LEAT_FUSE_OPS_ESTALE_RETRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ESTALE_RETRIES_MAX 64u

struct estale_retry {
	uint32_t n, next;
	struct {
		pid_t thread; /* 0: none */
		uint64_t ino; /* the inode of the failed open, or of the lookup since */
	} ring[ESTALE_RETRIES_MAX];
};

/* Notes that the thread's open of ino is answered ESTALE. Ignores thread 0 (of another pid
 * namespace). */
void estale_retry_add(struct estale_retry *r, pid_t thread, uint64_t ino);
/* Notes the result of a lookup by the thread: an inode number, or 0 for no such name. */
void estale_retry_found(struct estale_retry *r, pid_t thread, uint64_t ino);
/* Call when the thread opens ino. Returns true if that is the inode noted after an ESTALE. Drops
 * the thread. */
bool estale_retry_take(struct estale_retry *r, pid_t thread, uint64_t ino);

#endif
