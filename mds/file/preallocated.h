/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranges of a file that fallocate(2) has preallocated. They are part of its record
 * (common/proto/ranges.h) and count in st_blocks, quotas and statfs before they are written. Object
 * servers reserve nothing, because they write nothing in place. With the size of a file they report
 * how much of the ranges they store, so the server knows what is preallocated and not written.
 *
 * All functions but the first three are called in critical sections. None yields.
 */
#ifndef LEAT_MDS_FILE_PREALLOCATED_H
#define LEAT_MDS_FILE_PREALLOCATED_H

#include "common/proto/ranges.h"
#include "mds/op.h"

struct data_ends;

/* Decodes the ranges of the record. Ranges that cannot be decoded count as none. */
void preallocated_get(const struct inode_rec *rec, struct ranges *ret);
/* Adds a range, widened to whole blocks: a block is written as a whole. */
void preallocated_add(struct ranges *rs, const struct layout *l, uint64_t off, uint64_t len);
/* Removes the whole units within a range, as a punch does. len UINT64_MAX: to the end. */
void preallocated_remove(struct ranges *rs, uint64_t off, uint64_t len);
/* Sets the ranges to rs, and the blocks of the file from what the chains have reported
 * (`stored`). Writes to the store. */
void preallocated_take(struct op *op, struct inode_rec *rec, const struct ranges *rs,
		   const struct data_ends *stored);
/* Sets the ranges to rs without a report of the chains: assumes that nothing is written in the
 * ranges that are removed or added. Writes to the store. */
void preallocated_change(struct op *op, struct inode_rec *rec, const struct ranges *rs);
/* How many bytes can still be preallocated: free space of the cluster less what is preallocated and
 * not written. */
uint64_t preallocated_space(struct op *op);

#endif
