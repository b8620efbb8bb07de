/*
 * The chunks of all chains, in the order of their inodes: one stream for each chain, which reads
 * the lists of all complete members side by side and so sees where copies differ. Memory is
 * bounded by the number of copies of chains.
 */
#ifndef LEAT_TOOLS_FSCK_CHAINS_H
#define LEAT_TOOLS_FSCK_CHAINS_H

#include "tools/fsck.h"

struct fsck_chains;

/* Yield. The chains are those of the map now. */
int fsck_chains_open(struct fsck *f, struct fsck_chains **ret_chains) CHECK_RESULT;
void fsck_chains_close(struct fsck_chains *cs);

struct fsck_chunk {
	uint32_t chain;
	struct chunk_summary s;
};
/* The next one, by inode and then chain, generation, index. 1; 0: there are no more. Copies that
 * differ are looked at again, and found. Yields. */
int fsck_chains_next(struct fsck_chains *cs, struct fsck_chunk *ret_chunk) CHECK_RESULT;

#endif
