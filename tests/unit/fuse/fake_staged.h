/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of client/stage/store/staged.h, and of the kernel's part of passthrough: at most one
 * staged copy, of one file, whose bytes the test has put into a memory file.
 */
#ifndef LEAT_TESTS_UNIT_FUSE_FAKE_STAGED_H
#define LEAT_TESTS_UNIT_FUSE_FAKE_STAGED_H

#include "client/stage/store/staged.h"

extern struct fake_staged {
	int fd; /* the copy; -1: there is none */
	struct staged_want has;
	uint64_t generation;
	uint32_t n_opens, n_in_use; /* calls of staged_open; copies that are not put */
} fake_staged;

/* Makes a copy of that inode, full of one byte. */
void fake_stage(uint64_t ino, uint64_t ver, uint64_t size, char byte);
void fake_unstage(void);

#endif
