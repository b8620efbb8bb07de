/* SPDX-License-Identifier: Apache-2.0 */
/* The user's side of a loader: open, next, close. */
#include "client/loader/batch/loader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/loader/batch/batch_plan.h"
#include "client/loader/batch/decode.h"
#include "client/loader/batch/loader_fill.h"
#include "client/loader/gpu/cuda.h"
#include "client/loader/gpu/device.h"
#include "client/loader/gpu/gds.h"
#include "client/loader/source/dataset_facts.h"
#include "client/loader/source/last_error.h"
#include "common/base/assert.h"

#define TICK_NS 10000000 /* poll interval of a wait */

static uint64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- open ---- */

static int take_order(struct leat_loader *ld, const struct leat_loader_options *o)
{
	struct order_deal *d = &ld->deal;
	if (order_mode_parse(o->order ? o->order : "global", &ld->mode, &ld->window) < 0)
		return error_say(-LE_INVAL,
				 "order is global, window, window:N, sequential or file, not %s",
				 o->order);
	if (order_tail_parse(o->tail ? o->tail : "drop", &d->tail) < 0)
		return error_say(-LE_INVAL, "tail is drop, pad or shorter, not %s", o->tail);
	d->n = ld->ds->of.n;
	d->batch = o->batch;
	d->world = o->world ? o->world : 1;
	if (d->batch == 0 || d->batch > ORDER_BATCH_MAX || d->batch % d->world != 0 ||
	    o->rank >= d->world)
		return error_say(-LE_INVAL,
				 "batch %u (of all ranks together) must be a multiple of world %u, "
				 "and rank %u "
				 "below it",
				 o->batch, d->world, o->rank);
	if (d->batch / d->world > BATCH_SAMPLES_MAX)
		return error_say(-LE_INVAL, "at most %u samples per rank and batch",
				 BATCH_SAMPLES_MAX);
	if (o->phase && o->phase >= o->stride)
		return error_say(-LE_INVAL, "phase %u must be below stride %u", o->phase,
				 o->stride);
	ld->stride = o->stride ? o->stride : 1;
	ld->phase = o->phase;
	ld->rank = o->rank;
	ld->world = d->world;
	ld->seed = o->seed;
	ld->steps = order_steps(d);
	if (ld->window == 0)
		ld->window =
			order_default_window(ld->ds->x->n_samples, ld->ds->x->n_files, d->batch);
	int rc = sequence_init(&ld->order, &ld->ds->of, ld->mode, ld->window, ld->seed);
	return rc < 0 ? error_say(rc, "order: %s", status_text(rc)) : 0;
}

static int open_cache(struct leat_loader *ld, const struct leat_loader_options *o)
{
	struct cache_options co = {.ds = ld->ds,
				   .dir = o->cache_dir,
				   .bytes = o->cache_bytes,
				   .local_ranks = o->cache_ranks ? o->cache_ranks : 1,
				   .rank = ld->rank,
				   .stride = ld->stride,
				   .phase = ld->phase,
				   .depth = ld->n_slots,
				   .deal = ld->deal,
				   .mode = ld->mode,
				   .window = ld->window,
				   .seed = ld->seed,
				   .epoch = ld->first_epoch};
	if (!o->cache_dir)
		return 0;
	if (o->cache_bytes == 0 || ld->world % co.local_ranks != 0)
		return error_say(-LE_INVAL,
				 "a cache needs cache_bytes, and cache_ranks (%u) must divide "
				 "world %u",
				 co.local_ranks, ld->world);
	if (dataset_is_near(ld->ds))
		return 0;
	struct detail *d = calloc(1, sizeof(*d));
	int rc = d ? cache_open(&co, &ld->cache, d) : -LE_NOMEM;
	if (rc < 0)
		rc = d ? error_set(rc, d) : error_say(rc, "out of memory");
	free(d);
	return rc;
}

static int make_slots(struct leat_loader *ld)
{
	ld->slots = calloc(ld->n_slots, sizeof(*ld->slots));
	if (!ld->slots)
		return error_say(-LE_NOMEM, "out of memory");
	for (uint32_t i = 0; i < ld->n_slots; i++)
		ld->slots[i].fd = -1;
	for (uint32_t i = 0; i < ld->n_slots; i++) {
		if (batch_init(&ld->slots[i], ld->ds, &ld->set, ld->deal.batch / ld->world) < 0)
			return error_say(-LE_NOMEM, "out of memory");
		ld->slots[i].ld = ld;
		if (device_add_slot(&ld->slots[i]) < 0)
			return error_say(-LE_NOMEM, "out of memory");
		ld->slots[i].cache = ld->cache;
		ld->slots[i].decoders = ld->decoders;
	}
	return 0;
}

static void init_sync(struct leat_loader *ld)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&ld->lock, NULL);
	pthread_cond_init(&ld->changed, &attr);
	pthread_condattr_destroy(&attr);
}

static int open_loader(struct leat_loader *ld, const struct leat_loader_options *o)
{
	TRY(dataset_check_pid(ld->ds));
	TRY(field_set_init(&ld->set, ld->ds, o->fields));
	TRY(take_order(ld, o));
	ld->n_slots = o->depth ? o->depth : LOADER_DEPTH_AUTO;
	ld->auto_depth = o->depth == 0;
	if (ld->n_slots < 2 || ld->n_slots > LOADER_DEPTH_MAX)
		return error_say(-LE_INVAL, "depth is 2 to %u", LOADER_DEPTH_MAX);
	ld->memory_limit = o->memory_limit ? o->memory_limit : LOADER_MEMORY_DEFAULT;
	ld->on_error = o->on_error;
	ld->epochs = o->epochs;
	ld->first_epoch = ld->issue_epoch = ld->want_epoch = o->epoch;
	ld->issue_step = ld->want_step = ld->phase;
	TRY(device_open(ld, o));
	TRY(open_cache(ld, o));
	TRY(decode_open(o, ld->ds, &ld->set, &ld->decoders));
	TRY(make_slots(ld));
	ld->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (ld->event_fd < 0)
		return error_say(status_from_errno(errno), "eventfd: %s", strerror(errno));
	ld->n_fillers = ld->ds->n_readers;
	ld->ahead = ld->auto_depth ? ld->n_fillers + 1 : ld->n_slots;
	loader_update_event(ld);
	int rc = loader_start(ld);
	return rc < 0 ? error_say(rc, "cannot start: %s", status_text(rc)) : 0;
}

int leat_loader_open(struct leat_dataset *ds, const struct leat_loader_options *opts,
		     struct leat_loader **ret_loader)
{
	struct leat_loader_options o = {0};
	memcpy(&o, opts, opts->size < sizeof(o) ? opts->size : sizeof(o));
	struct leat_loader *ld = calloc(1, sizeof(*ld));
	if (!ld)
		return error_say(-LE_NOMEM, "out of memory");
	ld->magic = LOADER_MAGIC;
	ld->refs = 1;
	ld->ds = ds;
	ld->event_fd = -1;
	dataset_use(ds);
	dataset_ref(ds); /* until the last batch is released */
	init_sync(ld);
	int rc = open_loader(ld, &o);
	if (rc < 0) {
		leat_loader_close(ld);
		return rc;
	}
	*ret_loader = ld;
	return 0;
}

static void loader_unref(struct leat_loader *ld)
{
	uint64_t mapped = 0;
	uint32_t refs = atomic_fetch_sub(&ld->refs, 1);
	ASSERT(refs > 0);
	if (refs != 1)
		return;
	for (uint32_t i = 0; ld->slots && i < ld->n_slots; i++) {
		ASSERT(ld->slots[i].state != BATCH_HELD);
		mapped += ld->slots[i].mapped;
		batch_fini(&ld->slots[i]);
	}
	ASSERT(mapped == ld->memory);
	free(ld->slots);
	cuda_close(ld->device);
	gds_close(ld->gds);
	sequence_fini(&ld->order);
	if (ld->event_fd >= 0)
		close(ld->event_fd);
	pthread_mutex_destroy(&ld->lock);
	pthread_cond_destroy(&ld->changed);
	dataset_unref(ld->ds);
	ld->magic = 0;
	field_set_fini(&ld->set);
	free(ld);
}

static void finish_close(struct leat_loader *ld)
{
	struct leat_dataset *ds = ld->ds;
	loader_stop(ld);
	pthread_mutex_lock(&ld->lock);
	struct cache *cache = ld->cache;
	ld->cache = NULL;
	pthread_mutex_unlock(&ld->lock);
	cache_close(cache);
	decode_close(ld->decoders);
	loader_unref(ld);
	dataset_unuse(ds);
}

static void *close_later(void *arg)
{
	finish_close(CAST_OBJ(arg, struct leat_loader, LOADER_MAGIC));
	return NULL;
}

void leat_loader_close(struct leat_loader *ld)
{
	pthread_t t;
	/* A forked child has none of its threads; the memory is freed when the process ends. */
	if (!ld || getpid() != ld->ds->pid)
		return;
	if (ld->decoders)
		decode_stop(ld->decoders);
	/* A decoder that does not return keeps loader and data set; a thread waits for it. */
	if (ld->decoders && !decode_wait_idle(ld->decoders) &&
	    pthread_create(&t, NULL, close_later, ld) == 0) {
		pthread_detach(t);
		return;
	}
	finish_close(ld);
}

uint64_t leat_loader_steps(const struct leat_loader *ld)
{
	return ld->steps;
}

int leat_loader_event_fd(const struct leat_loader *ld)
{
	return ld->event_fd;
}

/* ---- next ---- */

static enum leat_stall cause(struct leat_loader *ld)
{
	const struct leat_batch *b = loader_wanted(ld);
	if (!b || b->state == BATCH_PLANNED) {
		for (uint32_t i = 0; i < ld->n_slots; i++) {
			if (ld->slots[i].state == BATCH_HELD)
				return LEAT_STALL_CONSUMER;
		}
		return LEAT_STALL_START;
	}
	if (b->phase == PHASE_VERIFY)
		return LEAT_STALL_VERIFY;
	if (b->phase == PHASE_DECODE)
		return LEAT_STALL_DECODE;
	if (b->phase == PHASE_PEER)
		return LEAT_STALL_PEER;
	return dataset_is_remote(ld->ds) ? LEAT_STALL_SERVER : LEAT_STALL_LOCAL;
}

/* Waits one tick or less and accounts for the time. */
static void wait_tick(struct leat_loader *ld)
{
	struct timespec t;
	enum leat_stall why = cause(ld);
	uint64_t from = now_us();
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += TICK_NS;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	pthread_cond_timedwait(&ld->changed, &ld->lock, &t);
	ld->m.stall_us[why] += now_us() - from;
}

static void end_of_epoch(struct leat_loader *ld)
{
	ld->want_epoch++;
	ld->want_step = ld->phase;
	loader_update_event(ld);
	loader_wake(ld);
}

static int hand_out(struct leat_loader *ld, struct leat_batch *b, struct leat_batch **ret_batch)
{
	ASSERT(b->refs == 0);
	batch_move(b, BATCH_HELD);
	b->refs = 1;
	atomic_fetch_add(&ld->refs, 1);
	ld->want_step += ld->stride;
	ld->m.batches++;
	ld->m.samples += b->n;
	ld->m.skipped += b->n_skipped;
	loader_update_event(ld);
	loader_wake(ld);
	*ret_batch = b;
	return 1;
}

/* With the lock. The next call tries this step again. */
static int hand_error(struct leat_loader *ld, struct leat_batch *b)
{
	int rc = error_set(b->rc, &b->d);
	loader_jump(ld, ld->want_epoch, ld->want_step);
	return rc;
}

static int next_locked(struct leat_loader *ld, uint64_t until_us, struct leat_batch **ret_batch)
{
	for (;;) {
		if (loader_at_end(ld))
			return 0;
		if (ld->want_step >= ld->steps) {
			end_of_epoch(ld);
			return 0;
		}
		struct leat_batch *b = loader_wanted(ld);
		if (b && b->state == BATCH_READY)
			return hand_out(ld, b, ret_batch);
		if (b && b->state == BATCH_ERROR)
			return hand_error(ld, b);
		if (loader_is_held(ld))
			return error_say(-LE_BUSY,
					 "the caller holds all batches that fit: release some, or "
					 "raise depth (%u) or memory_limit (%llu)",
					 ld->n_slots, (unsigned long long)ld->memory_limit);
		if (b && b->state == BATCH_FILL && b->phase == PHASE_DECODE &&
		    decode_is_late(ld->decoders))
			return -LE_BUSY;
		if (until_us == 0)
			return error_say(-LE_AGAIN, "no batch is ready");
		if (now_us() >= until_us)
			return error_say(-LE_TIMEDOUT, "no batch was ready in time");
		wait_tick(ld);
	}
}

static void account_wait(struct leat_loader *ld, uint64_t us)
{
	uint32_t bucket = 0;
	while (bucket + 1 < LEAT_WAIT_BUCKETS && us >> bucket)
		bucket++;
	ld->m.wait_us += us;
	ld->m.wait_histogram[bucket]++;
}

static int next(struct leat_loader *ld, uint64_t timeout_us, struct leat_batch **ret_batch)
{
	TRY(dataset_check_pid(ld->ds));
	uint64_t from = now_us();
	uint64_t until = timeout_us == UINT64_MAX ? UINT64_MAX : timeout_us ? from + timeout_us : 0;
	pthread_mutex_lock(&ld->lock);
	if (ld->returned_us) {
		uint64_t busy = from - ld->returned_us;
		ld->m.busy_us += busy;
		ld->busy_us += busy;
	}
	int rc = next_locked(ld, until, ret_batch);
	ld->returned_us = now_us();
	if (rc == 1) {
		account_wait(ld, ld->returned_us - from);
		ld->step_us = (7 * ld->step_us + ld->busy_us) / 8;
		ld->busy_us = 0;
	} else {
		ld->m.wait_us += ld->returned_us - from;
	}
	pthread_mutex_unlock(&ld->lock);
	return rc;
}

int leat_next(struct leat_loader *ld, struct leat_batch **ret_batch)
{
	return next(ld, UINT64_MAX, ret_batch);
}

int leat_try_next(struct leat_loader *ld, struct leat_batch **ret_batch)
{
	return next(ld, 0, ret_batch);
}

int leat_next_within(struct leat_loader *ld, uint32_t timeout_ms, struct leat_batch **ret_batch)
{
	return next(ld, timeout_ms ? (uint64_t)timeout_ms * 1000 : 1, ret_batch);
}

/* ---- batches ---- */

void leat_batch_ref(struct leat_batch *b)
{
	uint32_t refs = atomic_fetch_add(&b->refs, 1);
	ASSERT(b->magic == BATCH_MAGIC && refs > 0);
}

void leat_batch_unref(struct leat_batch *b)
{
	if (!b)
		return;
	ASSERT(b->magic == BATCH_MAGIC);
	uint32_t refs = atomic_fetch_sub(&b->refs, 1);
	ASSERT(refs > 0);
	if (refs != 1 || getpid() != b->ds->pid)
		return;
	struct leat_loader *ld = b->ld;
	if (!ld) {
		struct leat_dataset *ds = b->ds;
		batch_fini(b);
		free(b);
		dataset_unref(ds);
		return;
	}
	cuda_slot_release(b->cuda);
	pthread_mutex_lock(&ld->lock);
	batch_move(b, BATCH_FREE);
	ld->given_back++;
	loader_update_event(ld);
	loader_wake(ld);
	pthread_mutex_unlock(&ld->lock);
	loader_unref(ld);
}

struct read_call {
	struct leat_batch *b;
	struct reader *reader;
};

static void read_fiber(void *arg)
{
	struct read_call *c = arg;
	batch_fill(c->b, c->reader);
}

static int read_batch(struct leat_dataset *ds, struct leat_batch *b)
{
	struct read_call c = {b, &ds->readers[0]};
	TRY(batch_plan(b));
	if (b->need)
		TRY(batch_set_memory(b, batch_memory_for(b->need)));
	TRY(loop_call(c.reader->loop, "read", read_fiber, &c));
	return b->rc;
}

int leat_dataset_read(struct leat_dataset *ds, const uint64_t *samples, uint32_t n,
		      struct leat_batch **ret_batch)
{
	TRY(dataset_check_pid(ds));
	if (n > BATCH_SAMPLES_MAX)
		return error_say(-LE_INVAL, "at most %u samples at once", BATCH_SAMPLES_MAX);
	for (uint32_t i = 0; i < n; i++) {
		if (samples[i] >= ds->x->n_samples)
			return error_say(-LE_RANGE, "there is no sample %llu",
					 (unsigned long long)samples[i]);
	}
	struct leat_batch *b = malloc(sizeof(*b));
	struct field_set all;
	if (!b)
		return error_say(-LE_NOMEM, "out of memory");
	int rc = field_set_init(&all, ds, NULL);
	if (rc == 0)
		rc = batch_init(b, ds, &all, n);
	b->own_set = all;
	b->set = &b->own_set;
	if (rc == 0) {
		memcpy(b->ids, samples, n * sizeof(*samples));
		b->n = n;
		rc = read_batch(ds, b);
	}
	if (rc < 0) {
		error_set(rc, &b->d);
		batch_fini(b);
		free(b);
		return rc;
	}
	batch_move(b, BATCH_HELD);
	b->refs = 1;
	dataset_ref(ds);
	*ret_batch = b;
	return 0;
}
