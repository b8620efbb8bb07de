/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accelerators: each is a thread with its own loader (one rank of the job) that takes a batch,
 * sleeps as long as that accelerator would compute, and waits for the others, as they would to
 * exchange gradients. They begin an epoch together.
 *
 * Owned: `lock` guards the meeting, the first failure and the counters for the progress line; the
 * rest of an accelerator belongs to its thread until it is joined, but the last thread to arrive at
 * a meeting may read what the others left there.
 */
#include "tools/bench_loader_run.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <leat/leat.h>

#include "common/base/assert.h"
#include "tools/bench_loader_data.h"
#include "tools/progress.h"

#define TICK_MS       100 /* how often a waiting thread checks for Ctrl-C */
#define PLAIN_AFTER_S 10  /* without a TTY, a short run prints no progress */

struct job {
	struct loader_bench *b;
	struct bench_result *r;
	double compute_s;
	pthread_mutex_t lock;
	pthread_cond_t met;
	uint64_t arrived, round, steps_done;
	struct bench_reads read; /* up to the end of the last epoch */
	int failed;              /* the first error; 0 if a signal ended the run */
	atomic_bool stop;
	char message[512];
	struct accelerator_thread *all;
};

/* The part of one accelerator in an epoch. The first step ends when all have met after it. */
struct share {
	double start_s, second_s, end_s, first_wait_s, compute_s, first_compute_s;
	uint64_t samples, bytes;
};

#define ACCELERATOR_MAGIC 0x4c414343u /* LACC */

struct accelerator_thread {
	uint32_t magic;
	struct job *job;
	pthread_t thread;
	uint32_t rank;
	struct leat_loader *loader;
	struct share share;
};

/* ---- meeting ---- */

static void fail(struct job *j, int rc, const char *message)
{
	pthread_mutex_lock(&j->lock);
	if (j->failed == 0 && rc < 0) {
		j->failed = rc;
		snprintf(j->message, sizeof(j->message), "%s", message);
	}
	j->stop = true;
	pthread_cond_broadcast(&j->met);
	pthread_mutex_unlock(&j->lock);
}

/* Waits for all threads; the last one calls `last` first. Returns false if the run has ended. */
static bool meet(struct accelerator_thread *a, void (*last)(struct job *j, uint64_t arg),
		 uint64_t arg)
{
	struct job *j = a->job;

	pthread_mutex_lock(&j->lock);
	uint64_t round = j->round;
	if (++j->arrived == j->b->n_accelerators) {
		if (last)
			last(j, arg);
		j->arrived = 0;
		j->round++;
		pthread_cond_broadcast(&j->met);
	}
	while (j->round == round && !j->stop)
		pthread_cond_wait(&j->met, &j->lock);
	bool go_on = !j->stop;
	pthread_mutex_unlock(&j->lock);
	return go_on;
}

static void count_step(struct job *j, uint64_t arg)
{
	(void)arg;
	j->steps_done++;
	if (interrupted())
		j->stop = true;
}

/* ---- results of an epoch ---- */

static struct bench_reads reads_of(struct job *j)
{
	struct bench_reads r = {0};
	for (uint64_t i = 0; i < j->b->n_accelerators; i++) {
		struct leat_loader_metrics m = {.size = sizeof(m)};
		if (leat_loader_metrics(j->all[i].loader, &m) < 0)
			continue;
		r.servers += m.bytes_server;
		r.peers += m.bytes_peer;
		r.local += m.bytes_local;
	}
	return r;
}

static void end_epoch(struct job *j, uint64_t epoch)
{
	struct epoch_result *e = &j->r->epochs[epoch];
	double n = (double)j->b->n_accelerators, steps = (double)j->b->run_steps;
	struct bench_reads now = reads_of(j);

	for (uint64_t i = 0; i < j->b->n_accelerators; i++) {
		const struct share *s = &j->all[i].share;
		double all = s->end_s - s->start_s, steady = s->end_s - s->second_s;
		e->au += (s->compute_s - s->first_compute_s) / steady / n;
		e->au_nominal += (steps - 1) * j->compute_s / steady / n;
		e->au_whole += steps * j->compute_s / all / n;
		e->seconds = all > e->seconds ? all : e->seconds;
		e->first_wait_s =
			s->first_wait_s > e->first_wait_s ? s->first_wait_s : e->first_wait_s;
		e->samples += s->samples;
		e->bytes += s->bytes;
	}
	e->from = (struct bench_reads){now.servers - j->read.servers, now.peers - j->read.peers,
				       now.local - j->read.local};
	j->read = now;
	j->r->n_epochs = epoch + 1;
}

/* Called before the first step, while all accelerators wait: no time is measured yet. */
static void begin_epoch(struct job *j, uint64_t epoch)
{
	struct leat_dataset_stat st = {.size = sizeof(st)};

	(void)epoch;
	if (!j->b->cold || leat_dataset_stat(j->b->ds, &st) < 0 || strcmp(st.source, "server") == 0)
		return;
	int rc = bench_data_drop(st.path);
	if (rc == 0)
		return;
	j->failed = rc;
	j->stop = true;
	snprintf(j->message, sizeof(j->message), "cannot be dropped from the page cache");
}

/* ---- one accelerator ---- */

/* Sleeps until a point in time, like an accelerator that computes, even if woken earlier. */
static void compute(const struct job *j, double until_s)
{
	for (;;) {
		double now = now_s(), next = now + TICK_MS * 1e-3;
		if (now >= until_s || j->stop || interrupted())
			return;
		next = next < until_s ? next : until_s;
		struct timespec ts = {.tv_sec = (time_t)next};
		ts.tv_nsec = (long)((next - (double)ts.tv_sec) * 1e9);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	}
}

static uint64_t batch_bytes(const struct loader_bench *b, const struct leat_batch *batch)
{
	struct leat_view v = {.size = sizeof(v)};
	uint64_t sum = 0;
	const char *field;

	for (uint32_t f = 0; (field = leat_dataset_field(b->ds, f)) != NULL; f++) {
		if (leat_batch_field(batch, field, &v) < 0)
			continue;
		for (uint64_t i = 0; i < v.n; i++)
			sum += v.lengths[i];
	}
	return sum;
}

static struct leat_batch *take_batch(struct accelerator_thread *a)
{
	struct leat_batch *batch = NULL;
	int rc;

	do {
		rc = leat_next_within(a->loader, TICK_MS, &batch);
	} while (leat_errno(rc) == ETIMEDOUT && !a->job->stop && !interrupted());
	if (rc == 1)
		return batch;
	if (rc < 0 && leat_errno(rc) != ETIMEDOUT)
		fail(a->job, rc, leat_last_error()->message);
	else
		fail(a->job, 0, "");
	return NULL;
}

static bool run_step(struct accelerator_thread *a, uint64_t epoch, uint64_t step)
{
	struct job *j = a->job;
	double from = now_s();
	struct leat_batch *batch = take_batch(a);

	if (!batch)
		return false;
	double have = now_s();
	uint64_t at = (epoch * j->b->run_steps + step) * j->b->n_accelerators + a->rank;
	j->r->wait_s[at] = (float)(have - from);
	compute(j, have + j->compute_s);
	double computed = now_s() - have;
	a->share.samples += leat_batch_len(batch);
	a->share.bytes += batch_bytes(j->b, batch);
	leat_batch_unref(batch);
	a->share.compute_s += computed;
	if (step == 0) {
		a->share.first_wait_s = have - from;
		a->share.first_compute_s = computed;
	}
	if (!meet(a, count_step, 0))
		return false;
	if (step == 0)
		a->share.second_s = now_s();
	return true;
}

static bool run_epoch(struct accelerator_thread *a, uint64_t epoch)
{
	struct job *j = a->job;

	if (!meet(a, begin_epoch, epoch))
		return false;
	int rc = leat_loader_set_epoch(a->loader, epoch);
	if (rc < 0) {
		fail(j, rc, leat_last_error()->message);
		return false;
	}
	a->share = (struct share){.start_s = now_s()};
	for (uint64_t s = 0; s < j->b->run_steps; s++) {
		if (!run_step(a, epoch, s))
			return false;
	}
	a->share.end_s = now_s();
	return meet(a, end_epoch, epoch);
}

static void *run_accelerator(void *arg)
{
	struct accelerator_thread *a = CAST_OBJ(arg, struct accelerator_thread, ACCELERATOR_MAGIC);

	for (uint64_t e = 0; e < a->job->b->epochs; e++) {
		if (!run_epoch(a, e))
			break;
	}
	return NULL;
}

/* ---- the run ---- */

static int open_loaders(struct job *j)
{
	struct loader_bench *b = j->b;
	struct leat_loader_options o = {.size = sizeof(o),
					.order = b->order,
					.seed = b->seed,
					.batch = (uint32_t)(b->w->batch * b->n_accelerators),
					.world = (uint32_t)b->n_accelerators,
					.epochs = b->epochs,
					.depth = (uint32_t)b->depth,
					.memory_limit = b->memory / b->n_accelerators};

	for (uint32_t i = 0; i < b->n_accelerators; i++) {
		j->all[i] = (struct accelerator_thread){
			.magic = ACCELERATOR_MAGIC, .job = j, .rank = i};
		o.rank = i;
		int rc = leat_loader_open(b->ds, &o, &j->all[i].loader);
		if (rc < 0)
			return tool_error(b->tool, exit_of_status(rc), NULL, "%s: %s", b->data,
					  leat_last_error()->message);
	}
	uint64_t steps = leat_loader_steps(j->all[0].loader);
	b->run_steps = b->steps && b->steps < steps ? b->steps : steps;
	if (b->run_steps < 2)
		return tool_error(b->tool, EXIT_USAGE,
				  "Fewer --accelerators, or --generate with more --steps.",
				  "%s: an epoch has %" PRIu64 " steps, and 2 are needed", b->data,
				  b->run_steps);
	if (b->run_steps * b->epochs > BENCH_STEPS_MAX)
		return tool_usage(b->tool, "more than %u steps in all: fewer --steps or --epochs",
				  BENCH_STEPS_MAX);
	return EXIT_OK;
}

/* Draws progress until the threads have met for the last time, or stopped. */
static void watch(struct job *j)
{
	uint64_t total = j->b->run_steps * j->b->epochs, n = 0;
	struct progress p;
	char text[96];
	bool stop = false;

	progress_init(&p, "training");
	while (n < total && !stop) {
		struct timespec tick = {.tv_nsec = TICK_MS * 1000000};
		clock_nanosleep(CLOCK_MONOTONIC, 0, &tick, NULL);
		pthread_mutex_lock(&j->lock);
		n = j->steps_done;
		stop = j->stop;
		pthread_mutex_unlock(&j->lock);
		if (interrupted())
			fail(j, 0, "");
		snprintf(text, sizeof(text), "step %" PRIu64 " of %" PRIu64 ", epoch %" PRIu64, n,
			 total, n / j->b->run_steps);
		if (p.tty || p.drawn || now_s() - p.start_s > PLAIN_AFTER_S)
			progress_note(&p, n, total, text);
	}
	progress_finish(&p, 0);
}

/* Returns the bytes that this process has read from block devices; 0 if unknown. */
static uint64_t disk_bytes(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	char line[128];
	uint64_t n = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "read_bytes: %" SCNu64, &n) == 1)
			break;
	}
	if (f)
		fclose(f);
	return n;
}

static void collect(struct job *j, uint64_t disk_before)
{
	struct bench_result *r = j->r;

	r->from = reads_of(j);
	r->from_disk = disk_bytes() - disk_before;
	for (uint64_t i = 0; i < j->b->n_accelerators; i++) {
		struct leat_loader_metrics m = {.size = sizeof(m)};
		if (leat_loader_metrics(j->all[i].loader, &m) < 0)
			continue;
		r->memory += m.memory;
		for (int k = 0; k < LEAT_STALLS; k++)
			r->stall_us[k] += m.stall_us[k];
	}
	for (uint64_t e = 0; e < r->n_epochs; e++)
		r->delivered += r->epochs[e].bytes;
}

static int run_threads(struct job *j)
{
	struct loader_bench *b = j->b;
	uint64_t n = 0, disk_before = disk_bytes();

	for (; n < b->n_accelerators; n++) {
		int err = pthread_create(&j->all[n].thread, NULL, run_accelerator, &j->all[n]);
		if (err) {
			fail(j, -err, "cannot start a thread for an accelerator");
			break;
		}
	}
	watch(j);
	for (uint64_t i = 0; i < n; i++)
		pthread_join(j->all[i].thread, NULL);
	collect(j, disk_before);
	if (j->failed)
		return tool_error(b->tool, exit_of_status(j->failed), NULL, "%s: %s", b->data,
				  j->message);
	if (interrupted())
		return tool_error(b->tool, EXIT_INTERRUPTED, NULL, "interrupted");
	return EXIT_OK;
}

int bench_run(struct loader_bench *b, struct bench_result *ret_result)
{
	struct job j = {.b = b, .r = ret_result, .compute_s = b->w->compute_s[b->type]};
	int code;

	*ret_result = (struct bench_result){0};
	pthread_mutex_init(&j.lock, NULL);
	pthread_cond_init(&j.met, NULL);
	j.all = calloc(b->n_accelerators, sizeof(*j.all));
	code = j.all ? open_loaders(&j) : EXIT_FAILED;
	if (code == EXIT_OK) {
		ret_result->n_steps = b->run_steps;
		ret_result->epochs = calloc(b->epochs, sizeof(*ret_result->epochs));
		ret_result->wait_s = calloc(b->run_steps * b->epochs * b->n_accelerators,
					    sizeof(*ret_result->wait_s));
	}
	if (code == EXIT_OK && (!ret_result->epochs || !ret_result->wait_s))
		code = tool_error(b->tool, EXIT_FAILED, NULL, "out of memory");
	if (code == EXIT_OK)
		code = run_threads(&j);
	for (uint64_t i = 0; j.all && i < b->n_accelerators; i++)
		leat_loader_close(j.all[i].loader);
	free(j.all);
	pthread_mutex_destroy(&j.lock);
	pthread_cond_destroy(&j.met);
	return code;
}

void bench_result_fini(struct bench_result *r)
{
	free(r->epochs);
	free(r->wait_s);
	*r = (struct bench_result){0};
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

double bench_wait_percentile(const struct loader_bench *b, const struct bench_result *r, double p)
{
	uint64_t row = b->n_accelerators, n = 0;
	float *sorted = malloc(r->n_epochs * r->n_steps * row * sizeof(*sorted));
	double value = 0;

	for (uint64_t s = 0; sorted && s < r->n_epochs * r->n_steps; s++) {
		if (s % r->n_steps == 0)
			continue;
		memcpy(sorted + n, r->wait_s + s * row, row * sizeof(*sorted));
		n += row;
	}
	if (n > 0) {
		qsort(sorted, n, sizeof(*sorted), by_size);
		uint64_t at = (uint64_t)(p * (double)n);
		value = (double)sorted[at < n ? at : n - 1];
	}
	free(sorted);
	return value;
}
