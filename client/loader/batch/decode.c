/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/batch/decode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/loader/batch/batch_check.h"
#include "client/loader/source/last_error.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define THREADS_DEFAULT 2u
#define MS_DEFAULT      10000u
#define CHUNKS          4u /* for each thread, so that the threads finish at about the same time */
#define DECODERS_MAX 64u
#define ALIGN           64u
#define TEXT            160
#define WORKER_MAGIC    0x4c57524bu /* LWRK */

/* A decoder thread and its present call. */
struct worker {
	uint32_t magic;
	struct decoders *of;
	pthread_t thread;
	bool busy;
	uint64_t since_us, sample;
	const char *field;
};

struct decoders {
	struct leat_decoder *table; /* its names of fields are those of the data set */
	int32_t *place;             /* for each decoder, its place in the field set */
	uint32_t n, n_workers;
	uint64_t late_us;
	_Atomic bool stopping;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct list jobs;
	uint32_t n_busy;
	bool ending;
	struct worker workers[DECODE_THREADS_MAX];
};

/* All chunks of a batch, on the stack of the fiber that waits for them. */
struct decoding {
	struct leat_batch *b;
	struct loop *loop;
	struct fiber *fiber;
	uint32_t left;
	_Atomic bool failed, canceled;
};

/* Some jobs of a batch, executed in sequence by one thread. */
struct chunk {
	struct list link;
	struct mail mail;
	struct decoding *of;
	uint32_t from, to;
	int rc; /* of the first failure */
	uint32_t at;
	char text[TEXT];
};

static uint64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- in the threads ---- */

/* Replaces what is not printable ASCII in the text of a decoder. */
static void clean(char text[TEXT])
{
	text[TEXT - 1] = 0;
	for (char *c = text; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = ' ';
	}
}

static int64_t call(struct worker *w, const struct leat_batch *b, const struct decode_job *j,
		    char text[TEXT])
{
	struct decoders *d = w->of;
	const struct leat_decoder *t = &d->table[j->decoder];
	size_t at = batch_at(b, b->row_of[d->place[j->decoder]], j->sample);
	const struct sample_index *x = b->ds->x;
	struct leat_decode_call c = {.size = sizeof(c),
				     .sample = b->ids[j->sample],
				     .label = b->labels[j->sample],
				     .key = index_string(x, x->samples[b->ids[j->sample]].key),
				     .field = t->field,
				     .in = b->base + b->off[at],
				     .in_len = b->len[at],
				     .out = b->base + j->dst,
				     .out_max = t->out_max,
				     .error = text,
				     .error_size = TEXT};
	pthread_mutex_lock(&d->lock);
	/* Under the lock, so that no call begins after decode_wait_idle has found none. */
	if (d->stopping) {
		pthread_mutex_unlock(&d->lock);
		return -ECANCELED;
	}
	w->busy = true;
	w->since_us = now_us();
	w->sample = c.sample;
	w->field = t->field;
	ASSERT(d->n_busy < d->n_workers);
	d->n_busy++;
	pthread_mutex_unlock(&d->lock);
	int64_t rc = t->decode(t->arg, &c);
	pthread_mutex_lock(&d->lock);
	ASSERT(w->busy && d->n_busy > 0);
	w->busy = false;
	d->n_busy--;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

/* Converts the result of a decoder into a status. */
static int status_of(int64_t rc, uint64_t out_max, char text[TEXT])
{
	if (rc >= 0) {
		snprintf(text, TEXT, "it wrote %lld bytes of at most %llu", (long long)rc,
			 (unsigned long long)out_max);
		return -LE_OVERFLOW;
	}
	return rc >= -4095 ? status_from_errno((int)-rc) : -LE_IO;
}

static void run_job(struct worker *w, struct chunk *c, uint32_t k)
{
	struct leat_batch *b = c->of->b;
	const struct decode_job *j = &b->decodes[k];
	ASSERT(k < b->n_decodes && j->dst < b->mapped);
	const struct leat_decoder *t = &w->of->table[j->decoder];
	size_t at = batch_at(b, b->row_of[w->of->place[j->decoder]], j->sample);
	char text[TEXT] = "";
	/* Bytes that could not be read are not decoded. */
	if (batch_is_bad(b, b->off[at], b->len[at])) {
		b->lost[j->sample] = 1;
		return;
	}
	int64_t rc = call(w, b, j, text);
	if (rc >= 0 && (uint64_t)rc <= t->out_max) {
		b->off[at] = j->dst;
		b->len[at] = (uint64_t)rc;
		return;
	}
	clean(text);
	b->lost[j->sample] = 1;
	c->of->failed = true;
	if (c->rc == 0) {
		c->rc = status_of(rc, t->out_max, text);
		c->at = k;
		memcpy(c->text, text, TEXT);
	}
}

static void run_chunk(struct worker *w, struct chunk *c)
{
	for (uint32_t k = c->from; k < c->to; k++) {
		if (w->of->stopping) {
			c->of->canceled = true;
			break;
		}
		if (c->of->failed && !c->of->b->skip_bad)
			break;
		run_job(w, c, k);
	}
	loop_post(c->of->loop, &c->mail); /* the waiting fiber may free c from now on */
}

static void *work(void *arg)
{
	struct worker *w = CAST_OBJ(arg, struct worker, WORKER_MAGIC);
	struct decoders *d = w->of;
	pthread_setname_np(pthread_self(), "leat-decode");
	pthread_mutex_lock(&d->lock);
	for (;;) {
		struct list *l = list_pop(&d->jobs);
		if (!l && d->ending)
			break;
		if (!l) {
			pthread_cond_wait(&d->changed, &d->lock);
			continue;
		}
		pthread_mutex_unlock(&d->lock);
		run_chunk(w, container_of(l, struct chunk, link));
		pthread_mutex_lock(&d->lock);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* ---- open and close ---- */

static int take_table(struct decoders *d, const struct leat_loader_options *o,
		      const struct leat_dataset *ds, const struct field_set *set)
{
	d->table = calloc(o->n_decoders, sizeof(*d->table));
	d->place = calloc(o->n_decoders, sizeof(*d->place));
	if (!d->table || !d->place)
		return error_say(-LE_NOMEM, "out of memory");
	for (d->n = 0; d->n < o->n_decoders; d->n++) {
		const struct leat_decoder *from = &o->decoders[d->n];
		int f = from->field ? index_field(ds->x, from->field) : -1;
		int32_t place = f < 0 ? -1 : field_place(set, (uint32_t)f);
		if (place < 0)
			return error_say(-LE_NOENT, "a decoder for a field that is not read: %s",
					 from->field ? from->field : "(none)");
		if (!from->decode || from->out_max == 0 || from->out_max > DECODE_OUT_MAX)
			return error_say(-LE_INVAL, "the decoder of %s needs decode and out_max",
					 from->field);
		d->place[d->n] = place;
		for (uint32_t i = 0; i < d->n; i++) {
			if (d->place[i] == d->place[d->n])
				return error_say(-LE_INVAL, "two decoders for the field %s",
						 from->field);
		}
		d->table[d->n] = *from;
		d->table[d->n].field = index_string(ds->x, ds->x->fields[f]);
	}
	return 0;
}

static int start_threads(struct decoders *d, uint32_t n)
{
	for (; d->n_workers < n; d->n_workers++) {
		struct worker *w = &d->workers[d->n_workers];
		w->magic = WORKER_MAGIC;
		w->of = d;
		int err = pthread_create(&w->thread, NULL, work, w);
		if (err)
			return error_say(status_from_errno(err), "no thread for decoders: %s",
					 strerror(err));
	}
	return 0;
}

int decode_open(const struct leat_loader_options *o, const struct leat_dataset *ds,
		const struct field_set *set, struct decoders **ret_decoders)
{
	pthread_condattr_t attr;
	*ret_decoders = NULL;
	if (o->n_decoders == 0)
		return 0;
	if (o->n_decoders > DECODERS_MAX || !o->decoders ||
	    o->decode_threads > DECODE_THREADS_MAX)
		return error_say(-LE_INVAL, "at most %u decoders and %u threads for them",
				 DECODERS_MAX, DECODE_THREADS_MAX);
	struct decoders *d = calloc(1, sizeof(*d));
	if (!d)
		return error_say(-LE_NOMEM, "out of memory");
	d->late_us = (uint64_t)(o->decode_ms ? o->decode_ms : MS_DEFAULT) * 1000;
	list_init(&d->jobs);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, &attr);
	pthread_condattr_destroy(&attr);
	int rc = take_table(d, o, ds, set);
	if (rc == 0)
		rc = start_threads(d, o->decode_threads ? o->decode_threads : THREADS_DEFAULT);
	if (rc < 0) {
		decode_close(d);
		return rc;
	}
	*ret_decoders = d;
	return 0;
}

void decode_close(struct decoders *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->ending = true;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
	for (uint32_t i = 0; i < d->n_workers; i++)
		pthread_join(d->workers[i].thread, NULL);
	ASSERT(list_empty(&d->jobs) && d->n_busy == 0);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->changed);
	free(d->table);
	free(d->place);
	free(d);
}

void decode_stop(struct decoders *d)
{
	pthread_mutex_lock(&d->lock);
	d->stopping = true;
	pthread_mutex_unlock(&d->lock);
}

bool decode_wait_idle(struct decoders *d)
{
	struct timespec t;
	uint64_t until = now_us() + d->late_us;
	t.tv_sec = (time_t)(until / 1000000);
	t.tv_nsec = (long)(until % 1000000 * 1000);
	pthread_mutex_lock(&d->lock);
	int rc = 0;
	while (d->n_busy && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&d->changed, &d->lock, &t);
	bool idle = d->n_busy == 0;
	pthread_mutex_unlock(&d->lock);
	return idle;
}

bool decode_is_late(struct decoders *d)
{
	bool late = false;
	pthread_mutex_lock(&d->lock);
	uint64_t now = now_us(); /* under the lock, like since_us, so never before it */
	for (uint32_t i = 0; i < d->n_workers && !late; i++) {
		const struct worker *w = &d->workers[i];
		late = w->busy && now - w->since_us > d->late_us;
		if (late)
			error_say(-LE_BUSY,
				  "the decoder of %s has been at work on sample %llu for %.1f s",
				  w->field, (unsigned long long)w->sample,
				  (double)(now - w->since_us) / 1e6);
	}
	pthread_mutex_unlock(&d->lock);
	return late;
}

/* ---- a batch ---- */

int decode_plan(struct leat_batch *b)
{
	const struct decoders *d = b->decoders;
	b->n_decodes = 0;
	if (!d)
		return 0;
	if (!b->decodes) {
		size_t n = b->cap ? b->cap : 1;
		b->decodes = calloc(n * d->n, sizeof(*b->decodes));
		if (!b->decodes)
			return -LE_NOMEM;
	}
	for (uint32_t k = 0; k < d->n; k++)
		b->decoded[b->row_of[d->place[k]]] = true;
	for (uint32_t i = 0; i < b->n; i++) {
		for (uint32_t k = 0; k < d->n; k++) {
			if (b->off[batch_at(b, b->row_of[d->place[k]], i)] == UINT64_MAX)
				continue;
			uint64_t dst = (b->need + ALIGN - 1) / ALIGN * ALIGN;
			if (d->table[k].out_max > BATCH_BYTES_MAX - dst)
				return -LE_2BIG;
			b->decodes[b->n_decodes++] = (struct decode_job){dst, i, k};
			b->need = dst + d->table[k].out_max;
		}
	}
	return 0;
}

static void on_chunk(struct mail *m)
{
	struct decoding *g = container_of(m, struct chunk, mail)->of;
	ASSERT(g->left > 0);
	if (--g->left == 0)
		fiber_wake(g->fiber);
}

static void submit(struct decoders *d, struct decoding *g, struct chunk *chunks, uint32_t n)
{
	uint64_t all = g->b->n_decodes;
	for (uint32_t i = 0; i < n; i++) {
		chunks[i].mail.fn = on_chunk;
		chunks[i].of = g;
		chunks[i].from = (uint32_t)(i * all / n);
		chunks[i].to = (uint32_t)((i + 1) * all / n);
	}
	g->left = n;
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; i < n; i++)
		list_push(&d->jobs, &chunks[i].link);
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
	while (g->left)
		fiber_park();
}

/* Sets b->d, with file and offset of the bytes that could not be decoded. */
static void tell(struct leat_batch *b, const struct chunk *c)
{
	const struct decode_job *j = &b->decodes[c->at];
	const struct sample_index *x = b->ds->x;
	const struct index_sample *s = &x->samples[b->ids[j->sample]];
	const char *field = b->decoders->table[j->decoder].field;
	uint64_t off = UINT64_MAX;
	for (uint64_t m = s[0].first; m < s[1].first; m++) {
		if (strcmp(index_string(x, x->fields[x->members[m].field]), field) == 0)
			off = x->members[m].off;
	}
	b->d.origin = ORIGIN_DECODER;
	b->d.what[0] = 0;
	detail_set(&b->d, c->rc, index_string(x, x->files[s->file].path), off,
		   "the decoder of %.32s failed: %s", field,
		   c->text[0] ? c->text : status_text(c->rc));
}

void decode_batch(struct leat_batch *b)
{
	struct decoders *d = b->decoders;
	struct decoding g = {.b = b, .loop = loop_self(), .fiber = fiber_self()};
	uint32_t n = d->n_workers * CHUNKS;
	if (n > b->n_decodes)
		n = b->n_decodes;
	struct chunk *chunks = n ? calloc(n, sizeof(*chunks)) : NULL;
	if (!chunks) {
		if (n)
			detail_set(&b->d, -LE_NOMEM, NULL, UINT64_MAX, "no memory to decode");
		b->skip_bad = b->skip_bad && !n;
		return;
	}
	b->phase = PHASE_DECODE;
	submit(d, &g, chunks, n);
	for (uint32_t i = 0; i < n; i++) {
		if (chunks[i].rc && b->d.rc == 0)
			tell(b, &chunks[i]);
	}
	if (g.canceled) {
		b->skip_bad = false;
		if (b->d.rc == 0)
			detail_set(&b->d, -LE_CANCELED, NULL, UINT64_MAX, "the loader is closing");
	}
	free(chunks);
}
