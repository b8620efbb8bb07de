/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, closing, the commit counter, and the fiber that zeroes space ahead.
 *
 * Start: super row → replay rows → all chunk records; their extents are marked in the free map
 * (store_load.c) → data file → serve. Data without a record, left by a crash, is free again.
 */
#include "ossd/chunk/chunk_store.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "ossd/chunk/store_load.h"

WIRE_DEFINE_MESSAGE(store_super)

#define ZERO_STEP       (1u << 20)
#define ZERO_SYNC_EVERY (32u << 20)
#define ZERO_IDLE_US    300000u

/* ---- zeroing ahead ---- */

static bool may_zero(const struct chunk_store *s)
{
	uint64_t high = s->space.alloc.high * UNIT_SIZE;

	return s->n_writing == 0 && s->data.size < s->data.capacity &&
	       s->data.size - (high < s->data.size ? high : s->data.size) < s->p->zero_ahead &&
	       env_now_us(s->env) - s->last_write_us > ZERO_IDLE_US && chunk_store_status(s) == 0;
}

static void zero_fiber(void *arg)
{
	struct chunk_store *s = arg;
	uint64_t unsynced = 0;
	int rc = 0;

	while (!s->stopping && rc == 0) {
		bool more = may_zero(s);

		if (more) {
			rc = data_file_zero(&s->data, s->zero->data, ZERO_STEP);
			extent_alloc_grow(&s->space.alloc, s->data.size / UNIT_SIZE);
			unsynced += ZERO_STEP;
		}
		if (rc == 0 && unsynced && s->p->sync &&
		    (unsynced >= ZERO_SYNC_EVERY || (!more && s->n_writing == 0))) {
			/* Sync by a group: the kernel reports a failed write of data to one sync
			 * only. If this fiber took that error, the sync of the next group would
			 * succeed without its data. */
			rc = group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, true));
			unsynced = 0;
		}
		if (!more && fiber_sleep_us(100000) < 0)
			break;
	}
	if (rc < 0)
		log_warn("zeroing ahead has ended: %s", status_text(rc));
	latch_done(&s->fibers);
}

/* ---- start ---- */

int store_super_check(const struct wire_r *r, const struct store_super *super, const char *dir)
{
	if (r->status == 0 && super->format == STORE_FORMAT)
		return 0;
	log_error("%s: another release of Leat has made this store (format %u, this one knows "
		  "%u). It is left as it is: go on with that release; or copy the files out with "
		  "it, make new stores (leat-mds format, leat-ossd format) and copy them back",
		  dir, super->format, STORE_FORMAT);
	return -LE_STORE_FORMAT;
}

static int load_super(struct chunk_store *s)
{
	struct kv_value v;
	struct wire_r r;
	int rc = kv_get(s->kv, SUPER_KEY, SUPER_KEY_SIZE, &v);

	if (rc < 0)
		return rc == -LE_NOENT ? -LE_STORE_FORMAT : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_store_super(&r, &s->super);
	kv_value_fini(&v);
	TRY(store_super_check(&r, &s->super, s->p->data_dir));
	rc = kv_get(s->kv, COMMITS_KEY, COMMITS_KEY_SIZE, &v);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_u64(&r, &s->commits);
	s->commits_next = s->commits;
	kv_value_fini(&v);
	return r.status < 0 ? -LE_STORE_FORMAT : 0;
}

static void commit_before(void *arg, struct kv_batch *b)
{
	struct chunk_store *s = CAST_OBJ(arg, struct chunk_store, CHUNK_STORE_MAGIC);
	uint8_t buf[8];
	struct wire_w w;

	s->commits_next++;
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u64(&w, &s->commits_next);
	kv_batch_put(b, COMMITS_KEY, COMMITS_KEY_SIZE, buf, sizeof(buf));
}

static void commit_after(void *arg)
{
	struct chunk_store *s = CAST_OBJ(arg, struct chunk_store, CHUNK_STORE_MAGIC);

	s->commits = s->commits_next;
}

static int start_fibers(struct chunk_store *s)
{
	struct group_commit_options g = {
		.env = s->env,
		.kv = s->kv,
		.data = s->data.f,
		.sync = s->p->sync,
		.metrics = s->metrics,
		.arg = s,
		.before = commit_before,
		.after = commit_after,
	};

	TRY(group_commit_start(&s->gc, &g));
	if (!s->p->zero_ahead)
		return 0;
	latch_add(&s->fibers, 1);
	if (fiber_spawn("zero-ahead", zero_fiber, s) < 0)
		latch_done(&s->fibers);
	return 0;
}

static int open_pools(struct chunk_store *s)
{
	TRY(slot_pool_create(OSSD_SLOT_SIZE, s->p->read_slots + 1, &s->read_pool));
	TRY(slot_pool_create(OSSD_SMALL_SLOT_SIZE, s->p->small_slots, &s->small_pool));
	TRY(slot_pool_create(OSSD_SLOT_SIZE, s->p->merge_slots, &s->merge_pool));
	s->zero = slot_try_get(s->read_pool);
	return s->zero ? 0 : -LE_NOMEM;
}

/* Returns the leased session; unchanged if there is none. */
static int get_leased(struct chunk_store *s, uint64_t *ret_session)
{
	struct kv_value v;
	struct wire_r r;
	int rc = kv_get(s->kv, LEASED_KEY, LEASED_KEY_SIZE, &v);

	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_u64(&r, ret_session);
	kv_value_fini(&v);
	return r.status < 0 ? -LE_CORRUPT_STORE : 0;
}

/* Reads what the previous process left. If it was closed in order, no session is awaited, and the
 * row that records that is deleted. */
static int begin_use(struct chunk_store *s)
{
	struct kv_batch *b;
	struct kv_value v;
	int rc;

	TRY(get_leased(s, &s->leased));
	s->leased_before = s->leased;
	s->leased_until_us = env_now_us(s->env) + CHUNK_LEASE_MS * 1000u;
	rc = kv_get(s->kv, ENDED_KEY, ENDED_KEY_SIZE, &v);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	kv_value_fini(&v);
	writer_sessions_all_returned(&s->writers);
	b = kv_batch_create();
	if (!b)
		return -LE_NOMEM;
	kv_batch_delete(b, ENDED_KEY, ENDED_KEY_SIZE);
	rc = kv_commit(s->kv, b, s->p->sync);
	kv_batch_destroy(b);
	return rc;
}

static int open_files(struct chunk_store *s)
{
	struct kv_options ko = {
		.cache_size = s->p->kv_cache_size,
		.write_buffer_size = s->p->kv_write_buffer_size,
		.no_sync = !s->p->sync,
	};
	char path[STORE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/index", s->p->data_dir);
	TRY(kv_open(s->env, path, &ko, &s->kv));
	TRY(load_super(s));
	snprintf(path, sizeof(path), "%s/data", s->p->data_dir);
	TRY(data_file_open(s->env, path, s->super.capacity, &s->super.uuid, &s->data));
	TRY(space_init(&s->space, s->data.capacity / UNIT_SIZE, s->data.size / UNIT_SIZE,
		       s->p->reserve, s->p->grant_max));
	if (s->data.device)
		TRY(extent_take(&s->space.alloc, 0, DATA_LABEL_UNITS));
	TRY(store_load_index(s));
	return begin_use(s);
}

static void store_free(struct chunk_store *s)
{
	slot_unref(s->zero);
	if (s->read_pool)
		slot_pool_destroy(s->read_pool);
	if (s->small_pool)
		slot_pool_destroy(s->small_pool);
	if (s->merge_pool)
		slot_pool_destroy(s->merge_pool);
	if (s->space.ring)
		space_fini(&s->space);
	chunk_cache_fini(&s->cache);
	replay_fini(&s->replay);
	writer_sessions_fini(&s->writers);
	inventory_fini(&s->inventory);
	data_file_close(&s->data);
	if (s->kv)
		kv_close(s->kv);
	free(s);
}

int chunk_store_open(struct env *env, const struct ossd_params *p, struct ossd_metrics *m,
		     struct chunk_store **ret_store)
{
	struct chunk_store *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -LE_NOMEM;
	s->magic = CHUNK_STORE_MAGIC;
	s->env = env;
	s->p = p;
	s->metrics = m;
	chunk_cache_init(&s->cache, p->cache_size);
	replay_init(&s->replay, p->replay_rows_max);
	writer_sessions_init(&s->writers);
	inventory_init(&s->inventory);
	fmutex_init(&s->many_slots);
	fmutex_init(&s->leasing);
	latch_init(&s->fibers, 0);
	rc = open_pools(s);
	if (rc == 0)
		rc = open_files(s);
	if (rc == 0)
		rc = start_fibers(s);
	if (rc < 0) {
		store_free(s);
		return rc;
	}
	s->last_write_us = env_now_us(env);
	chunk_store_gauges(s);
	*ret_store = s;
	return 0;
}

/* Writes the row that records that every visible change is durable, unless changes lost by an
 * earlier process are still to be repeated. Without the row the next start takes longer. */
static void end_use(struct chunk_store *s)
{
	struct kv_batch *b;

	if (chunk_store_status(s) < 0 || s->writers.n_awaited)
		return;
	b = kv_batch_create();
	if (!b)
		return;
	kv_batch_put(b, ENDED_KEY, ENDED_KEY_SIZE, "", 0);
	if (env_now_us(s->env) >= s->leased_until_us)
		kv_batch_delete(b, LEASED_KEY, LEASED_KEY_SIZE);
	if (kv_commit(s->kv, b, s->p->sync) < 0)
		log_warn("target %u: cannot record that the store was closed in order: the next "
			 "start takes longer", s->super.target);
	kv_batch_destroy(b);
}

void chunk_store_close(struct chunk_store *s)
{
	s->stopping = true;
	latch_wait(&s->fibers);
	group_commit_stop(&s->gc);
	end_use(s);
	store_free(s);
}

int chunk_store_set_owner(struct chunk_store *s, const struct uuid *cluster, uint32_t target)
{
	struct store_super super = s->super;
	uint8_t buf[SUPER_MAX];
	struct wire_w w;
	uint64_t group;

	TRY(chunk_store_status(s));
	super.cluster = *cluster;
	super.target = target;
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_store_super(&w, &super);
	kv_batch_put(group_commit_batch(&s->gc), SUPER_KEY, SUPER_KEY_SIZE, buf, w.len);
	group = group_commit_join(&s->gc, NULL, false);
	TRY(group_commit_wait(&s->gc, group));
	s->super = super;
	return 0;
}

static int put_leased(struct chunk_store *s, uint64_t session)
{
	struct group_commit *g = &s->gc;
	uint8_t buf[8];
	struct wire_w w;

	TRY(chunk_store_status(s));
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u64(&w, &session);
	kv_batch_put(group_commit_batch(g), LEASED_KEY, LEASED_KEY_SIZE, buf, w.len);
	TRY(group_commit_wait(g, group_commit_join(g, NULL, false)));
	s->leased = session;
	return 0;
}

int chunk_store_leased(struct chunk_store *s, uint64_t session, uint64_t until_us)
{
	int rc = 0;

	s->leased_until_us = until_us;
	if (s->leased == session || s->leased == LEASED_MANY)
		return 0;
	fmutex_lock(&s->leasing);
	if (s->leased != session && s->leased != LEASED_MANY)
		rc = put_leased(s, s->leased == 0 ? session : LEASED_MANY);
	fmutex_unlock(&s->leasing);
	return rc;
}

void chunk_store_gauges(struct chunk_store *s)
{
	struct ossd_metrics *m = s->metrics;

	metric_set(&m->cache_bytes, s->cache.bytes);
	metric_set(&m->capacity_bytes, space_total(&s->space));
	metric_set(&m->used_bytes, space_used(&s->space));
	metric_set(&m->free_bytes, space_usable(&s->space));
	metric_set(&m->granted_bytes, s->space.granted);
	metric_set(&m->zeroed_bytes, s->data.size);
}
