/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/dataset.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dataset/formats/format.h"
#include "client/dataset/formats/format_table.h"
#include "client/leat_impl.h"
#include "client/loader/source/dataset_resolve.h"
#include "client/loader/source/last_error.h"
#include "client/loader/source/mend.h"
#include "client/loader/source/peer.h"
#include "client/loader/source/unpacked.h"
#include "common/base/assert.h"

/* ---- open and close ---- */

static int start_extra(struct leat_dataset *ds, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		char *name;
		struct loop *l;
		struct loop_options lo = {0};
		if (asprintf(&name, "leat-load-%u", i + 1) < 0)
			return -LE_NOMEM;
		lo.name = name;
		int rc = loop_create(ds->io.env, &lo, &l);
		free(name);
		TRY(rc);
		rc = loop_start_thread(l);
		if (rc < 0) {
			loop_destroy(l);
			return rc;
		}
		ds->extra[ds->n_extra++] = l;
	}
	return 0;
}

int dataset_start_readers(struct leat_dataset *ds, uint32_t threads)
{
	/* The loop of a Leat file system reads alone. */
	if (ds->io.own && threads > 1)
		TRY(start_extra(ds, threads - 1));
	ds->n_readers = dataset_n_loops(ds);
	for (uint32_t i = 0; i < ds->n_readers; i++)
		reader_init(&ds->readers[i], ds, dataset_loop(ds, i));
	return 0;
}

void dataset_peer_metrics(const struct leat_dataset *ds, struct leat_loader_metrics *m)
{
	for (uint32_t i = 0; i < ds->n_parts; i++)
		dataset_peer_metrics(ds->parts[i], m);
	if (ds->peers)
		peer_tell(ds->peers, m);
	if (ds->mend)
		mend_tell(ds->mend, m);
}

/* Makes the order of this single data set. */
static int order_alone(struct leat_dataset *ds)
{
	TRY(sequence_of_init(&ds->of, 1));
	struct sequence_part *p = &ds->of.parts[0];
	p->word = index_order_word(ds->x);
	/* A file's number is its index in x, and the format decides which files are in x. */
	ds->content = order_fold(ds->content, p->word);
	p->n = ds->x->n_samples;
	p->n_shards = ds->x->n_files;
	p->shard_first = index_shard_firsts(ds->x);
	return p->shard_first ? sequence_of_finish(&ds->of, false, 0) : -LE_NOMEM;
}

static void reader_fini_fiber(void *arg)
{
	reader_fini(arg);
}

static void end_sources(void *arg)
{
	struct leat_dataset *ds = arg;
	mend_destroy(ds->mend);
	ds->mend = NULL;
	peer_destroy(ds->peers);
	ds->peers = NULL;
}

static void end_io(struct leat_dataset *ds)
{
	/* Their destructors run on their loop. If it has stopped, their memory leaks. */
	if ((ds->peers || ds->mend) && loop_call(ds->io.loop, "sources", end_sources, ds) < 0) {
		ds->peers = NULL;
		ds->mend = NULL;
	}
	for (uint32_t i = 0; i < ds->n_readers; i++) {
		int rc = loop_call(dataset_loop(ds, i), "reader_fini", reader_fini_fiber,
				   &ds->readers[i]);
		(void)rc; /* a stopped loop has no open files */
	}
	ds->n_readers = 0;
	for (uint32_t i = 0; i < ds->n_extra; i++) {
		loop_stop(ds->extra[i]);
		loop_join(ds->extra[i]);
		loop_destroy(ds->extra[i]);
	}
	ds->n_extra = 0;
	io_fini(&ds->io);
	ds->vol = NULL;
	if (ds->lease_fd >= 0)
		close(ds->lease_fd);
	ds->lease_fd = -1;
}

static void destroy(struct leat_dataset *ds)
{
	unpacked_destroy(ds->unpacked);
	index_destroy(ds->x);
	sequence_of_fini(&ds->of);
	free(ds->part_of_file);
	manifest_destroy(ds->m);
	free(ds->manifest_file);
	free((void *)ds->verified);
	ds->magic = 0;
	free(ds);
}

void dataset_ref(struct leat_dataset *ds)
{
	atomic_fetch_add(&ds->refs, 1);
}

void dataset_unref(struct leat_dataset *ds)
{
	uint32_t refs = atomic_fetch_sub(&ds->refs, 1);
	ASSERT(refs > 0);
	if (refs == 1)
		destroy(ds);
}

void dataset_use(struct leat_dataset *ds)
{
	atomic_fetch_add(&ds->users, 1);
	dataset_ref(ds);
}

void dataset_unuse(struct leat_dataset *ds)
{
	uint32_t users = atomic_fetch_sub(&ds->users, 1);
	ASSERT(users > 0);
	/* A forked child has none of the threads: it ends nothing and only frees memory. */
	if (users == 1 && getpid() == ds->pid) {
		end_io(ds);
		for (uint32_t i = 0; i < ds->n_parts; i++)
			dataset_unuse(ds->parts[i]);
	}
	dataset_unref(ds);
}

struct open_call {
	struct leat_dataset *ds;
	const char *what;
	const struct leat_dataset_options *o;
	struct detail d;
	int rc;
};

static void open_fiber(void *arg)
{
	struct open_call *c = arg;
	c->rc = dataset_resolve(c->ds, c->what, c->o, &c->d);
	if (c->rc < 0 && c->ds->vol)
		c->d.origin = c->ds->vol->origin;
}

int leat_dataset_open(const char *what, const struct leat_dataset_options *opts,
		      struct leat_dataset **ret_dataset)
{
	struct leat_dataset_options o = {0};
	if (opts)
		memcpy(&o, opts, opts->size < sizeof(o) ? opts->size : sizeof(o));
	if (!what || !what[0] || strlen(what) > 4000 || o.threads > DATASET_THREADS_MAX)
		return error_say(-LE_INVAL,
				 "a directory or a name is needed, and at most %u threads",
				 DATASET_THREADS_MAX);
	struct leat_dataset *ds = calloc(1, sizeof(*ds));
	struct open_call *c = calloc(1, sizeof(*c));
	int rc = ds && c ? 0 : -LE_NOMEM;
	if (rc == 0) {
		*ds = (struct leat_dataset){.magic = DATASET_MAGIC,
					    .refs = 1,
					    .users = 1,
					    .pid = getpid(),
					    .lease_fd = -1};
		rc = io_init(&ds->io, o.fs, "leat-load-0");
	}
	if (rc == 0) {
		*c = (struct open_call){.ds = ds, .what = what, .o = &o};
		rc = io_run(&ds->io, open_fiber, c);
		if (rc == 0)
			rc = c->rc;
	}
	if (rc == 0)
		rc = unpacked_create(ds->x, o.unpack_bytes, &ds->unpacked, &c->d);
	if (rc == 0)
		rc = order_alone(ds);
	if (rc == 0)
		rc = dataset_start_readers(ds, o.threads);
	if (rc < 0) {
		error_set(rc, c ? &c->d : &(struct detail){0});
		if (ds)
			dataset_unuse(ds);
	} else {
		*ret_dataset = ds;
	}
	free(c);
	return rc;
}

void leat_dataset_close(struct leat_dataset *ds)
{
	if (ds)
		dataset_unuse(ds);
}

/* ---- properties ---- */

int leat_dataset_stat(const struct leat_dataset *ds, struct leat_dataset_stat *ret_stat)
{
	size_t size = ret_stat->size;
	struct leat_dataset_stat st = {.size = size,
				       .samples = ds->x->n_samples,
				       .files = ds->x->n_files,
				       .bytes = index_bytes(ds->x),
				       .order_word = ds->of.word,
				       .positions = ds->of.n,
				       .n_fields = ds->x->n_fields,
				       .n_classes = ds->x->n_classes};
	for (uint32_t i = 0; i < ds->x->n_files; i++)
		st.packed += dataset_is_packed(ds, i);
	memcpy(st.id, ds->id, sizeof(st.id));
	snprintf(st.format, sizeof(st.format), "%s",
		 ds->n_parts ? "mixture" : format_of(ds->x->format)->name);
	snprintf(st.source, sizeof(st.source), "%s", ds->source);
	memcpy(st.path, ds->root, sizeof(st.path));
	memcpy(ret_stat, &st, size < sizeof(st) ? size : sizeof(st));
	return 0;
}

const char *leat_dataset_field(const struct leat_dataset *ds, uint32_t i)
{
	return i < ds->x->n_fields ? index_string(ds->x, ds->x->fields[i]) : NULL;
}

const char *leat_dataset_field_type(const struct leat_dataset *ds, uint32_t i)
{
	return i < ds->x->n_fields ? index_string(ds->x, ds->x->types[i]) : NULL;
}

const char *leat_dataset_class(const struct leat_dataset *ds, uint32_t i)
{
	return i < ds->x->n_classes ? index_string(ds->x, ds->x->classes[i]) : NULL;
}

const char *leat_dataset_key(const struct leat_dataset *ds, uint64_t sample)
{
	return sample < ds->x->n_samples ? index_string(ds->x, ds->x->samples[sample].key) : NULL;
}

const char *leat_dataset_file(const struct leat_dataset *ds, uint32_t i)
{
	return i < ds->x->n_files ? index_string(ds->x, ds->x->files[i].path) : NULL;
}

int leat_dataset_left(const struct leat_dataset *ds, uint32_t i, struct leat_left *ret_left)
{
	if (i >= ds->x->n_left)
		return -LE_NOENT;
	size_t size = ret_left->size;
	const struct index_left *from = &ds->x->left[i];
	struct leat_left l = {.size = size,
			      .why = index_left_name(from->why),
			      .kind = index_string(ds->x, from->kind),
			      .first = index_string(ds->x, from->first),
			      .n = from->n,
			      .bytes = from->bytes};
	memcpy(ret_left, &l, size < sizeof(l) ? size : sizeof(l));
	return 0;
}

/* ---- order ---- */

struct leat_order {
	struct leat_dataset *ds; /* a reference */
	struct sequence s;
	uint64_t epoch;
	_Atomic pid_t pid;    /* the process that owns lock and tables; negative: it makes them */
	pthread_mutex_t lock; /* guards s: reading a mixture changes its tables */
};

/* A forked child may use an order. But a thread that the child does not have may hold the lock
 * or may have changed half of the tables, so the child makes new ones; the old tables leak. */
static int order_after_fork(struct leat_order *o)
{
	pid_t pid = getpid(), seen = o->pid;
	while (seen != pid) {
		/* A thread of this process makes them. One of another process does not exist here:
		 * that process was forked in the meantime. */
		if (seen == -pid || !atomic_compare_exchange_weak(&o->pid, &seen, -pid)) {
			sched_yield();
			seen = o->pid;
			continue;
		}
		struct sequence s;
		int rc = sequence_init(&s, &o->ds->of, o->s.mode, o->s.window, o->s.seed);
		if (rc == 0) {
			o->s = s;
			pthread_mutex_init(&o->lock, NULL);
		}
		o->pid = rc < 0 ? seen : pid;
		return rc;
	}
	return 0;
}

int leat_order_open(const struct leat_dataset *ds, const char *mode, uint64_t seed, uint64_t epoch,
		    uint32_t batch, struct leat_order **ret_order)
{
	enum order_mode m;
	uint32_t window;
	uint64_t sample;
	if (order_mode_parse(mode ? mode : "global", &m, &window) < 0)
		return error_say(-LE_INVAL,
				 "order is global, window, window:N, sequential or file, not %s",
				 mode);
	if (window == 0)
		window = order_default_window(ds->x->n_samples, ds->x->n_files, batch ? batch : 1);
	struct leat_order *o = calloc(1, sizeof(*o));
	if (!o)
		return error_say(-LE_NOMEM, "out of memory");
	int rc = sequence_init(&o->s, &ds->of, m, window, seed);
	/* Makes the tables of a single data set now; they never change. */
	if (rc == 0 && ds->of.n)
		rc = sequence_at(&o->s, epoch, 0, &sample);
	if (rc < 0) {
		sequence_fini(&o->s);
		free(o);
		return error_say(rc, "order: %s", status_text(rc));
	}
	o->ds = (struct leat_dataset *)ds; /* only its reference count is written */
	dataset_ref(o->ds);
	o->epoch = epoch;
	o->pid = getpid();
	pthread_mutex_init(&o->lock, NULL);
	*ret_order = o;
	return 0;
}

int64_t leat_order_at(const struct leat_order *order, uint64_t position)
{
	struct leat_order *o = (struct leat_order *)order;
	uint64_t sample = 0;
	if (position >= o->ds->of.n)
		return -1;
	if (o->ds->of.mixed && o->pid != getpid())
		TRY(order_after_fork(o));
	if (o->ds->of.mixed)
		pthread_mutex_lock(&o->lock);
	int rc = sequence_at(&o->s, o->epoch, position, &sample);
	if (o->ds->of.mixed)
		pthread_mutex_unlock(&o->lock);
	return rc < 0 ? rc : (int64_t)sample;
}

void leat_order_close(struct leat_order *order)
{
	if (!order)
		return;
	sequence_fini(&order->s);
	pthread_mutex_destroy(&order->lock);
	dataset_unref(order->ds);
	free(order);
}
