/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reads bring, and are told of the checksums of blocks (client/layout/block_sums.h), beside
 * the model.
 *
 * A checksum must be that of a block as the servers have it, from which all that was read of it
 * was cut out. That need not be the block as the model has it: what its client has written
 * elsewhere in the block may not be there yet, or not any more, until it is durable. So the
 * model keeps what the file had before each change.
 */
#ifndef LEAT_TESTS_SIM_SUMS_H
#define LEAT_TESTS_SIM_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ll.h"
#include "common/rt/sim/sim.h"

#define SUMS_FILE_MAX (260u << 10)
#define SUMS_PAST_MAX 12u

/* What a file has or had. */
struct sums_state {
	uint8_t *data;
	uint64_t size;
};
/* What it had before each change since all of it was durable; the newest comes last. Zeroed: there
 * was none. */
struct sums_past {
	uint32_t n;
	struct sums_state was[SUMS_PAST_MAX];
};
struct sums_file {
	struct sums_state now;
	const struct sums_past *past;
};

/* Before a change, where there are fewer than SUMS_PAST_MAX: keeps a copy. */
void sums_keep(struct sums_past *p, const struct sums_state *now);
/* All is durable, or the file is no more. */
void sums_forget(struct sums_past *p);

#define SUMS_HOLD UINT64_MAX
/* SUMS_HOLD, or the first block of the file of which the part, which has been read, was told a
 * checksum that belongs to no bytes that what was read of it can be cut out of. */
uint64_t sums_wrong_block(const struct sums_file *f, const struct ll_part *part);
struct sums_want {
	struct client *client;
	struct ll_file *file;
	uint8_t *to;
	uint64_t off, len;
	struct sim *cut; /* who draws the lengths of the small reads it is done by; NULL: as one */
};
/* As ll_pread: bytes, or the first failure. ret_why: what was read or told that is wrong, "" when
 * all is right; only where there was no failure. Yields. */
#define SUMS_WHY_SIZE 128
int64_t sums_read(const struct sums_want *w, const struct sums_file *f,
		  char ret_why[SUMS_WHY_SIZE]);

/* Tests of this, run by name like the others: 0 is good. */
int sums_test(void);

#endif
