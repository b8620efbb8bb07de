/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/store/quota.h"

#include <stdlib.h>

#include "mds/store/scan.h"
#include "mds/store/txn.h"

#define SECTOR 512u

void quotas_init(struct quotas *qs)
{
	hmap_init(&qs->map, 16);
	list_init(&qs->changed);
}

void quotas_fini(struct quotas *qs)
{
	struct hmap_node *n;

	while ((n = hmap_next(&qs->map, NULL)) != NULL) {
		hmap_remove(&qs->map, n);
		free(container_of(n, struct quota, node));
	}
	hmap_fini(&qs->map);
}

struct quota *quota_find(struct store *s, uint32_t project)
{
	struct hmap_node *n = project == 0 ? NULL : hmap_find(&s->quotas.map, hash_u64(project));

	for (; n != NULL; n = hmap_find_next(n))
		if (container_of(n, struct quota, node)->project == project)
			return container_of(n, struct quota, node);
	return NULL;
}

static struct quota *insert(struct store *s, uint32_t project)
{
	struct quota *q = calloc(1, sizeof(*q));

	if (q == NULL)
		return NULL;
	q->project = project;
	list_init(&q->changed);
	hmap_insert(&s->quotas.map, &q->node, hash_u64(project));
	return q;
}

static int load_one(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct store *s = arg;
	uint64_t id = key_len == 9 ? get_be((const uint8_t *)key + 1, 8) : 0;
	struct quota_rec rec;
	struct quota *q;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_quota_rec(&r, &rec);
	if (r.status < 0 || id == 0 || id > UINT32_MAX)
		return -LE_CORRUPT_STORE;
	q = insert(s, (uint32_t)id);
	if (q == NULL)
		return -LE_NOMEM;
	q->rec = rec;
	return 0;
}

struct load {
	struct store *s;
	int status;
};

static int load_each(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;

	l->status = load_one(l->s, key, key_len, value, len);
	return l->status != 0;
}

int quotas_load(struct store *s)
{
	struct load l = {.s = s};

	TRY(store_scan_prefix(s, key_kind('U'), load_each, &l));
	return l.status;
}

static void note(struct store *s, struct quota *q)
{
	if (list_empty(&q->changed))
		list_push(&s->quotas.changed, &q->changed);
}

struct quota *quota_create(struct store *s, struct ino root)
{
	struct quota *q = insert(s, s->counters.next_project + 1);

	if (q == NULL)
		return NULL;
	s->counters.next_project++;
	txn_counters(s);
	q->rec.root = root;
	quota_changed(s, q);
	return q;
}

void quota_changed(struct store *s, struct quota *q)
{
	s->wrote = true;
	q->used_changed = true;
	note(s, q);
}

void quota_end(struct store *s, struct quota *q)
{
	q->rec.bytes_soft = q->rec.bytes_hard = 0;
	q->rec.inodes_soft = q->rec.inodes_hard = 0;
	q->rec.root = (struct ino){0};
	quota_changed(s, q);
}

/* ---- limits ---- */

/* The amount that may still be added; UINT64_MAX: any. */
static uint64_t left(const struct store *s, uint64_t used, uint64_t soft, uint64_t hard,
		     int64_t over_ns)
{
	uint64_t limit = hard != 0 ? hard : UINT64_MAX;

	if (soft != 0 && over_ns != 0 && env_wall_ns(s->env) - over_ns > s->quotas.grace_ns &&
	    soft < limit)
		limit = soft;
	return limit == UINT64_MAX ? limit : limit > used ? limit - used : 0;
}

uint64_t quota_bytes_left(struct store *s, const struct quota *q)
{
	return left(s, q->rec.bytes + q->ahead_bytes + q->reserved, q->rec.bytes_soft,
		    q->rec.bytes_hard, q->rec.bytes_over_ns);
}

int quota_check(struct store *s, uint32_t project, uint64_t bytes, uint64_t inodes)
{
	const struct quota *q = quota_find(s, project);

	if (q == NULL)
		return 0;
	if (bytes > 0 && quota_bytes_left(s, q) < bytes)
		return -LE_DQUOT;
	if (inodes > 0 && left(s, q->rec.inodes + q->ahead_inodes, q->rec.inodes_soft,
			       q->rec.inodes_hard, q->rec.inodes_over_ns) < inodes)
		return -LE_DQUOT;
	return 0;
}

void quota_ahead(struct store *s, uint32_t project, uint64_t bytes, uint64_t inodes)
{
	struct quota *q = quota_find(s, project);

	if (q == NULL)
		return;
	q->ahead_bytes += bytes;
	q->ahead_inodes += inodes;
	note(s, q);
}

/* ---- counting ---- */

uint64_t quota_attrs(const struct inode_rec *rec)
{
	uint64_t len = rec->xattr_names + rec->xattr_bytes + rec->acl.len + rec->acl_default.len +
		       rec->symlink.len;

	return (len + SECTOR - 1) / SECTOR * SECTOR;
}

uint64_t quota_bytes(const struct inode_rec *rec)
{
	return rec->attr.blocks * SECTOR + quota_attrs(rec);
}

static void over(struct store *s, uint64_t used, uint64_t soft, int64_t *since_ns)
{
	if (soft == 0 || used <= soft)
		*since_ns = 0;
	else if (*since_ns == 0)
		*since_ns = env_wall_ns(s->env);
}

static void add(struct store *s, const struct inode_rec *rec, bool less)
{
	struct quota *q = rec->attr.mode == 0 ? NULL : quota_find(s, rec->attr.project);
	uint64_t bytes = quota_bytes(rec);

	if (q == NULL)
		return;
	q->rec.inodes += less ? UINT64_MAX : 1;
	q->rec.bytes += less ? -bytes : bytes;
	q->used_changed = true;
	note(s, q);
}

void quota_count(struct store *s, const struct inode_rec *before, const struct inode_rec *after)
{
	bool same = before->attr.mode != 0 && after->attr.mode != 0 &&
		    before->attr.project == after->attr.project &&
		    quota_bytes(before) == quota_bytes(after);

	if (same || before->attr.project + after->attr.project == 0)
		return;
	add(s, before, true);
	add(s, after, false);
}

static void encode(struct kv_batch *kv, const struct quota *q)
{
	struct key k = key_of('U', q->project);
	uint8_t buf[256];
	struct wire_w w;

	if (q->rec.root.v == 0 && q->rec.inodes == 0) {
		kv_batch_delete(kv, k.b, k.len);
		return;
	}
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_quota_rec(&w, &q->rec);
	ASSERT(w.status == 0);
	kv_batch_put(kv, k.b, k.len, buf, w.len);
}

void quotas_encode(struct store *s, struct kv_batch *kv)
{
	struct list *n;

	while ((n = list_pop(&s->quotas.changed)) != NULL) {
		struct quota *q = list_entry(n, struct quota, changed);

		list_init(&q->changed);
		q->ahead_bytes = q->ahead_inodes = 0;
		if (!q->used_changed)
			continue;
		q->used_changed = false;
		over(s, q->rec.bytes, q->rec.bytes_soft, &q->rec.bytes_over_ns);
		over(s, q->rec.inodes, q->rec.inodes_soft, &q->rec.inodes_over_ns);
		encode(kv, q);
	}
}
