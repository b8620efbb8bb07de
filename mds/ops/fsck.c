/* SPDX-License-Identifier: Apache-2.0 */
/* mds_fsck_page: records from a snapshot. mds_fsck_repair: one repair. For tools only. */
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/file/idle.h"
#include "mds/file/lost_files.h"
#include "mds/file/settle.h"
#include "mds/fsck_snapshot.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"
#include "mds/repair.h"

#define ROWS_MAX  1024u
#define PAGE_SIZE (192u << 10)
#define ROW_ROOM  512u /* upper bound of a row */

/* A client that has the cluster key and no session acts for the administrator. */
static int check_tool(const struct op *op)
{
	return op->r != NULL && op->r->peer->role != ROLE_TOOL ? -LE_PERM : 0;
}

/* ---- pages ---- */

struct page {
	struct mds *m;
	uint32_t kind;
	struct wire_w w;
	struct key last;
	bool full;
	int status;
};

static void put_inode(struct page *p, struct ino ino, const void *value, size_t len)
{
	struct fsck_inode f = {.ino = ino};
	struct inode_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_inode_rec(&r, &rec);
	f.damaged = r.status < 0 || rec.attr.mode == 0;
	f.busy = !p->m->recovery.sessions_back || open_file_find(&p->m->opens, ino) != NULL;
	if (!f.damaged) {
		f.mode = rec.attr.mode;
		f.nlink = rec.attr.nlink;
		f.flags = rec.attr.flags;
		f.size = rec.attr.size;
		f.blocks = rec.attr.blocks - rec.unwritten / 512; /* as the chains count them */
		f.change = rec.attr.change;
		f.parent = rec.parent;
		f.entries = rec.entries;
		f.layout = rec.attr.layout;
		f.cut = (rec.flags & INODE_TRUNCATING) != 0;
		f.lost = lost_files_has(&p->m->cluster, &rec);
	}
	wire_put_fsck_inode(&p->w, &f);
}

static void put_entry(struct page *p, const uint8_t *key, size_t key_len, const void *value,
		      size_t len)
{
	struct fsck_entry e = {.dir = {get_be(key + 1, 8)}};
	struct dentry_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_dentry_rec(&r, &rec);
	if (key_len != 17 || r.status < 0 || rec.name.len > LEAT_NAME_MAX) {
		p->status = -LE_CORRUPT_STORE;
		return;
	}
	if (rec.ino.v == 0)
		return; /* a tombstone */
	e.cookie = get_be(key + 9, 8);
	e.ino = rec.ino;
	e.type = rec.type;
	e.name = rec.name;
	wire_put_fsck_entry(&p->w, &e);
}

static void put_removal(struct page *p, const void *value, size_t len)
{
	struct removal_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_removal_rec(&r, &rec);
	if (r.status < 0) {
		p->status = -LE_CORRUPT_STORE;
		return;
	}
	wire_put_u64(&p->w, &rec.ino.v);
	wire_put_u32(&p->w, &rec.layout.gen);
}

static int each(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct page *p = arg;
	uint64_t number;

	if (key_len < 9 || key_len >= KEY_MAX) {
		p->status = -LE_CORRUPT_STORE;
		return 1;
	}
	if (PAGE_SIZE - p->w.len < ROW_ROOM) {
		p->full = true;
		return 1;
	}
	memcpy(p->last.b, key, key_len);
	p->last.len = (uint16_t)key_len;
	number = get_be((const uint8_t *)key + 1, 8);
	if (p->kind == FSCK_INODES)
		put_inode(p, (struct ino){number}, value, len);
	else if (p->kind == FSCK_ENTRIES)
		put_entry(p, key, key_len, value, len);
	else if (p->kind == FSCK_ORPHANS)
		wire_put_u64(&p->w, &number);
	else
		put_removal(p, value, len);
	return p->status < 0;
}

static int read_page(struct op *op, const struct mds_fsck_page_req *in,
		     struct mds_fsck_page_rep *out)
{
	static const char kinds[] = {0, 'I', 'D', 'O', 'Q'};
	struct page p = {.m = op->m, .kind = in->kind};
	struct key begin, end;
	struct kv_range range;
	bool more = false;
	uint8_t *buf;

	if (in->kind < FSCK_INODES || in->kind > FSCK_REMOVALS || in->from.len >= KEY_MAX)
		return -LE_INVAL;
	begin = key_kind(kinds[in->kind]);
	end = key_after(begin);
	if (in->from.len > 0) {
		if (*(const uint8_t *)in->from.data != begin.b[0])
			return -LE_INVAL;
		memcpy(begin.b, in->from.data, in->from.len);
		begin.len = (uint16_t)in->from.len;
	}
	buf = op_alloc(op, PAGE_SIZE + KEY_MAX);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&p.w, buf, PAGE_SIZE);
	range = (struct kv_range){begin.b, begin.len, end.b, end.len,
				  in->max > 0 && in->max < ROWS_MAX ? in->max : ROWS_MAX};
	TRY(kv_scan(op->m->store.kv, op->m->fsck.snap, &range, each, &p, &more));
	TRY(p.status);
	TRY(p.w.status);
	out->rows = bytes_of(buf, (uint32_t)p.w.len);
	if (p.full || more) {
		p.last.b[p.last.len++] = 0; /* the smallest key after the last one */
		memcpy(buf + PAGE_SIZE, p.last.b, p.last.len);
		out->next = bytes_of(buf + PAGE_SIZE, p.last.len);
	}
	return 0;
}

int mds_fsck_page(struct op *op, const void *vin, void *vout)
{
	const struct mds_fsck_page_req *in = vin;
	struct mds_fsck_page_rep *out = vout;
	struct fsck *f = &op->m->fsck;
	int rc;

	TRY(check_tool(op));
	if (in->snapshot == 0)
		TRY(fsck_take(op->m));
	else if (f->snap == NULL || in->snapshot != f->id)
		return -LE_STALE;
	out->snapshot = f->id;
	out->next_ino = f->next_ino;
	out->n_inodes = f->n_inodes;
	f->n_readers++;
	rc = read_page(op, in, out);
	ASSERT(f->n_readers > 0);
	f->n_readers--;
	f->used_us = loop_now_us();
	return rc;
}

/* ---- repairs ---- */

/* Finds the inode. Returns -LE_STALE if it has changed since the tool read it. */
static int unchanged(struct op *op, const struct mds_fsck_repair_req *in, struct inode **ret_i,
		     const struct inode_rec **ret_rec)
{
	TRY(file_get(op, in->ino, VIEW_NEWEST, ret_i, ret_rec));
	return (*ret_rec)->attr.change == in->change ? 0 : -LE_STALE;
}

static int entry_txn(struct op *op, const struct mds_fsck_repair_req *in)
{
	const struct inode_rec *rec;
	int rc = inode_get(op->store, in->ino, VIEW_NEWEST, NULL, &rec);
	int dir;

	if (rc == -LE_MISS || (rc < 0 && rc != -LE_NOENT))
		return rc;
	dir = inode_get(op->store, in->dir, VIEW_NEWEST, NULL, &rec);
	if (dir == -LE_MISS || (dir < 0 && dir != -LE_NOENT))
		return dir;
	/* Both exist, so the entry is correct. */
	if (rc == 0 && dir == 0 && S_ISDIR(rec->attr.mode))
		return 0;
	return repair_entry(op->store, in->dir, in->cookie, in->ino);
}

static int size_txn(struct op *op, const struct mds_fsck_repair_req *in)
{
	const struct inode_rec *rec;
	struct inode *i;

	TRY(unchanged(op, in, &i, &rec));
	if (!S_ISREG(rec->attr.mode) || (rec->attr.flags & ATTR_UNSETTLED) != 0 ||
	    !inode_not_open(op, in->ino))
		return 0;
	inode_edit(op->store, i)->attr.flags |= ATTR_UNSETTLED;
	return 1;
}

/* The difference found in the snapshot applies to the present count as well. Once per snapshot. */
static int total_txn(struct op *op, const struct mds_fsck_repair_req *in)
{
	struct fsck *f = &op->m->fsck;

	if (f->snap == NULL || f->id != in->change)
		return -LE_STALE;
	if (f->counted || in->entries == f->n_inodes)
		return 0;
	op->store->counters.n_inodes += in->entries - f->n_inodes;
	txn_counters(op->store);
	f->counted = true;
	return 1;
}

static int repair_txn(struct op *op, const void *vin, void *vout)
{
	const struct mds_fsck_repair_req *in = vin;
	struct repair_counts counts = {in->nlink, in->entries, in->parent};
	const struct inode_rec *rec;
	struct inode *i;
	int *ret_done = vout, rc = 0;

	TRY(op_changes(op, in->ino, in->dir, in->parent));
	switch (in->what) {
	case FSCK_REPAIR_ENTRY:
		rc = entry_txn(op, in);
		break;
	case FSCK_REPAIR_COUNTS:
		TRY(unchanged(op, in, &i, &rec));
		rc = in->nlink > 0 ? repair_counts(op->store, in->ino, &counts) : 0;
		break;
	case FSCK_REPAIR_NAME:
		TRY(unchanged(op, in, &i, &rec));
		rc = in->nlink > 0 ? repair_name(op->store, in->ino, in->parent, in->nlink) : 0;
		break;
	case FSCK_REPAIR_ORPHAN:
		TRY(unchanged(op, in, &i, &rec));
		rc = repair_orphan(op->store, in->ino);
		break;
	case FSCK_REPAIR_FALSE_ORPHAN:
		rc = repair_false_orphan(op->store, in->ino);
		break;
	case FSCK_REPAIR_SIZE:
		rc = size_txn(op, in);
		break;
	case FSCK_REPAIR_TOTAL:
		rc = total_txn(op, in);
		break;
	}
	if (rc >= 0)
		*ret_done = rc;
	return rc < 0 ? rc : 0;
}

static int lost_found_txn(struct op *op, const void *vin, void *vout)
{
	int rc;

	(void)vin;
	TRY(op_changes(op, LEAT_ROOT_INO));
	rc = repair_lost_found(op->store, vout);
	return rc < 0 ? rc : 0;
}

/* Inode numbers and generations only grow: chunks without an inode now never get one. */
static int chunks_txn(struct op *op, const void *vin, void *vout)
{
	const struct mds_fsck_repair_req *in = vin;
	const struct inode_rec *rec;
	bool *ret_ownerless = vout;
	int rc = inode_get(op->store, in->ino, VIEW_NEWEST, NULL, &rec);

	if (rc == -LE_NOENT)
		*ret_ownerless = in->ino.v < op->store->counters.next_ino;
	else if (rc == 0)
		*ret_ownerless = !S_ISREG(rec->attr.mode) || rec->attr.layout.gen > in->gen;
	return rc == -LE_NOENT ? 0 : rc;
}

static int remove_chunks(struct op *op, const struct mds_fsck_repair_req *in, int *ret_done)
{
	struct oss_remove_req req;
	struct oss_remove_rep rep = {0};
	bool ownerless = false;
	uint8_t file[12];
	struct wire_w w;

	TRY(op_mutate(op, chunks_txn, in, &ownerless));
	if (!ownerless || cluster_chain(&op->m->cluster, in->chain) == NULL)
		return 0;
	wire_w_init(&w, file, sizeof(file));
	wire_put_u64(&w, &in->ino.v);
	wire_put_u32(&w, &in->gen);
	req.files = bytes_of(file, (uint32_t)w.len);
	TRY(oss_call(&op->m->oss, in->chain, OP_oss_remove, &req, &rep,
		     loop_deadline_ms(op->m->params.oss_timeout_ms)));
	*ret_done = rep.n_chunks > 0;
	return 0;
}

int mds_fsck_repair(struct op *op, const void *vin, void *vout)
{
	struct mds_fsck_repair_req in = *(const struct mds_fsck_repair_req *)vin;
	struct mds_fsck_repair_rep *out = vout;
	int done = 0;

	TRY(check_tool(op));
	if (in.what < FSCK_REPAIR_ENTRY || in.what > FSCK_REPAIR_TOTAL)
		return -LE_INVAL;
	if (in.what == FSCK_REPAIR_CHUNKS) {
		TRY(remove_chunks(op, &in, &done));
	} else {
		if (in.what == FSCK_REPAIR_NAME)
			TRY(op_mutate(op, lost_found_txn, &in, &in.parent));
		TRY(op_mutate(op, repair_txn, &in, &done));
	}
	if (done && in.what == FSCK_REPAIR_ORPHAN)
		TRY(data_idle(op->m, in.ino));
	if (done && in.what == FSCK_REPAIR_SIZE)
		data_settle_start(op->m, in.ino);
	if (done)
		log_info("leat fsck: made repair %u of inode %llu", in.what,
			 (unsigned long long)in.ino.v);
	out->done = (uint8_t)done;
	return 0;
}
