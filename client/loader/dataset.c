#include "client/loader/dataset.h"
#include "client/loader/formats/format.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"

/* ---- errors ---- */

static _Thread_local struct leat_error last_error = {.origin = ""};

const struct leat_error *leat_last_error(void)
{
	return &last_error;
}

int error_say(int rc, const char *fmt, ...)
{
	struct leat_error *e = &last_error;
	va_list ap;
	*e = (struct leat_error){.status = rc, .origin = "", .offset = UINT64_MAX};
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	return rc;
}

int error_set(int rc, const struct detail *d)
{
	static const char *const origins[] = {"", "local", "server"};
	struct leat_error *e = &last_error;
	const char *what = d->what[0] ? d->what : status_text(rc);
	*e = (struct leat_error){.status = rc, .origin = origins[d->origin], .offset = d->off};
	memcpy(e->path, d->path, sizeof(e->path));
	if (d->path[0] && d->off != UINT64_MAX)
		snprintf(e->message, sizeof(e->message), "%.200s at offset %llu: %s", d->path,
			 (unsigned long long)d->off, what);
	else if (d->path[0])
		snprintf(e->message, sizeof(e->message), "%.230s: %s", d->path, what);
	else
		snprintf(e->message, sizeof(e->message), "%s", what);
	return rc;
}

int dataset_check_pid(const struct leat_dataset *ds)
{
	if (getpid() == ds->pid)
		return 0;
	return error_say(
		-LE_NOTSUP,
		"the data set was opened by process %d and this is its forked child: open it "
		"here, or start the child by spawn",
		(int)ds->pid);
}

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

static void reader_fini_fiber(void *arg)
{
	reader_fini(arg);
}

static void end_io(struct leat_dataset *ds)
{
	for (uint32_t i = 0; i < ds->n_readers; i++) {
		int rc = loop_call(dataset_loop(ds, i), "reader_fini", reader_fini_fiber,
				   &ds->readers[i]);
		(void)rc; /* a loop that has stopped has no files any more */
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
	index_destroy(ds->x);
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
	if (atomic_fetch_sub(&ds->refs, 1) == 1)
		destroy(ds);
}

void dataset_use(struct leat_dataset *ds)
{
	atomic_fetch_add(&ds->users, 1);
	dataset_ref(ds);
}

void dataset_unuse(struct leat_dataset *ds)
{
	/* In a forked child the threads do not exist: nothing is ended there, only memory goes. */
	if (atomic_fetch_sub(&ds->users, 1) == 1 && getpid() == ds->pid)
		end_io(ds);
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
	if (rc == 0 && !o.fs && o.threads > 1)
		rc = start_extra(ds, o.threads - 1);
	if (rc < 0) {
		error_set(rc, c ? &c->d : &(struct detail){0});
		if (ds)
			dataset_unuse(ds);
	} else {
		ds->order_word = index_order_word(ds->x);
		ds->n_readers = dataset_n_loops(ds);
		for (uint32_t i = 0; i < ds->n_readers; i++)
			reader_init(&ds->readers[i], ds, dataset_loop(ds, i));
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

/* ---- what it is ---- */

int leat_dataset_stat(const struct leat_dataset *ds, struct leat_dataset_stat *ret_stat)
{
	size_t size = ret_stat->size;
	struct leat_dataset_stat st = {.size = size,
				       .samples = ds->x->n_samples,
				       .files = ds->x->n_files,
				       .bytes = index_bytes(ds->x),
				       .order_word = ds->order_word,
				       .n_fields = ds->x->n_fields,
				       .n_classes = ds->x->n_classes};
	memcpy(st.id, ds->id, sizeof(st.id));
	snprintf(st.format, sizeof(st.format), "%s", format_of(ds->x->format)->name);
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

/* ---- order ---- */

struct leat_order {
	struct order order;
};

int leat_order_open(const struct leat_dataset *ds, const char *mode, uint64_t seed, uint64_t epoch,
		    uint32_t batch, struct leat_order **ret_order)
{
	struct order_spec spec = {.seed = seed,
				  .epoch = epoch,
				  .dataset = ds->order_word,
				  .n = ds->x->n_samples,
				  .n_shards = ds->x->n_files};
	if (order_mode_parse(mode ? mode : "global", &spec.mode, &spec.window) < 0)
		return error_say(-LE_INVAL,
				 "order is global, window, window:N, sequential or file, not %s",
				 mode);
	if (spec.window == 0)
		spec.window = order_default_window(spec.n, spec.n_shards, batch ? batch : 1);
	uint64_t *first = index_shard_firsts(ds->x);
	struct leat_order *o = malloc(sizeof(*o));
	int rc = first && o ? 0 : -LE_NOMEM;
	spec.shard_first = first;
	if (rc == 0)
		rc = order_init(&o->order, &spec);
	free(first);
	if (rc < 0) {
		free(o);
		return error_say(rc, "order: %s", status_text(rc));
	}
	*ret_order = o;
	return 0;
}

int64_t leat_order_at(const struct leat_order *order, uint64_t position)
{
	return position < order->order.n ? (int64_t)order_at(&order->order, position) : -1;
}

void leat_order_close(struct leat_order *order)
{
	if (order)
		order_fini(&order->order);
	free(order);
}
