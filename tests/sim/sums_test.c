/* SPDX-License-Identifier: Apache-2.0 */
/* What sums_wrong_block accepts and refuses, by hand. */
#include <stdio.h>
#include <string.h>

#include "client/layout/block_sums.h"
#include "client/ll.h"
#include "common/proto/types.h"
#include "common/base/checksum.h"
#include "tests/sim/sums.h"

#define BLOCK LEAT_BLOCK_SIZE_MIN
#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #cond);                          \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)
#define LEN (2u * BLOCK)
#define OFF (BLOCK + 100u) /* the offset of the read: in block 1 */

int sums_test(void)
{
	static uint8_t data[LEN], got[50];
	struct sums_past past = {0};
	struct sums_file f = {{data, LEN}, &past};
	uint64_t sum[1];
	struct block_sums sums = {BLOCK, 1, 1, sum};
	struct ll_part part = {NULL, got, OFF, sizeof(got), sizeof(got), &sums};
	uint64_t before, between, after, other;

	for (uint32_t i = 0; i < LEN; i++)
		data[i] = (uint8_t)(i * 7 + i / 251 + 1);
	before = checksum64(data + BLOCK, BLOCK);
	sums_keep(&past, &f.now);
	memset(data + BLOCK + 5000, 1, 700); /* not written yet, or lost */
	between = checksum64(data + BLOCK, BLOCK);
	sums_keep(&past, &f.now);
	memset(data + BLOCK + 6000, 0, BLOCK - 6000);
	after = checksum64(data + BLOCK, 6000);
	memcpy(got, data + OFF, sizeof(got));
	other = checksum64(data, BLOCK);
	for (uint32_t i = 0; i < 3; i++) {
		sum[0] = i == 0 ? before : i == 1 ? between : after;
		CHECK(sums_wrong_block(&f, &part) == SUMS_HOLD);
	}
	/* The checksum of no block; then that of another block of the file. */
	sum[0] = before + 1;
	CHECK(sums_wrong_block(&f, &part) == 1);
	sum[0] = other;
	CHECK(sums_wrong_block(&f, &part) == 1);
	/* What was read has been written since: only the block before that write can be the right
	 * one. */
	sums_keep(&past, &f.now);
	memset(data + OFF + 10, 3, 5);
	memcpy(got, data + OFF, sizeof(got));
	for (uint32_t i = 0; i < 3; i++) {
		sum[0] = i == 0 ? before : i == 1 ? between : after;
		CHECK(sums_wrong_block(&f, &part) == 1);
	}
	sum[0] = checksum64(data + BLOCK, 6000);
	CHECK(sums_wrong_block(&f, &part) == SUMS_HOLD);
	/* After the end of what the checksum covers; and when all is durable. */
	sum[0] = checksum64(data + BLOCK, 6000);
	part.off = BLOCK + 5980;
	memcpy(got, data + part.off, sizeof(got));
	CHECK(sums_wrong_block(&f, &part) == 1);
	part.off = BLOCK + 10;
	memcpy(got, data + part.off, sizeof(got));
	sum[0] = between;
	CHECK(sums_wrong_block(&f, &part) == SUMS_HOLD);
	sums_forget(&past);
	CHECK(sums_wrong_block(&f, &part) == 1);
	return 0;
}
