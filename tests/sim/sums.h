/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what reads return, and which checksums of blocks they report (client/layout/block_sums.h),
 * beside the model.
 *
 * A checksum must be that of a block as the servers have it, and what was read of the block must be
 * a part of it. That need not be the block as the model has it: until they are durable, other
 * writes of the client to the block may be missing, or lost. So the model keeps the content of the
 * file before each change.
 */
#ifndef LEAT_TESTS_SIM_SUMS_H
#define LEAT_TESTS_SIM_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ll.h"
#include "common/rt/sim/sim.h"

#define SUMS_FILE_MAX (260u << 10)
#define SUMS_PAST_MAX 12u

/* The content of a file, now or before a change. */
struct sums_state {
	uint8_t *data;
	uint64_t size;
};
/* The content before each change since the whole file was durable; the newest comes last. Zeroed:
 * no changes. */
struct sums_past {
	uint32_t n;
	struct sums_state was[SUMS_PAST_MAX];
};
struct sums_file {
	struct sums_state now;
	const struct sums_past *past;
};

/* Copies the content before a change, where there are fewer than SUMS_PAST_MAX copies. */
void sums_keep(struct sums_past *p, const struct sums_state *now);
/* Drops the copies: the whole file is durable, or removed. */
void sums_forget(struct sums_past *p);

#define SUMS_HOLD UINT64_MAX
/* Returns SUMS_HOLD, or the first block of the file for which the part that was read has a checksum
 * that fits no state of the block with the bytes that were read. */
uint64_t sums_wrong_block(const struct sums_file *f, const struct ll_part *part);
struct sums_want {
	struct client *client;
	struct ll_file *file;
	uint8_t *to;
	uint64_t off, len;
	struct sim *cut; /* draws the lengths of the small reads that the read is split into; NULL:
			  * one read */
};
/* Like ll_pread: returns bytes, or the first failure. ret_why: the wrong bytes or checksum, "" if
 * all are right; only without a failure. Yields. */
#define SUMS_WHY_SIZE 128
int64_t sums_read(const struct sums_want *w, const struct sums_file *f,
		  char ret_why[SUMS_WHY_SIZE]);

/* Tests of this module, run by name like the others. Returns 0 if they pass. */
int sums_test(void);

#endif
