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
	struct leatfs *fs; /* of the daemon in service */
	/* Kept until the process ends: a stopped daemon's memory is not freed. */
	struct rig_daemon {
		struct leatfs fs;
		bool ended, handed_over;
	} daemons[RIG_DAEMONS];
	uint32_t n_daemons;
	/* Set before rig_run: the properties of the mount. */
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
 * The helper process of kernel/kernel_size.c is this program, started again, which then behaves as
 * the kernel's helper would: it waits until the test has requested attributes by its number, and
 * answers with the size that the test sets as the kernel's. Shared by both processes.
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

/* Like RIG_TEST, for what a mount does only with libfuse 3.17 or newer. */
#define RIG_TEST_OF_NEW_LIBFUSE(name)                                                              \
	static void run_##name(void **state)                                                       \
	{                                                                                          \
		(void)state;                                                                       \
		if (FUSE_LACKS[0] != '\0')                                                         \
			skip();                                                                    \
		rig.o = (struct rig_options){0};                                                   \
		rig_run(name);                                                                     \
	}

/* Stops the daemon in service, and starts another one that takes over. Returns 0, or the reason why
 * it cannot; then the mount has no daemon. rig.o: the properties of the next one. */
int rig_take_over(void);
/* The two halves: rig_hand_over stops the previous daemon. */
void rig_hand_over(void);
int rig_resume(void);

#endif
