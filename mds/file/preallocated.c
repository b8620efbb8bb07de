/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/preallocated.h"

#include "mds/file/chain_stat.h"
#include "mds/store/acl.h"

#define UNIT   4096u /* in which stored data is counted (ossd/chunk) */
#define SECTOR 512u

void preallocated_get(const struct inode_rec *rec, struct ranges *ret)
{
	if (ranges_get(rec->preallocated, ret) < 0)
		*ret = (struct ranges){0};
}

static uint64_t up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

void preallocated_add(struct ranges *rs, const struct layout *l, uint64_t off, uint64_t len)
{
	uint64_t block = l->chunk_size != 0 ? chunk_block_size(l->chunk_size) : UNIT;

	ranges_add(rs, off / block * block, up(off + len, UNIT));
}

void preallocated_remove(struct ranges *rs, uint64_t off, uint64_t len)
{
	uint64_t end = len > UINT64_MAX - off ? UINT64_MAX : (off + len) / UNIT * UNIT;

	ranges_remove(rs, up(off, UNIT), end);
}

/* Sets the ranges of the record. Equal ranges share their bytes in the table of access lists.
 * Without memory for that the file loses its ranges. */
static void put(struct op *op, struct inode_rec *rec, const struct ranges *rs)
{
	uint8_t buf[RANGES_SIZE];
	struct bytes b = acl_intern(op->store, ranges_put(rs, buf));

	acl_unref(op->store, rec->preallocated);
	rec->preallocated = b.data != NULL ? b : bytes_of(NULL, 0);
	rec->attr.flags &= ~(uint32_t)ATTR_PREPARED;
	if (rec->preallocated.len > 0)
		rec->attr.flags |= ATTR_PREPARED;
}

static void set_unwritten(struct op *op, struct inode_rec *rec, uint64_t bytes)
{
	if (bytes == rec->unwritten)
		return;
	op->store->counters.unwritten += bytes - rec->unwritten;
	rec->unwritten = bytes;
	txn_counters(op->store);
}

void preallocated_take(struct op *op, struct inode_rec *rec, const struct ranges *rs,
		   const struct data_ends *stored)
{
	static const struct ranges none;
	uint64_t bytes = ranges_bytes(rs);
	uint64_t left = bytes > stored->covered ? bytes - stored->covered : 0;

	/* With nothing left to write the ranges are dropped: what is written stays stored until
	 * a truncate or punch, which would remove the range as well. */
	put(op, rec, left > 0 ? rs : &none);
	set_unwritten(op, rec, left);
	rec->attr.blocks = (stored->used + left + SECTOR - 1) / SECTOR;
}

void preallocated_change(struct op *op, struct inode_rec *rec, const struct ranges *rs)
{
	uint64_t was, is = ranges_bytes(rs), left = rec->unwritten;
	uint64_t sectors = rec->attr.blocks;
	struct ranges before;

	preallocated_get(rec, &before);
	was = ranges_bytes(&before);
	if (is >= was)
		left += is - was;
	else
		left -= was - is < left ? was - is : left;
	sectors += left / SECTOR;
	sectors -= rec->unwritten / SECTOR < sectors ? rec->unwritten / SECTOR : sectors;
	rec->attr.blocks = sectors;
	put(op, rec, rs);
	set_unwritten(op, rec, left);
}

uint64_t preallocated_space(struct op *op)
{
	uint64_t total, free, promised = op->store->counters.unwritten;

	cluster_space(&op->m->cluster, &total, &free);
	return free > promised ? free - promised : 0;
}
