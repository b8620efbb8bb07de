/* SPDX-License-Identifier: Apache-2.0 */
/* The way from the calls of kv.h to the engine. */
#include "common/kv/kv.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/kv/kv_rocksdb.h"

int kv_open(struct env *env, const char *path, const struct kv_options *opts, struct kv **ret_kv)
{
	return env->ops->kv_open(env, path, opts, ret_kv);
}

void kv_close(struct kv *kv)
{
	if (kv != NULL)
		kv->ops->close(kv);
}

int kv_get(struct kv *kv, const void *key, size_t key_len, struct kv_value *ret_value)
{
	return kv->ops->get(kv, key, key_len, true, ret_value);
}

int kv_try_get(struct kv *kv, const void *key, size_t key_len, struct kv_value *ret_value)
{
	return kv->ops->get(kv, key, key_len, false, ret_value);
}

void kv_value_fini(struct kv_value *v)
{
	if (((uintptr_t)v->own & 1) != 0)
		free((char *)v->own - 1);
	else if (v->own != NULL)
		kv_rocksdb_value_fini(v);
	*v = (struct kv_value){0};
}

int kv_commit(struct kv *kv, struct kv_batch *b, bool sync)
{
	ASSERT(b->magic == KV_BATCH_MAGIC);
	if (b->failed < 0)
		return b->failed;
	return kv->ops->commit(kv, b, sync);
}

int kv_snapshot_take(struct kv *kv, struct kv_snapshot **ret_snap)
{
	return kv->ops->snapshot_take(kv, ret_snap);
}

void kv_snapshot_drop(struct kv *kv, struct kv_snapshot *snap)
{
	if (snap != NULL)
		kv->ops->snapshot_drop(kv, snap);
}

struct scan {
	int (*each)(void *arg, const void *key, size_t key_len, const void *value, size_t len);
	void *arg;
	int status;
};

static int scan_one(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct scan *s = arg;
	int rc = s->each(s->arg, key, key_len, value, len);

	if (rc < 0)
		s->status = rc;
	return rc;
}

int kv_scan(struct kv *kv, struct kv_snapshot *snap, const struct kv_range *range,
	    int (*each)(void *arg, const void *key, size_t key_len, const void *value, size_t len),
	    void *arg, bool *ret_more)
{
	struct scan s = {each, arg, 0};
	bool more;
	int rc = kv->ops->scan(kv, snap, range, scan_one, &s, &more);

	TRY(rc < 0 ? rc : s.status);
	*ret_more = more;
	return 0;
}

int kv_checkpoint(struct kv *kv, const char *path)
{
	return kv->ops->checkpoint(kv, path);
}

void kv_stats(struct kv *kv, struct kv_stats *ret_stats)
{
	kv->ops->stats(kv, ret_stats);
}
