/* SPDX-License-Identifier: Apache-2.0 */
/* The loops' side of a loader: claims steps, fills slots. */
#include "client/loader/batch/loader_fill.h"

#include <stdlib.h>
#include <sys/eventfd.h>

#include "client/leat_impl.h"
#include "client/loader/batch/batch_plan.h"
#include "client/loader/batch/loader.h"
#include "client/loader/gpu/device.h"
#include "client/loader/gpu/direct.h"
#include "client/loader/source/dataset_facts.h"
#include "common/base/assert.h"
#include "common/base/planted_bug.h"

/* ---- with the lock ---- */

struct leat_batch *loader_wanted(struct leat_loader *ld)
{
	for (uint32_t i = 0; i < ld->n_slots; i++) {
		struct leat_batch *b = &ld->slots[i];
		if (b->state != BATCH_FREE && b->state != BATCH_HELD && b->gen == ld->gen &&
		    b->epoch == ld->want_epoch && b->step == ld->want_step)
			return b;
	}
	return NULL;
}

static uint32_t count(const struct leat_loader *ld, enum batch_state state)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < ld->n_slots; i++)
		n += ld->slots[i].state == state;
	return n;
}

bool loader_is_held(const struct leat_loader *ld)
{
	if (count(ld, BATCH_HELD) == ld->n_slots)
		return true;
	if (count(ld, BATCH_HELD) == 0 || count(ld, BATCH_FILL) || count(ld, BATCH_READY) ||
	    count(ld, BATCH_ERROR))
		return false;
	/* The planned step failed to get memory, and no batch was released since. */
	for (uint32_t i = 0; i < ld->n_slots; i++) {
		if (ld->slots[i].state == BATCH_PLANNED &&
		    ld->slots[i].starved_at == ld->given_back)
			return true;
	}
	return false;
}

bool loader_at_end(const struct leat_loader *ld)
{
	return ld->epochs && ld->want_epoch >= ld->first_epoch + ld->epochs;
}

void loader_update_event(struct leat_loader *ld)
{
	struct leat_batch *b = loader_wanted(ld);
	bool ready = ld->want_step >= ld->steps || loader_at_end(ld) || loader_is_held(ld) ||
		     (b && (b->state == BATCH_READY || b->state == BATCH_ERROR));
	if (ready && !ld->event_set)
		ld->event_set = eventfd_write(ld->event_fd, 1) == 0;
	if (!ready && ld->event_set) {
		eventfd_t v;
		ld->event_set = eventfd_read(ld->event_fd, &v) < 0;
	}
}

static void on_mail(struct mail *m)
{
	struct filler *f = container_of(m, struct filler, mail);
	atomic_store(&f->posted, false);
	waitq_wake_all(&f->idle);
}

void loader_wake(struct leat_loader *ld)
{
	for (uint32_t i = 0; i < ld->n_fillers; i++) {
		struct filler *f = &ld->fillers[i];
		if (f->started && !atomic_exchange(&f->posted, true))
			loop_post(f->reader->loop, &f->mail);
	}
}

void loader_jump(struct leat_loader *ld, uint64_t epoch, uint64_t step)
{
	ld->gen++;
	for (uint32_t i = 0; i < ld->n_slots; i++) {
		struct leat_batch *b = &ld->slots[i];
		if (b->state == BATCH_READY || b->state == BATCH_ERROR || b->state == BATCH_PLANNED)
			batch_move(b, BATCH_FREE);
	}
	ld->want_epoch = ld->issue_epoch = epoch;
	ld->want_step = ld->issue_step = step;
	loader_update_event(ld);
	loader_wake(ld);
}

static int plan_step(struct leat_loader *ld, struct leat_batch *b)
{
	uint64_t from;
	uint32_t n;
	order_share(&ld->deal, b->step, ld->rank, &from, &n);
	ASSERT(n <= b->cap);
	b->time = b->epoch * ld->deal.n + from;
	for (uint32_t i = 0; i < n; i++)
		TRY(sequence_at(&ld->order, b->epoch, (from + i) % ld->deal.n, &b->ids[i]));
	b->n = n;
	return batch_plan(b);
}

/* Reserves memory for b within the limit; frees that of free slots if necessary. */
static bool reserve(struct leat_loader *ld, struct leat_batch *b)
{
	uint64_t want = batch_memory_for(b->need);
	if (b->mapped >= b->need || PLANTED_BUG(LOADER_UNRESERVED))
		return true;
	ASSERT(ld->memory >= b->mapped);
	for (uint32_t i = 0; i < ld->n_slots && ld->memory - b->mapped + want > ld->memory_limit;
	     i++) {
		struct leat_batch *other = &ld->slots[i];
		if (other == b || other->state != BATCH_FREE || !other->mapped)
			continue;
		ASSERT(ld->memory >= b->mapped + other->mapped);
		ld->memory -= other->mapped;
		int rc = batch_set_memory(other, 0);
		(void)rc; /* it shrinks a file; a failure has no remedy */
	}
	if (ld->memory - b->mapped + want > ld->memory_limit)
		return false;
	ld->memory = ld->memory - b->mapped + want;
	return true;
}

/* Returns the slot for the next step: the planned one, else the free slot with the most memory. */
static struct leat_batch *next_slot(struct leat_loader *ld)
{
	struct leat_batch *best = NULL;
	for (uint32_t i = 0; i < ld->n_slots; i++) {
		struct leat_batch *b = &ld->slots[i];
		if (b->state == BATCH_PLANNED)
			return b;
		if (b->state == BATCH_FREE && (!best || b->mapped > best->mapped))
			best = b;
	}
	if (!best || ld->n_slots - count(ld, BATCH_FREE) - count(ld, BATCH_HELD) >= ld->ahead)
		return NULL;
	if (ld->issue_step >= ld->steps) {
		ld->issue_epoch++;
		ld->issue_step = ld->phase;
	}
	if (ld->epochs && ld->issue_epoch >= ld->first_epoch + ld->epochs)
		return NULL;
	best->gen = ld->gen;
	best->epoch = ld->issue_epoch;
	best->step = ld->issue_step;
	best->skip_bad = ld->on_error == LEAT_ON_ERROR_SKIP;
	best->d.rc = 0;
	best->rc = plan_step(ld, best);
	if (best->rc < 0)
		detail_set(&best->d, best->rc, NULL, UINT64_MAX, "no order for this epoch: %s",
			   status_text(best->rc));
	else if (batch_memory_for(best->need) > ld->memory_limit)
		best->rc = detail_set(&best->d, -LE_2BIG, NULL, UINT64_MAX,
				      "one batch needs %llu bytes and memory_limit is %llu",
				      (unsigned long long)batch_memory_for(best->need),
				      (unsigned long long)ld->memory_limit);
	batch_move(best, BATCH_PLANNED);
	return best;
}

static struct leat_batch *claim(struct leat_loader *ld)
{
	struct leat_batch *b = NULL;
	pthread_mutex_lock(&ld->lock);
	/* leat_loader_set_state may select a step even if none of the epoch belongs to this
	 * loader. */
	if (!ld->stopping && (ld->phase < ld->steps || ld->issue_step < ld->steps))
		b = next_slot(ld);
	if (b && b->rc == 0 && !reserve(ld, b)) {
		b->starved_at = ld->given_back;
		b = NULL;
		/* A caller that waits and holds all memory must get EBUSY. */
		loader_update_event(ld);
		pthread_cond_broadcast(&ld->changed);
	}
	if (b) {
		ASSERT(b->gen == ld->gen && b->epoch == ld->issue_epoch &&
		       b->step == ld->issue_step);
		batch_move(b, BATCH_FILL);
		ld->issue_step += ld->stride;
	}
	pthread_mutex_unlock(&ld->lock);
	return b;
}

/* ---- fibers ---- */

static void account(struct leat_loader *ld, const struct leat_batch *b)
{
	ld->m.bytes_server += b->bytes_server;
	ld->m.bytes_local += b->bytes_local;
	ld->m.bytes_peer += b->bytes_peer;
	ld->m.bytes_direct += b->bytes_direct;
	ld->m.bytes_verified += b->bytes_verified;
	ld->m.bytes_mended += b->bytes_mended;
	ld->m.blocks_stale += b->blocks_stale;
	ld->m.errors += b->rc < 0 || b->n_skipped;
}

/* Chooses how far to read ahead: far enough that the user's steps cover the longest wait for a
 * disk, a server or a decoder in the last hundred fills (their p99). Copying from memory does
 * not count: starting it earlier does not help, and with fewer slots more of them stay in the
 * processor's cache. */
static void look_ahead(struct leat_loader *ld, uint64_t delay_us)
{
	uint64_t longest = 0, step_us = ld->step_us ? ld->step_us : 1;
	ld->delays_us[ld->n_delays++ % LOADER_DELAYS] = delay_us;
	for (uint32_t i = 0; i < LOADER_DELAYS; i++)
		longest = ld->delays_us[i] > longest ? ld->delays_us[i] : longest;
	uint64_t steps = (longest + step_us - 1) / step_us;
	uint64_t want = ld->n_fillers + (steps ? steps : 1);
	uint32_t ahead = want < ld->n_slots ? (uint32_t)want : ld->n_slots;
	if (ahead > ld->ahead)
		loader_wake(ld);
	ld->ahead = ahead;
}

static void finish(struct leat_loader *ld, struct leat_batch *b, uint64_t delay_us)
{
	pthread_mutex_lock(&ld->lock);
	ASSERT(b->rc < 0 || b->mapped >= b->need);
	account(ld, b);
	if (ld->auto_depth && b->rc == 0)
		look_ahead(ld, delay_us);
	if (b->gen != ld->gen)
		batch_move(b, BATCH_FREE);
	else
		batch_move(b, b->rc < 0 ? BATCH_ERROR : BATCH_READY);
	loader_update_event(ld);
	pthread_cond_broadcast(&ld->changed);
	pthread_mutex_unlock(&ld->lock);
}

static void fill(struct leat_loader *ld, struct leat_batch *b, struct reader *r)
{
	uint64_t began = loop_now_us();
	b->at_hand_us = 0;
	if (b->rc == 0 && b->mapped < b->need) {
		uint64_t had = b->mapped, want = batch_memory_for(b->need);
		b->rc = batch_set_memory(b, want);
		if (b->rc < 0) {
			pthread_mutex_lock(&ld->lock);
			ASSERT(ld->memory >= want - had);
			ld->memory -= want - had;
			pthread_mutex_unlock(&ld->lock);
			detail_set(&b->d, b->rc, NULL, UINT64_MAX,
				   "no memory for a batch of %llu bytes (had %llu)",
				   (unsigned long long)want, (unsigned long long)had);
		}
	}
	struct leat_fs *fs = ld->ds->io.fs;
	if (b->rc == 0 && fs && dataset_is_remote(ld->ds))
		batch_register(b, fs->transport);
	if (b->rc == 0)
		b->rc = device_prepare(b);
	if (b->rc == 0 && !direct_fill(b)) {
		batch_fill(b, r);
		if (b->rc == 0)
			b->rc = device_send(b);
		if (b->rc == 0)
			direct_after_send(b);
	}
	uint64_t took = loop_now_us() - began;
	finish(ld, b, took > b->at_hand_us ? took - b->at_hand_us : 0);
}

static void fill_fiber(void *arg)
{
	struct filler *f = CAST_OBJ(arg, struct filler, FILLER_MAGIC);
	struct leat_loader *ld = f->ld;
	while (!ld->stopping) {
		struct leat_batch *b = claim(ld);
		if (b) {
			fill(ld, b, f->reader);
			continue;
		}
		/* No wakeup is lost: mail is delivered only while this fiber yields. */
		if (!ld->stopping) {
			int rc = waitq_wait(&f->idle, NO_DEADLINE);
			(void)rc;
		}
	}
	latch_done(&f->running);
}

static void start_fibers(void *arg)
{
	struct filler *f = CAST_OBJ(arg, struct filler, FILLER_MAGIC);
	uint32_t n = (f->ld->n_slots + f->ld->n_fillers - 1) / f->ld->n_fillers;
	waitq_init(&f->idle);
	latch_init(&f->running, 0);
	for (uint32_t i = 0; i < n; i++) {
		int rc = fiber_spawn("fill", fill_fiber, f);
		if (rc < 0) {
			f->rc = i ? 0 : rc;
			return;
		}
		latch_add(&f->running, 1);
	}
}

static void stop_fibers(void *arg)
{
	struct filler *f = CAST_OBJ(arg, struct filler, FILLER_MAGIC);
	waitq_wake_all(&f->idle);
	latch_wait(&f->running);
}

int loader_start(struct leat_loader *ld)
{
	for (uint32_t i = 0; i < ld->n_fillers; i++) {
		struct filler *f = &ld->fillers[i];
		f->magic = FILLER_MAGIC;
		f->ld = ld;
		f->reader = &ld->ds->readers[i];
		f->mail.fn = on_mail;
		TRY(loop_call(f->reader->loop, "start_fill", start_fibers, f));
		TRY(f->rc);
		pthread_mutex_lock(&ld->lock);
		f->started = true;
		pthread_mutex_unlock(&ld->lock);
	}
	return 0;
}

void loader_stop(struct leat_loader *ld)
{
	bool started[DATASET_THREADS_MAX + 1] = {false};
	pthread_mutex_lock(&ld->lock);
	ld->stopping = true;
	for (uint32_t i = 0; i < ld->n_fillers; i++) {
		started[i] = ld->fillers[i].started;
		ld->fillers[i].started = false; /* stops loader_wake from posting mail */
	}
	pthread_mutex_unlock(&ld->lock);
	for (uint32_t i = 0; i < ld->n_fillers; i++) {
		/* loop_call runs after all mail that was posted, so none is left when the loader
		 * is freed. */
		if (started[i]) {
			int rc = loop_call(ld->fillers[i].reader->loop, "stop_fill", stop_fibers,
					   &ld->fillers[i]);
			(void)rc;
		}
	}
	for (uint32_t i = 0; ld->slots && i < ld->n_slots; i++)
		batch_unregister(&ld->slots[i]);
}
