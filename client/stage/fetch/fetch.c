/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a chunk arrives:
 *   1. part_settle examines every file: a chunk that has its bit is done.
 *   2. Fibers process chunks in the order of the plan. If the part file existed before, its bytes
 *      are verified and kept if right. Otherwise the chunk comes from another node or from the
 *      source, unless its checksums say that it is all zeros. It is verified block by block, and
 *      written except for blocks of zeros.
 *   3. Checkpoints make it durable. A failure stops all fibers after their present chunk; a last
 *      checkpoint keeps what was verified.
 * A chunk that another node requests (fetch_give) is read from the disk, or fetched immediately,
 * ahead of the plan. One fiber at a time claims a chunk.
 */
#include "client/stage/fetch/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/fetch/fetch_impl.h"
#include "client/stage/fetch/fetch_part.h"
#include "common/base/assert.h"
#include "common/base/planted_bug.h"
#include "common/base/rate_limit.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define SLOT_WAIT_US 2000000u

/* ---- chunks ---- */

static void chunk_verified(struct part *p, uint64_t index, uint32_t len)
{
	struct fetch *ft = p->fetch;
	struct work *w = &ft->work[p->index];
	ASSERT(w->missing > 0 && !bit_get(ft->done, p->f->first_chunk + index));
	bit_set(p->fresh, index);
	bit_set(ft->done, p->f->first_chunk + index);
	ft->fresh_bytes += len;
	ft->report.bytes_verified += len;
	if (--w->missing == 0) {
		p->complete = true;
		vol_close(p->source);
		p->source = NULL;
	}
	waitq_wake_all(&ft->arrived);
	fetch_tell(ft);
}

/* Returns the source's file, and opens it on the first call. */
static int source_file(struct part *p, struct vol_file **ret_file)
{
	char path[STORE_PATH_SIZE];
	int rc = 0;
	fmutex_lock(&p->lock);
	if (!p->source) {
		int n = p->f->from ? snprintf(path, sizeof(path), "%s", p->f->from)
				   : snprintf(path, sizeof(path), "%s/%s",
					      p->fetch->o.source_dir, p->f->path);
		rc = n >= (int)sizeof(path)
			     ? -LE_NAMETOOLONG
			     : vol_open_for_parts(p->fetch->o.source, path, &p->source);
	}
	fmutex_unlock(&p->lock);
	*ret_file = p->source;
	return rc;
}

/* Says why bytes do not match: -LE_STALE if the source's file has changed, else -LE_CORRUPT. */
static int why_mismatch(struct part *p)
{
	char path[STORE_PATH_SIZE];
	struct vol_stat st;
	struct fetch *ft = p->fetch;
	snprintf(path, sizeof(path), "%.2000s/%.2000s", ft->o.source_dir, p->f->path);
	int rc = vol_stat(ft->o.source, path, &st);
	return rc < 0 || st.size != p->f->size || st.mtime_ns != p->f->mtime_ns ? -LE_STALE
										: -LE_CORRUPT;
}

static const char source_changed[] = "the source has changed since its manifest was made";

/* Reads from the source and verifies. *ret_off: the offset of the wrong block. */
static int read_source(struct part *p, uint64_t off, uint32_t len, struct slot *s,
		       uint64_t *ret_off, const char **ret_what)
{
	struct fetch *ft = p->fetch;
	struct vol_file *source;
	*ret_off = off;
	*ret_what = "cannot read the source";
	uint64_t begin_us = loop_now_us();
	uint64_t wait_us = rate_limit_charge(ft->o.throttle, len, begin_us);
	(void)fiber_sleep_unless(wait_us, ft->o.cancel);
	int rc = source_file(p, &source);
	if (rc == -LE_STALE)
		*ret_what = source_changed;
	if (rc == 0)
		rc = vol_pread_all(source, s->data, len, off);
	if (rc < 0)
		return rc == -LE_NODATA ? -LE_STALE : rc;
	ft->report.bytes_source += len;
	ft->report.source_us += (loop_now_us() - begin_us) / 8 - ft->report.source_us / 8;
	int64_t bad = manifest_check(ft->o.manifest, p->f, off, s->data, len);
	if (bad < 0)
		return 0;
	*ret_off = (uint64_t)bad * p->f->block;
	rc = why_mismatch(p);
	*ret_what = rc == -LE_STALE ? source_changed : "the source is damaged";
	return rc;
}

static bool ask_peers(struct fetch *ft, uint64_t chunk, uint32_t len, struct slot *s,
		      enum fetch_ask ask)
{
	if (!ft->o.from_peer || ft->o.from_peer(ft->o.arg, chunk, s, ask) < 0)
		return false;
	ft->report.bytes_peers += len;
	return true;
}

static int obtain(struct part *p, uint64_t chunk, struct slot *s, bool demand)
{
	struct fetch *ft = p->fetch;
	uint64_t off = (chunk - p->f->first_chunk) * MANIFEST_CHUNK, bad;
	uint32_t len = manifest_chunk_len(p->f, chunk - p->f->first_chunk);
	const char *what;
	if (ask_peers(ft, chunk, len, s, demand ? ASK_READY : ASK_OWNER))
		return 0;
	if (!ft->o.source)
		return -LE_NOENT;
	int rc = read_source(p, off, len, s, &bad, &what);
	if (rc == 0 || (!demand && ask_peers(ft, chunk, len, s, ASK_ALL)))
		return 0;
	if (!demand)
		fetch_fail_source(ft, rc, p->f, bad, what);
	return rc;
}

/* Fetches a chunk that the caller has claimed. Unless on demand, a failure ends the run. */
static int fetch_chunk(struct part *p, uint64_t chunk, struct slot *s, bool demand)
{
	struct fetch *ft = p->fetch;
	uint64_t index = chunk - p->f->first_chunk, off = index * MANIFEST_CHUNK;
	uint32_t len = manifest_chunk_len(p->f, index);
	if (ft->work[p->index].existed && env_file_pread(p->file, s->data, len, off) == 0 &&
	    manifest_check(ft->o.manifest, p->f, off, s->data, len) < 0) {
		chunk_verified(p, index, len);
		return 0;
	}
	bool zeros;
	if (manifest_run(ft->o.manifest, p->f, off, off + len, &zeros) != len || !zeros)
		TRY(obtain(p, chunk, s, demand));
	else if (demand || ft->work[p->index].existed)
		memset(s->data, 0, len);
	int rc = part_write(p, s->data, len, off);
	if (rc < 0)
		fetch_fail_local(ft, rc, p->f->path, "cannot write the copy");
	else
		chunk_verified(p, index, len);
	return rc;
}

static int fetch_claimed(struct fetch *ft, uint64_t chunk, struct slot *s, bool demand)
{
	ASSERT(bit_get(ft->claimed, chunk) && !bit_get(ft->done, chunk));
	struct part *p = part_get(ft, manifest_file_of_chunk(ft->o.manifest, chunk));
	int rc = ft->rc;
	if (p) {
		rc = fetch_chunk(p, chunk, s, demand);
		part_put(p);
	}
	ft->claimed[chunk / 8] &= (uint8_t) ~(1u << chunk % 8);
	waitq_wake_all(&ft->arrived);
	return rc;
}

/* Without a plan each node begins at another chunk, first within the window, then in the rest. */
static uint64_t chunk_at(const struct fetch *ft, uint64_t at)
{
	uint64_t n = ft->o.n_window < ft->n_plan ? ft->o.n_window : ft->n_plan, from = 0;
	if (ft->o.plan)
		return ft->o.plan[at];
	if (at >= n) {
		from = n;
		n = ft->n_plan - n;
	}
	return from + (at - from + (uint64_t)(((__uint128_t)n * ft->o.turn) >> 32)) % n;
}

static bool is_left_out(const struct fetch *ft, uint64_t chunk)
{
	return ft->o.store->share &&
	       ft->work[manifest_file_of_chunk(ft->o.manifest, chunk)].left_out;
}

static bool begin_turn(struct fetch *ft)
{
	while (ft->n_active >= ft->width && !fetch_stopped(ft)) {
		int rc = waitq_wait(&ft->arrived, NO_DEADLINE);
		(void)rc;
	}
	ft->n_active++;
	return !fetch_stopped(ft);
}

static void end_turn(struct fetch *ft, uint64_t begin_us)
{
	uint64_t now = loop_now_us(), took_us = now - begin_us;
	ASSERT(ft->n_active > 0);
	ft->n_active--;
	if (!ft->o.from_peer)
		return;
	if (took_us < QUICK_US && ft->width < FETCH_WIDTH_PEERS) {
		ft->width++;
	} else if (took_us > SLOW_US && begin_us > ft->narrowed_us && ft->width > 2) {
		/* Reduce only once for all chunks that were in flight together. */
		ft->width -= (ft->width + 3) / 4;
		ft->narrowed_us = now;
	}
	waitq_wake_all(&ft->arrived);
}

/* Fetches the chunk, unless it is done. */
static void fetch_next(struct fetch *ft, uint64_t chunk, struct slot *s)
{
	/* Another fiber fetches it on demand. If that fails, the run itself must still fetch it. */
	while (bit_get(ft->claimed, chunk) && !fetch_stopped(ft)) {
		int rc = waitq_wait(&ft->arrived, NO_DEADLINE);
		(void)rc;
	}
	if (bit_get(ft->done, chunk) || fetch_stopped(ft))
		return;
	bit_set(ft->claimed, chunk);
	int rc = fetch_claimed(ft, chunk, s, false);
	(void)rc; /* fetch_fail has recorded the failure */
}

static void fetch_chunks(void *arg)
{
	struct fetch *ft = *(struct fetch **)arg;
	while (ft->next < ft->n_plan && !fetch_stopped(ft)) {
		uint64_t chunk = chunk_at(ft, ft->next++);
		struct slot *s;
		if (bit_get(ft->done, chunk) || is_left_out(ft, chunk) ||
		    PLANTED_BUG(STAGE_SKIP_CHUNKS))
			continue;
		bool go = begin_turn(ft);
		uint64_t begin_us = loop_now_us();
		int rc = go ? slot_get(ft->pool, NO_DEADLINE, &s) : 0;
		if (rc < 0)
			fetch_fail_local(ft, rc, ft->o.store->dir, "no buffer");
		if (go && rc == 0) {
			fetch_next(ft, chunk, s);
			slot_unref(s);
		}
		end_turn(ft, begin_us);
		if (go && rc == 0)
			checkpoint_if_due(ft);
	}
}

/* ---- for other nodes ---- */

static int read_own(struct fetch *ft, uint64_t chunk, struct slot *s)
{
	const struct manifest *m = ft->o.manifest;
	uint32_t file = manifest_file_of_chunk(m, chunk);
	const struct manifest_file *f = &m->files[file];
	uint64_t index = chunk - f->first_chunk;
	struct part *p = ft->work[file].part;
	if (p && p->file) {
		p->refs++;
		int rc = env_file_pread(p->file, s->data, manifest_chunk_len(f, index),
					index * MANIFEST_CHUNK);
		part_put(p);
		return rc;
	}
	return store_read_chunk(ft->o.store, m, chunk, s->data);
}

/* Returns 0 with the bytes in the slot; -LE_INTR: the caller is to check the chunk's state
 * again. */
static int fetch_on_demand(struct fetch *ft, uint64_t chunk, struct slot *s)
{
	/* slot_get has yielded, so check again. */
	if (bit_get(ft->done, chunk))
		return read_own(ft, chunk, s);
	if (bit_get(ft->claimed, chunk) || ft->over || fetch_stopped(ft))
		return -LE_INTR;
	bit_set(ft->claimed, chunk);
	return fetch_claimed(ft, chunk, s, true);
}

static int give(struct fetch *ft, uint64_t chunk, enum fetch_give_how how, uint64_t deadline_us,
		struct slot_pool *pool, struct slot **ret_slot)
{
	while (!ft->over && !fetch_stopped(ft)) {
		bool claimed = bit_get(ft->claimed, chunk);
		if (!ft->preallocated && !bit_get(ft->done, chunk))
			return -LE_NOT_READY;
		if (bit_get(ft->done, chunk) || (how == GIVE_DEMAND && !claimed)) {
			struct slot *s;
			/* No fiber holds a slot for long while it does not wait for this chunk. */
			TRY(slot_get(pool, loop_now_us() + SLOT_WAIT_US, &s));
			int rc = fetch_on_demand(ft, chunk, s);
			if (rc == 0) {
				*ret_slot = s;
				return 0;
			}
			slot_unref(s);
			if (rc != -LE_INTR)
				return rc;
			continue;
		}
		if (how == GIVE_PRESENT || (how == GIVE_COMING && !claimed))
			return -LE_AGAIN;
		TRY(waitq_wait(&ft->arrived, deadline_us));
	}
	return -LE_AGAIN;
}

int fetch_give(struct fetch *ft, uint64_t chunk, enum fetch_give_how how, uint64_t deadline_us,
	       struct slot_pool *pool, struct slot **ret_slot)
{
	if (chunk >= ft->o.manifest->n_chunks)
		return -LE_INVAL;
	if (is_left_out(ft, chunk))
		return -LE_AGAIN;
	ft->n_givers++;
	int rc = give(ft, chunk, how, deadline_us, pool, ret_slot);
	ft->n_givers--;
	waitq_wake_all(&ft->arrived);
	return rc;
}

/* ---- a run ---- */

static void settle_files(void *arg)
{
	struct fetch *ft = *(struct fetch **)arg;
	while (ft->next_file < ft->o.manifest->n_files && !fetch_stopped(ft))
		part_settle(ft, ft->next_file++);
}

static int mark_window(struct fetch *ft)
{
	uint64_t n = ft->o.n_window < ft->n_plan ? ft->o.n_window : ft->n_plan;
	if (n == 0)
		return 0;
	ft->in_window = calloc(1, ft->o.manifest->n_chunks / 8 + 1);
	if (!ft->in_window)
		return -LE_NOMEM;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t chunk = ft->o.plan ? ft->o.plan[i] : i;
		if (is_left_out(ft, chunk))
			continue;
		bit_set(ft->in_window, chunk);
		ft->window_left += !store_has_chunk(ft->o.store, chunk);
	}
	if (ft->window_left == 0 && ft->o.window)
		ft->o.window(ft->o.arg);
	return 0;
}

int fetch_create(const struct fetch_options *opts, struct detail *d, struct fetch **ret_fetch)
{
	const struct manifest *m = opts->manifest;
	struct fetch *ft = calloc(1, sizeof(*ft));
	if (!ft)
		return -LE_NOMEM;
	ft->o = *opts;
	ft->d = d;
	ft->code = LEAT_STAGE_INTERNAL;
	ft->n_plan = opts->plan ? opts->n_plan : m->n_chunks;
	list_init(&ft->parts);
	fmutex_init(&ft->checkpoint_lock);
	waitq_init(&ft->arrived);
	ft->pool = opts->pool;
	ft->work = calloc((size_t)m->n_files + 1, sizeof(*ft->work));
	ft->claimed = calloc(1, m->n_chunks / 8 + 1);
	ft->done = calloc(1, m->n_chunks / 8 + 1);
	int rc = ft->work && ft->claimed && ft->done ? 0 : -LE_NOMEM;
	if (rc == 0 && !ft->pool) {
		rc = slot_pool_create(MANIFEST_CHUNK, BUFFERS, &ft->pool);
		ft->own_pool = rc == 0;
		/* If the pool cannot be registered, the transport logs that and copies the
		 * bytes. */
		if (rc == 0 && opts->transport)
			(void)!opts->transport->ops->add_pool(opts->transport, ft->pool,
							      POOL_REMOTE);
	}
	if (rc < 0)
		fetch_destroy(ft);
	else
		*ret_fetch = ft;
	return rc;
}

void fetch_destroy(struct fetch *ft)
{
	if (!ft)
		return;
	ft->over = true;
	waitq_wake_all(&ft->arrived);
	while (ft->n_givers > 0) {
		int rc = waitq_wait(&ft->arrived, NO_DEADLINE);
		(void)rc;
	}
	if (ft->own_pool)
		slot_pool_destroy(ft->pool);
	ASSERT(ft->n_parts == 0 && ft->n_active == 0);
	free(ft->work);
	free(ft->claimed);
	free(ft->done);
	free(ft->in_window);
	free(ft);
}

int fetch_run(struct fetch *ft, struct fetch_report *ret_report, int *ret_code)
{
	ft->checkpoint_us = loop_now_us() + 1000000;
	fetch_run_wide(ft, "settle_files", settle_files, FILES_WIDTH);
	int rc = ft->rc == 0 ? mark_window(ft) : 0;
	if (rc < 0)
		fetch_fail_local(ft, rc, ft->o.store->dir, "no memory");
	ft->preallocated = true;
	waitq_wake_all(&ft->arrived);
	ft->width = ft->o.from_peer ? FETCH_WIDTH_FIRST : FETCH_WIDTH;
	fetch_run_wide(ft, "fetch_chunks", fetch_chunks,
		 ft->o.from_peer ? FETCH_WIDTH_PEERS : FETCH_WIDTH);
	/* Chunks fetched on demand for other nodes belong to the copy too. */
	while (ft->n_givers > 0 && ft->rc != 0) {
		rc = waitq_wait(&ft->arrived, NO_DEADLINE);
		(void)rc;
	}
	checkpoint_rest(ft);
	if (!fetch_stopped(ft)) {
		rc = parts_sync_dirs(ft);
		if (rc < 0)
			fetch_fail_local(ft, rc, ft->o.store->dir, "cannot sync the copy");
	}
	for (uint32_t i = 0; i < ft->o.manifest->n_files && ft->rc == 0; i++)
		ASSERT(ft->work[i].missing == 0);
	*ret_code = ft->rc == 0 ? LEAT_STAGE_DONE : ft->code;
	*ret_report = ft->report;
	return ft->rc;
}
