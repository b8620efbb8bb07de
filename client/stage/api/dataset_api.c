/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls for data sets: making, listing, showing and removing manifests with a name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dataset/catalog.h"
#include "client/dataset/formats/format.h"
#include "client/dataset/formats/format_table.h"
#include "client/dataset/index_build.h"
#include "client/dataset/manifest_file.h"
#include "client/include/leat/leat_stage.h"
#include "client/stage/in/stage_manifest.h"
#include "client/stage/job/job.h"
#include "client/stage/seal.h"

struct info_call {
	struct stage_io io;
	struct stage_job *job; /* for create */
	const char *catalog, *alias;
	int (*each)(void *arg, const struct leat_dataset_info *i);
	void *arg;
	struct leat_dataset_info info;
	int rc;
};

/* Lists as many whole names as fit. */
static void fill_fields(struct leat_dataset_info *i, const struct sample_index *x)
{
	size_t used = 0;
	i->n_fields = x->n_fields;
	i->n_classes = x->n_classes;
	for (uint32_t f = 0; f < x->n_fields; f++) {
		const char *name = index_string(x, x->fields[f]);
		size_t len = strlen(name) + (used > 0);
		if (len >= sizeof(i->fields) - used)
			return;
		used += (size_t)snprintf(i->fields + used, sizeof(i->fields) - used, "%s%s",
					 used ? "\n" : "", name);
	}
}

static void fill_left(struct leat_dataset_info *i, const struct sample_index *x)
{
	_Static_assert(LEAT_LEFT_MAX == INDEX_LEFT_MAX, "room for all");
	for (i->n_left = 0; i->n_left < x->n_left; i->n_left++) {
		const struct index_left *from = &x->left[i->n_left];
		struct leat_dataset_left *to = &i->left[i->n_left];
		snprintf(to->why, sizeof(to->why), "%s", index_left_name(from->why));
		snprintf(to->kind, sizeof(to->kind), "%s", index_string(x, from->kind));
		snprintf(to->first, sizeof(to->first), "%s", index_string(x, from->first));
		to->n = from->n;
		to->bytes = from->bytes;
	}
}

static void fill_info(struct leat_dataset_info *i, const struct manifest *m,
		      const struct sample_index *x)
{
	memset(i, 0, sizeof(*i));
	i->size = sizeof(*i);
	memcpy(i->id, m->id, sizeof(i->id));
	memcpy(i->name, m->name, sizeof(m->name));
	memcpy(i->version, m->version, sizeof(m->version));
	memcpy(i->source, m->source, sizeof(i->source));
	_Static_assert(sizeof(i->made_host) == sizeof(m->host), "the same room");
	memcpy(i->made_host, m->host, sizeof(i->made_host));
	i->files = m->n_files;
	i->bytes = m->bytes;
	if (x) {
		i->samples = x->n_samples;
		snprintf(i->format, sizeof(i->format), "%s", format_of(x->format)->name);
		fill_fields(i, x);
		fill_left(i, x);
	}
}

static int show(struct info_call *c, const char *alias)
{
	char id[MANIFEST_ID_SIZE], dir[4096];
	struct manifest *m;
	struct sample_index *x = NULL;
	struct detail ignored = {0};
	struct vol *v = io_source(&c->io);
	TRY(catalog_find(v, c->catalog, alias, id, dir));
	TRY(manifest_load(v, dir, &m, &ignored));
	if (samples_load(v, dir, &x) < 0)
		x = NULL;
	fill_info(&c->info, m, x);
	c->info.sealed = catalog_is_sealed(v, dir);
	manifest_destroy(m);
	index_destroy(x);
	return catalog_made(v, c->catalog, alias, &c->info.made_ns, &c->info.made_uid);
}

static void show_fiber(void *arg)
{
	struct info_call *c = arg;
	c->rc = show(c, c->alias);
}

/* Describes a name without a manifest, or with one that this user may not read. -LE_NOENT: the
 * name was removed meanwhile. */
static int show_name(struct info_call *c, const char *alias, bool denied)
{
	struct leat_dataset_info *i = &c->info;
	memset(i, 0, sizeof(*i));
	i->size = sizeof(*i);
	i->damaged = !denied;
	i->denied = denied;
	int rc = catalog_lookup(io_source(&c->io), c->catalog, alias, i->id);
	if (rc < 0 && rc != -LE_CORRUPT)
		return rc;
	TRY(catalog_made(io_source(&c->io), c->catalog, alias, &i->made_ns, &i->made_uid));
	return manifest_parse_alias(alias, i->name, i->version);
}

static int show_one(void *arg, const char *alias)
{
	struct info_call *c = arg;
	int rc = show(c, alias);
	if (rc == -LE_NOENT || rc == -LE_CORRUPT || rc == -LE_ACCES)
		rc = show_name(c, alias, rc == -LE_ACCES);
	if (rc == -LE_NOENT)
		return 0;
	TRY(rc);
	return c->each(c->arg, &c->info);
}

static void list_fiber(void *arg)
{
	struct info_call *c = arg;
	c->rc = catalog_list(io_source(&c->io), c->catalog, show_one, c);
}

static void remove_fiber(void *arg)
{
	struct info_call *c = arg;
	c->rc = catalog_remove(io_source(&c->io), c->catalog, c->alias);
}

static int run(struct leat_fs *fs, struct info_call *c, void (*fn)(void *arg))
{
	if (!c->catalog)
		c->catalog = CATALOG_DEFAULT;
	TRY(io_init(&c->io, fs, "leat-dataset"));
	int rc = io_run(&c->io, fn, c);
	io_fini(&c->io);
	return rc < 0 ? rc : c->rc;
}

static void give_info(struct leat_dataset_info *to, const struct leat_dataset_info *from)
{
	size_t size = to->size;
	memcpy(to, from, size < sizeof(*from) ? size : sizeof(*from));
	to->size = size;
}

int leat_dataset_list(struct leat_fs *fs, const char *catalog,
		      int (*each)(void *arg, const struct leat_dataset_info *i), void *arg)
{
	struct info_call c = {.catalog = catalog, .each = each, .arg = arg};
	return run(fs, &c, list_fiber);
}

int leat_dataset_show(struct leat_fs *fs, const char *catalog, const char *alias,
		      struct leat_dataset_info *ret_info)
{
	struct info_call c = {.catalog = catalog, .alias = alias};
	TRY(run(fs, &c, show_fiber));
	give_info(ret_info, &c.info);
	return 0;
}

int leat_dataset_remove(struct leat_fs *fs, const char *catalog, const char *alias)
{
	struct info_call c = {.catalog = catalog, .alias = alias};
	return run(fs, &c, remove_fiber);
}

/* ---- create ---- */

struct create_call {
	struct stage_job *job;
	const char *alias;
	struct leat_dataset_info info;
};

static int build_samples(struct stage_job *job, struct sample_index **ret_index)
{
	struct files_entry *entries = calloc((size_t)job->m->n_files + 1, sizeof(*entries));
	if (!entries)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < job->m->n_files; i++)
		entries[i] = (struct files_entry){job->m->files[i].path, job->m->files[i].size};
	struct index_source from = {entries, job->m->n_files, job->o.format};
	int rc = index_build(io_source(&job->io), job->o.source, &from, ret_index, &job->d);
	free(entries);
	return rc;
}

/* The host name of this machine; "" if it does not fit. */
static void take_host(char host[MANIFEST_HOST_SIZE])
{
	char name[256] = "";
	if (gethostname(name, sizeof(name) - 1) < 0 || strlen(name) >= MANIFEST_HOST_SIZE)
		name[0] = 0;
	snprintf(host, MANIFEST_HOST_SIZE, "%s", name);
}

static int create(struct create_call *c)
{
	struct stage_job *job = c->job;
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	struct sample_index *x = NULL;
	char id[MANIFEST_ID_SIZE];
	if (catalog_lookup(io_source(&job->io), catalog, c->alias, id) == 0)
		return detail_set(&job->d, -LE_EXIST, c->alias, UINT64_MAX,
				  "there is a data set of this name");
	TRY(stage_find_manifest(job));
	TRY(manifest_parse_alias(c->alias, job->m->name, job->m->version));
	take_host(job->m->host);
	TRY(build_samples(job, &x));
	int rc = catalog_add(io_source(&job->io), catalog, job->m, x);
	if (rc == 0)
		fill_info(&c->info, job->m, x);
	/* The data set exists, so an unknown time is no failure. */
	if (rc == 0 && catalog_made(io_source(&job->io), catalog, c->alias, &c->info.made_ns,
				    &c->info.made_uid) < 0)
		c->info.made_ns = 0;
	index_destroy(x);
	return rc;
}

static void create_fiber(void *arg)
{
	struct create_call *c = arg;
	struct stage_job *job = c->job;
	job->start_us = env_now_us(job->io.env);
	int rc = create(c);
	if (rc < 0) {
		detail_set(&job->d, rc, job->o.source, UINT64_MAX, "%s", status_text(rc));
		stage_code_of_source(job, rc);
	}
	job->r->elapsed_us = env_now_us(job->io.env) - job->start_us;
}

int leat_dataset_create(const struct leat_stage_options *opts, const char *alias,
			struct leat_dataset_info *ret_info, struct leat_stage_result *ret_result)
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	struct create_call c = {.alias = alias};
	TRY(stage_job_create(opts, &c.job));
	c.job->o.to = NULL;
	if (manifest_parse_alias(alias, name, version) < 0 || !c.job->o.source ||
	    c.job->o.source[0] != '/')
		stage_fail(c.job,
			   detail_set(&c.job->d, -LE_INVAL, alias, UINT64_MAX,
				      "a name (letters, digits, . _ - and @version) and an "
				      "absolute directory "
				      "are needed"),
			   LEAT_STAGE_USAGE);
	int rc = stage_job_run(c.job, create_fiber, &c, ret_result);
	if (rc == 0)
		give_info(ret_info, &c.info);
	return rc;
}

/* ---- seal ---- */

static void seal_fiber(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	job->start_us = env_now_us(job->io.env);
	int rc = stage_seal(job);
	if (rc < 0) {
		detail_set(&job->d, rc, job->o.source, UINT64_MAX, "%s", status_text(rc));
		stage_code_of_source(job, rc);
	}
	job->r->elapsed_us = env_now_us(job->io.env) - job->start_us;
}

int leat_dataset_seal(const struct leat_stage_options *opts, const char *alias,
		      struct leat_stage_result *ret_result)
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	struct stage_job *job;
	TRY(stage_job_create(opts, &job));
	job->o.to = NULL;
	job->o.source = alias;
	if (manifest_parse_alias(alias, name, version) < 0)
		stage_fail(job,
			   detail_set(&job->d, -LE_INVAL, alias, UINT64_MAX,
				      "the name of a data set is needed"),
			   LEAT_STAGE_USAGE);
	return stage_job_run(job, seal_fiber, job, ret_result);
}
