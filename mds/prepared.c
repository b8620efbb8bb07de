#include "mds/prepared.h"

#include "mds/store/acl.h"

#define UNIT   4096u /* in which stored data is counted (ossd/chunk) */
#define SECTOR 512u

void prepared_get(const struct inode_rec *rec, struct ranges *ret)
{
	/* What cannot be read prepares nothing. */
	if (ranges_get(rec->prepared, ret) < 0)
		*ret = (struct ranges){0};
}

static uint64_t up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

void prepared_add(struct ranges *rs, const struct layout *l, uint64_t off, uint64_t len)
{
	uint64_t block = l->chunk_size != 0 ? chunk_block_size(l->chunk_size) : UNIT;

	ranges_add(rs, off / block * block, up(off + len, UNIT));
}

void prepared_remove(struct ranges *rs, uint64_t off, uint64_t len)
{
	uint64_t end = len > UINT64_MAX - off ? UINT64_MAX : (off + len) / UNIT * UNIT;

	ranges_remove(rs, up(off, UNIT), end);
}

/* In memory once, like access lists, which are bytes as well. Without memory it is forgotten. */
static void put(struct op *op, struct inode_rec *rec, const struct ranges *rs)
{
	uint8_t buf[RANGES_SIZE];
	struct bytes b = acl_intern(op->store, ranges_put(rs, buf));

	acl_unref(op->store, rec->prepared);
	rec->prepared = b.data != NULL ? b : bytes_of(NULL, 0);
	rec->attr.flags &= ~(uint32_t)ATTR_PREPARED;
	if (rec->prepared.len > 0)
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

void prepared_take(struct op *op, struct inode_rec *rec, const struct ranges *rs,
		   const struct data_ends *stored)
{
	static const struct ranges none;
	uint64_t bytes = ranges_bytes(rs);
	uint64_t left = bytes > stored->covered ? bytes - stored->covered : 0;

	/* What is written stays so until it is cut or punched, which takes both. */
	put(op, rec, left > 0 ? rs : &none);
	set_unwritten(op, rec, left);
	rec->attr.blocks = (stored->used + left + SECTOR - 1) / SECTOR;
}

void prepared_change(struct op *op, struct inode_rec *rec, const struct ranges *rs)
{
	uint64_t was, is = ranges_bytes(rs), left = rec->unwritten;
	uint64_t sectors = rec->attr.blocks;
	struct ranges before;

	prepared_get(rec, &before);
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

uint64_t prepared_room(struct op *op)
{
	uint64_t total, free, promised = op->store->counters.unwritten;

	cluster_space(&op->m->cluster, &total, &free);
	return free > promised ? free - promised : 0;
}
