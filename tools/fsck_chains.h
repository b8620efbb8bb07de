/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunks of all chains, in the order of their inodes: one stream for each chain, which reads
 * the lists of all complete members side by side and so finds copies that differ. Memory is bounded
 * by the number of copies of chains.
 */
#ifndef LEAT_TOOLS_FSCK_CHAINS_H
#define LEAT_TOOLS_FSCK_CHAINS_H

#include "tools/fsck.h"

struct fsck_chains;

/* Open the streams of all chains of the present map, and close them. open returns 0 or a negative
 * status, and yields. */
int fsck_chains_open(struct fsck *f, struct fsck_chains **ret_chains) CHECK_RESULT;
void fsck_chains_close(struct fsck_chains *cs);

struct fsck_chunk {
	uint32_t chain;
	struct chunk_summary s;
};
/* Moves to the next chunk, in the order of inode, chain, generation, index. Returns 1 and the
 * chunk, 0 after the last one, or a negative status. Copies that differ are read a second time,
 * and reported with fsck_found. Yields. */
int fsck_chains_next(struct fsck_chains *cs, struct fsck_chunk *ret_chunk) CHECK_RESULT;

#endif
