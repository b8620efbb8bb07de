/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which a node's ranks will read, as a plan of chunks: the samples of one epoch, step
 * by step, each chunk at its first use, then all chunks that no rank reads in that epoch. A pure
 * function of the data set and the options, from the loader's order (loader/ORDER.md).
 */
#include "client/stage/in/stage_order.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/catalog.h"
#include "client/dataset/index_build.h"
#include "client/dataset/order.h"
#include "client/stage/job/job.h"

#define WINDOW_DEFAULT (1ULL << 30)
#define YIELD_EVERY    4096u

struct wanted {
	uint64_t seed, batch, world, epoch, first_rank, last_rank;
	enum order_mode mode;
	uint32_t window;
	bool ranks;
};

static bool number(const char *text, uint64_t max, uint64_t *ret)
{
	char *end;
	errno = 0;
	if (text[0] < '0' || text[0] > '9')
		return false;
	*ret = strtoull(text, &end, 10);
	return errno == 0 && *end == 0 && *ret <= max;
}

static bool take_ranks(struct wanted *w, char *text)
{
	char *dash = strchr(text, '-');
	if (dash)
		*dash = 0;
	w->ranks = true;
	return number(text, ORDER_BATCH_MAX, &w->first_rank) &&
	       number(dash ? dash + 1 : text, ORDER_BATCH_MAX, &w->last_rank);
}

static bool take_member(struct wanted *w, char *text)
{
	char *value = strchr(text, '=');
	if (!value)
		return false;
	*value++ = 0;
	if (strcmp(text, "seed") == 0)
		return number(value, UINT64_MAX, &w->seed);
	if (strcmp(text, "batch") == 0)
		return number(value, ORDER_BATCH_MAX, &w->batch);
	if (strcmp(text, "world") == 0)
		return number(value, ORDER_BATCH_MAX, &w->world);
	if (strcmp(text, "epoch") == 0)
		return number(value, UINT64_MAX, &w->epoch);
	if (strcmp(text, "rank") == 0)
		return take_ranks(w, value);
	if (strcmp(text, "mode") == 0)
		return order_mode_parse(value, &w->mode, &w->window) == 0;
	return false;
}

/* Sets the ranks of the node. Like schedulers, it gives each node the same number of consecutive
 * ranks; with fewer ranks than nodes several nodes share one. */
static void ranks_of_node(struct wanted *w, uint32_t node, uint32_t n_nodes)
{
	w->first_rank = 0;
	w->last_rank = w->world - 1;
	if (n_nodes == 0)
		return;
	w->first_rank = w->world * node / n_nodes;
	uint64_t end = w->world * (node + 1) / n_nodes;
	w->last_rank = end > w->first_rank ? end - 1 : w->first_rank;
}

static bool parse(const char *text, uint32_t node, uint32_t n_nodes, struct wanted *w)
{
	char copy[256], *rest = copy, *member;
	*w = (struct wanted){.batch = 1, .world = 1, .mode = ORDER_WINDOW};
	if (strlen(text) >= sizeof(copy))
		return false;
	snprintf(copy, sizeof(copy), "%s", text);
	while ((member = strsep(&rest, ",")) != NULL)
		if (!take_member(w, member))
			return false;
	if (w->world > 0 && !w->ranks)
		ranks_of_node(w, node, n_nodes);
	return w->world > 0 && w->batch > 0 && w->batch % w->world == 0 &&
	       w->first_rank <= w->last_rank && w->last_rank < w->world;
}

/* Loads the sample index beside the manifest in the catalogue, or makes one of the source. */
static int load_index(struct stage_job *job, struct sample_index **ret_x)
{
	struct vol *v = io_source(&job->io);
	char dir[4096], id[MANIFEST_ID_SIZE];
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	if (job->o.source[0] != '/' && catalog_find(v, catalog, job->o.source, id, dir) == 0 &&
	    strcmp(id, job->m->id) == 0 && samples_load(v, dir, ret_x) == 0)
		return 0;
	struct files_entry *entries = calloc((size_t)job->m->n_files + 1, sizeof(*entries));
	if (!entries)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < job->m->n_files; i++)
		entries[i] = (struct files_entry){job->m->files[i].path, job->m->files[i].size};
	struct index_source from = {entries, job->m->n_files, job->o.format};
	int rc = index_build(v, job->o.source[0] == '/' ? job->o.source : job->m->source, &from,
			     ret_x, &job->d);
	free(entries);
	return rc;
}

struct planning {
	struct stage_job *job;
	const struct sample_index *x;
	uint8_t *seen;
	uint32_t *file; /* maps a file of the index to that of the manifest */
	uint64_t n_samples;
};

static void add_chunk(struct planning *p, uint64_t chunk)
{
	if (p->seen[chunk / 8] >> (chunk % 8) & 1)
		return;
	p->seen[chunk / 8] |= (uint8_t)(1u << chunk % 8);
	p->job->plan[p->job->n_plan++] = chunk;
}

static void add_sample(struct planning *p, uint64_t sample)
{
	const struct index_sample *s = &p->x->samples[sample];
	const struct manifest_file *f = &p->job->m->files[p->file[s->file]];
	bool packed = p->x->files[s->file].packing != PACKED_NOT;
	/* Reading a packed file requires everything before the sample. */
	if (packed && f->size && !(p->seen[f->first_chunk / 8] >> (f->first_chunk % 8) & 1)) {
		for (uint64_t c = 0; c * MANIFEST_CHUNK < f->size; c++)
			add_chunk(p, f->first_chunk + c);
	}
	for (uint64_t i = s->first; !packed && i < s[1].first; i++) {
		const struct index_member *m = &p->x->members[i];
		/* A member beyond the end cannot come from a file of this size. */
		if (m->len == 0 || m->off >= f->size || m->len > f->size - m->off)
			continue;
		for (uint64_t c = m->off / MANIFEST_CHUNK;
		     c <= (m->off + m->len - 1) / MANIFEST_CHUNK; c++)
			add_chunk(p, f->first_chunk + c);
	}
	if (++p->n_samples % YIELD_EVERY == 0)
		fiber_yield();
}

static void add_epoch(struct planning *p, const struct wanted *w, const struct order *o)
{
	struct order_deal d = {o->n, (uint32_t)w->batch, (uint32_t)w->world, ORDER_TAIL_SHORTER};
	uint64_t steps = order_steps(&d);
	for (uint64_t step = 0; step < steps && !p->job->stop; step++) {
		for (uint64_t rank = w->first_rank; rank <= w->last_rank; rank++) {
			uint64_t from;
			uint32_t n;
			order_share(&d, step, (uint32_t)rank, &from, &n);
			for (uint32_t i = 0; i < n; i++)
				add_sample(p, order_at(o, (from + i) % o->n));
		}
	}
}

static int match_files(struct planning *p)
{
	p->file = calloc((size_t)p->x->n_files + 1, sizeof(*p->file));
	if (!p->file)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < p->x->n_files; i++) {
		int64_t f = manifest_find(p->job->m, index_string(p->x, p->x->files[i].path));
		if (f < 0)
			return detail_set(&p->job->d, -LE_CORRUPT, p->job->o.source, UINT64_MAX,
					  "the sample index does not belong to the manifest: make "
					  "the data set "
					  "anew (leat dataset create)");
		p->file[i] = (uint32_t)f;
	}
	return 0;
}

static int make_plan(struct planning *p, const struct wanted *w)
{
	const struct sample_index *x = p->x;
	uint64_t *firsts = index_shard_firsts(x);
	uint32_t batch = (uint32_t)w->batch;
	struct order_spec spec = {
		.mode = w->mode,
		.window = w->window ? w->window
				    : order_default_window(x->n_samples, x->n_files, batch),
		.seed = w->seed,
		.epoch = w->epoch,
		.dataset = index_order_word(x),
		.n = x->n_samples,
		.n_shards = x->n_files,
		.shard_first = firsts};
	struct order o;
	int rc = firsts ? match_files(p) : -LE_NOMEM;
	if (rc == 0)
		rc = order_init(&o, &spec);
	if (rc == 0) {
		add_epoch(p, w, &o);
		order_fini(&o);
		for (uint64_t c = 0; c < p->job->m->n_chunks; c++)
			add_chunk(p, c);
	}
	free(firsts);
	return rc;
}

/* Sets how many chunks at the beginning of the plan are the first window. */
static void mark_window(struct stage_job *job)
{
	uint64_t bytes = job->o.first_window ? job->o.first_window : WINDOW_DEFAULT, sum = 0, n = 0;
	uint64_t n_plan = job->plan ? job->n_plan : job->m->n_chunks;
	for (; n < n_plan && sum < bytes; n++) {
		uint64_t chunk = job->plan ? job->plan[n] : n;
		const struct manifest_file *f =
			&job->m->files[manifest_file_of_chunk(job->m, chunk)];
		sum += manifest_chunk_len(f, chunk - f->first_chunk);
	}
	job->n_window = n;
}

static int plan_of(struct stage_job *job, const struct wanted *w)
{
	struct sample_index *x = NULL;
	struct planning p = {.job = job};
	TRY(load_index(job, &x));
	p.x = x;
	p.seen = calloc(1, job->m->n_chunks / 8 + 1);
	job->plan = malloc((job->m->n_chunks + 1) * sizeof(*job->plan));
	int rc = p.seen && job->plan ? make_plan(&p, w) : -LE_NOMEM;
	free(p.seen);
	free(p.file);
	index_destroy(x);
	return rc;
}

int stage_order(struct stage_job *job)
{
	struct wanted w;
	int rc = 0;
	if (job->o.order && !parse(job->o.order, job->node, job->n_nodes, &w)) {
		stage_fail(job,
			   detail_set(&job->d, -LE_INVAL, job->o.order, UINT64_MAX,
				      "the order is written seed=N,batch=N,world=N,rank=N-N,"
				      "epoch=N,mode=MODE; world divides batch"),
			   LEAT_STAGE_USAGE);
		return job->rc;
	}
	if (job->o.order)
		rc = plan_of(job, &w);
	if (rc < 0)
		stage_code_of_source(job, rc);
	else
		mark_window(job);
	return rc;
}
