/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what to prefetch for a file that is read in sequence, and serves reads from what was
 * prefetched. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_READAHEAD_H
#define LEAT_CLIENT_DATA_READAHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct block_sums;
struct client;
struct inode_io;
struct ll_data;

/* Small files: their maximum size, and how much a file that was read, or not read, changes the
 * confidence. */
#define RA_SMALL      (256u << 10)
#define RA_TRUST_MAX  16u
#define RA_TRUST_LOSS 4u

/* How one open file is read in sequence. */
struct ra_state {
	uint64_t next;     /* where the next sequential read would start */
	uint64_t ahead;    /* prefetch was started up to here */
	uint32_t n_in_seq; /* reads in sequence */
};

/* Called for each read of [off, off + len). Starts prefetching if the reads are sequential. size:
 * of the file. Does not yield. */
void ra_note(struct inode_io *d, struct ra_state *s, uint64_t off, uint32_t len, uint64_t size);
/* Called when a file of that size was opened and no cached data of it is valid. Prefetches a small
 * file if most small files are read. Returns true if ra_closed must be called. Does not yield. */
bool ra_opened(struct inode_io *d, uint64_t size);
/* Called when such a file is closed: updates the confidence. Does not yield. */
void ra_closed(struct client *c, bool was_read);
/* Serves the start of [off, off + len) from prefetched data, which it waits for if it is being
 * fetched. Appends to data, and records sums (may be NULL). Returns the number of bytes; 0 if
 * nothing is there; -LE_INTR. Yields. */
int ra_take(struct inode_io *d, uint64_t off, uint32_t len, struct ll_data *data,
	    struct block_sums *sums) CHECK_RESULT;
/* Returns how many bytes from off on, at most len, are to be read without prefetched data. Does not
 * yield. */
uint32_t ra_gap(struct inode_io *d, uint64_t off, uint32_t len);

#endif
