/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mount's part of opening a name that is renamed over again and again
 * (mds/file/orphan_delay.h): which open belongs to a lookup that the kernel has repeated.
 *
 * When an open fails with ESTALE, the kernel looks up every name of the path again and repeats the
 * open once. So the next open of the thread belongs to its last lookup, and has OPEN_ORPHAN. A
 * thread that opens the same inode again without a lookup uses an open file, not a name
 * (/proc/self/fd/N): its open has OPEN_ORPHAN too.
 *
 * Owned by the mount's loop. Two threads whose numbers have the same remainder displace each other;
 * then a program may get ESTALE. No function yields.
 */
#ifndef LEAT_FUSE_OPS_ESTALE_RETRY_H
#define LEAT_FUSE_OPS_ESTALE_RETRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ESTALE_RETRIES_MAX 256u

struct estale_retry {
	struct estale_thread {
		pid_t thread; /* 0: none */
		uint64_t ino; /* the inode of the failed open, or of the lookup since */
	} threads[ESTALE_RETRIES_MAX];
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
