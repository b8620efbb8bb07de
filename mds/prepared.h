/*
 * What fallocate(2) has prepared of a file, and so counts in st_blocks, quotas and statfs before it
 * is written: ranges in its record (common/proto/ranges.h). Nothing is reserved on the object
 * servers, which write nothing in place; asked for a file's size they tell how much of the ranges
 * they store, so what is prepared and not written is known as exactly as what is stored, whichever
 * of them has restarted or been replaced. All of critical sections of the loop; none yields.
 */
#ifndef LEAT_MDS_PREPARED_H
#define LEAT_MDS_PREPARED_H

#include "common/proto/ranges.h"
#include "mds/op.h"

void prepared_get(const struct inode_rec *rec, struct ranges *ret);
/* As fallocate adds it, whole blocks: the beginning of one is written with its end. */
void prepared_add(struct ranges *rs, const struct layout *l, uint64_t off, uint64_t len);
/* As a hole takes it away, whole units; len UINT64_MAX: to the end. */
void prepared_remove(struct ranges *rs, uint64_t off, uint64_t len);
/* From now on it is rs, of which, and of the file, the chains store that. Writes. */
void prepared_take(struct op *op, struct inode_rec *rec, const struct ranges *rs,
		   const struct data_ends *stored);
/* The same where nobody asked the chains: what is taken away was not written, what is added is not.
 * Writes. */
void prepared_change(struct op *op, struct inode_rec *rec, const struct ranges *rs);
/* Bytes that may still be promised. */
uint64_t prepared_room(struct op *op);

#endif
