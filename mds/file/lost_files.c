/* SPDX-License-Identifier: Apache-2.0 */
/* See lost_files.h. */
#include "mds/file/lost_files.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/planted_bug.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/path.h"

#define AT_ONCE  1024u
#define ROW_ROOM 32u /* of an encoded lost_file without its path */

struct look {
	struct mds *m;
	const bool *lost;
	bool *hit;
	struct lost_files *to;
	struct key last;
	int status;
};

/* Chunks 0 to width - 1 are on the chains of the stripe, in order. Returns how many of these
 * chunks have data, by the record alone: all, if the file is unsettled. */
static uint32_t chains_with_data(const struct cluster *c, const struct inode_rec *rec)
{
	const struct layout *l = &rec->attr.layout;
	uint32_t width = l->chunk_size != 0 ? cluster_layout_width(c, l) : 0;

	if (!S_ISREG(rec->attr.mode) || width == 0)
		return 0;
	if (((rec->attr.flags & ATTR_UNSETTLED) != 0 && !PLANTED_BUG(MDS_LOSE_UNLOOKED)) ||
	    rec->attr.size > (uint64_t)(width - 1) * l->chunk_size)
		return width;
	return (uint32_t)((rec->attr.size + l->chunk_size - 1) / l->chunk_size);
}

static bool loses_data(struct look *k, const struct inode_rec *rec)
{
	const struct cluster *c = &k->m->cluster;
	uint32_t n = chains_with_data(c, rec);
	bool any = false;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t chain = cluster_layout_chain(c, &rec->attr.layout, i)->id;

		if (!k->lost[chain - 1])
			continue;
		k->hit[chain - 1] = any = true;
	}
	return any;
}

bool lost_files_has(const struct cluster *c, const struct inode_rec *rec)
{
	uint32_t n = chains_with_data(c, rec);

	for (uint32_t i = 0; i < n; i++)
		if ((cluster_layout_chain(c, &rec->attr.layout, i)->flags & CHAIN_LOST) != 0)
			return true;
	return false;
}

static int push(struct ino **v, uint32_t *n, uint32_t *cap, struct ino ino)
{
	if (*n == *cap) {
		uint32_t more = *cap != 0 ? *cap * 2 : 64;
		struct ino *p = realloc(*v, more * sizeof(*p));

		if (p == NULL)
			return -LE_NOMEM;
		*v = p;
		*cap = more;
	}
	(*v)[(*n)++] = ino;
	return 0;
}

static int list(struct lost_files *lf, struct ino ino, bool unsettled)
{
	lf->n++;
	if (unsettled)
		TRY(push(&lf->unsettled, &lf->n_unsettled, &lf->cap_unsettled, ino));
	return lf->n_listed < LOST_LISTED_MAX ? push(&lf->listed, &lf->n_listed, &lf->cap, ino) : 0;
}

static int each_inode(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct look *k = arg;
	struct inode_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_inode_rec(&r, &rec);
	if (key_len != 9 || r.status < 0) {
		k->status = -LE_CORRUPT_STORE;
		return 1;
	}
	k->last = key_of('I', get_be((const uint8_t *)key + 1, 8));
	k->to->n_seen++;
	if (loses_data(k, &rec))
		k->status = list(k->to, (struct ino){get_be((const uint8_t *)key + 1, 8)},
				 (rec.attr.flags & ATTR_UNSETTLED) != 0);
	return k->status < 0;
}

int lost_files_find(struct mds *m, const bool *lost, bool *hit, struct lost_files *ret)
{
	struct key after = key_after(key_kind('I'));
	struct look k = {.m = m, .lost = lost, .hit = hit, .to = ret, .last = key_kind('I')};
	struct kv_snapshot *snap;
	bool more = true;
	int rc = 0;

	lost_files_fini(ret);
	ret->n_inodes = m->store.counters.n_inodes;
	TRY(kv_snapshot_take(m->store.kv, &snap));
	while (rc == 0 && more) {
		struct key begin = k.last;
		struct kv_range range = {begin.b, 0, after.b, after.len, AT_ONCE};

		if (begin.len > 1)
			begin.b[begin.len++] = 0; /* the next possible key */
		range.begin_len = begin.len;
		if (m->stopping)
			rc = -LE_CANCELED;
		else
			rc = kv_scan(m->store.kv, snap, &range, each_inode, &k, &more);
		if (rc == 0)
			rc = k.status;
	}
	kv_snapshot_drop(m->store.kv, snap);
	return rc;
}

void lost_files_fini(struct lost_files *lf)
{
	free(lf->listed);
	free(lf->unsettled);
	*lf = (struct lost_files){0};
}

/* ---- sizes ---- */

/* The first byte that is on a lost chain; UINT64_MAX: none. */
static uint64_t first_lost(const struct cluster *c, const struct layout *l)
{
	uint32_t width = cluster_layout_width(c, l);

	for (uint32_t i = 0; i < width; i++)
		if ((cluster_layout_chain(c, l, i)->flags & CHAIN_LOST) != 0)
			return (uint64_t)i * l->chunk_size;
	return UINT64_MAX;
}

static int extend_txn(struct op *op, const void *vin, void *vout)
{
	const struct ino *ino = vin;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	uint64_t lost;
	int rc = inode_get(op->store, *ino, VIEW_NEWEST, &i, &old);

	(void)vout;
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	lost = first_lost(&op->m->cluster, &old->attr.layout);
	if (!S_ISREG(old->attr.mode) || lost == UINT64_MAX || old->attr.size > lost)
		return 0;
	TRY(op_changes(op, *ino));
	rec = inode_edit(op->store, i);
	rec->attr.size = lost + 1;
	inode_changed(op, rec);
	return 0;
}

int lost_files_extend(struct mds *m, const struct lost_files *lf)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < lf->n_unsettled; i++) {
		struct op op;

		op_init(&op, m);
		rc = op_mutate(&op, extend_txn, &lf->unsettled[i], NULL);
		op_fini(&op);
	}
	return rc;
}

/* ---- names ---- */

uint64_t lost_files_encode(struct mds *m, const struct lost_files *lf, uint64_t from, uint32_t max,
			   struct bytes buf, uint32_t *ret_len)
{
	char path[PATH_FIND_SIZE];
	struct wire_w w;

	wire_w_init(&w, (void *)(uintptr_t)buf.data, buf.len);
	*ret_len = 0;
	for (uint32_t n = 0; n < max && from < lf->n_listed; n++) {
		struct lost_file f = {.ino = lf->listed[from]};
		uint32_t at;

		if (path_find(m, NULL, f.ino, path, sizeof(path), &at) == 0)
			f.path = bytes_of(path + at, (uint32_t)sizeof(path) - at);
		if (buf.len - w.len < ROW_ROOM + f.path.len)
			break;
		wire_put_lost_file(&w, &f);
		*ret_len = (uint32_t)w.len;
		from++;
	}
	return from < lf->n_listed ? from : 0;
}
