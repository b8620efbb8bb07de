/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount without a kernel and without servers: the daemon's own code (fuse/kernel, ops, restart)
 * between a fake kernel and a double of the client library, all on one real loop.
 */
#ifndef LEAT_TESTS_UNIT_FUSE_RIG_H
#define LEAT_TESTS_UNIT_FUSE_RIG_H

#include "fuse/mount.h"
#include "fuse/restart/restart_state.h"
#include "tests/unit/fuse/fake_client.h"
#include "tests/unit/fuse/fake_kernel.h"

#define RIG_DAEMONS  4u
#define RIG_REQUESTS 8u

extern struct rig {
	struct fake_kernel k;
	struct leatfs *fs; /* of the daemon that serves */
	/* Kept until the process ends: what a daemon leaves behind nobody frees. */
	struct rig_daemon {
		struct leatfs fs;
		bool ended, handed_over;
	} daemons[RIG_DAEMONS];
	uint32_t n_daemons;
	/* Set before rig_run, for what the mount is like. */
	struct rig_options {
		bool local_locks, ino32, strict_atime;
		uint32_t slow_ms;
		uint64_t kernel_flags; /* 0: all that Linux 6.9 has */
		uint64_t root;         /* 0: that of the namespace */
		const char *stage_dir, *passthrough;
	} o;
	void (*test)(void);
	bool done;
} rig;

/*
 * The helper process of kernel/kernel_size.c is this program once more, which then does what a
 * helper of the kernel would: it waits until the test has asked for attributes by its number, and
 * answers what the test says that the kernel believes. Shared by both processes.
 */
extern struct rig_helper {
	_Atomic uint32_t n_asked, n_answers; /* the test raises n_answers to n_asked */
	_Atomic int pid;
	_Atomic uint64_t node, end;
	uint64_t size;
	uint32_t uid, gid, err;
	bool dies; /* instead of answering */
} * rig_helper;

/* Runs the test as a fiber beside a daemon that has answered INIT; the file system is empty. */
void rig_run(void (*test)(void));
/* As a cmocka test. */
#define RIG_TEST(name)                                                                             \
	static void run_##name(void **state)                                                       \
	{                                                                                          \
		(void)state;                                                                       \
		rig.o = (struct rig_options){0};                                                   \
		rig_run(name);                                                                     \
	}

/* The same of what a mount does only with a libfuse that is not older than 3.17. */
#define RIG_TEST_OF_NEW_LIBFUSE(name)                                                              \
	static void run_##name(void **state)                                                       \
	{                                                                                          \
		(void)state;                                                                       \
		if (FUSE_LACKS[0] != '\0')                                                         \
			skip();                                                                    \
		rig.o = (struct rig_options){0};                                                   \
		rig_run(name);                                                                     \
	}

/* The daemon that serves is told to make room, and another one takes over: 0, or why it cannot;
 * then the mount has no daemon. rig.o: what the next one is like. */
int rig_take_over(void);
/* The two halves: the former is done. */
void rig_hand_over(void);
int rig_resume(void);

#endif
