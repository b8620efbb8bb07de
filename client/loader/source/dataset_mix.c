/* SPDX-License-Identifier: Apache-2.0 */
/* A mixture: one index over the files of several data sets. Each file is read where its part has
 * it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/loader/source/dataset.h"
#include "client/loader/source/dataset_facts.h"
#include "client/loader/source/last_error.h"
#include "common/base/checksum.h"
#include "common/base/hmap.h"

/* ---- one index of several ---- */

static void count(struct sample_index *to, const struct sample_index *from)
{
	to->n_files += from->n_files;
	to->n_samples += from->n_samples;
	to->n_members += from->n_members;
	to->n_classes += from->n_classes;
	to->n_fields += from->n_fields;
	to->strings_len += from->strings_len;
}

/* Allocates the arrays for the counted entries and resets the counts. */
static int make_space(struct sample_index *x)
{
	x->files = calloc((size_t)x->n_files + 1, sizeof(*x->files));
	x->samples = calloc(x->n_samples + 1, sizeof(*x->samples));
	x->members = calloc(x->n_members + 1, sizeof(*x->members));
	x->classes = calloc((size_t)x->n_classes + 1, sizeof(*x->classes));
	x->fields = calloc((size_t)x->n_fields + 1, sizeof(*x->fields));
	x->types = calloc((size_t)x->n_fields + 1, sizeof(*x->types));
	x->strings = calloc(1, x->strings_len + 1);
	if (!x->files || !x->samples || !x->members || !x->classes || !x->fields || !x->types ||
	    !x->strings)
		return -LE_NOMEM;
	x->n_files = x->n_classes = x->n_fields = 0;
	x->n_samples = x->n_members = 0;
	x->strings_len = 1; /* "" at 0 */
	return 0;
}

/* Fields with the same name become one field and must have the same type. */
static int add_fields(struct sample_index *to, const struct sample_index *from,
		      uint32_t *ret_map)
{
	uint64_t base = to->strings_len;
	for (uint32_t f = 0; f < from->n_fields; f++) {
		const char *type = index_string(from, from->types[f]);
		int k = index_field(to, index_string(from, from->fields[f]));
		if (k < 0) {
			if (to->n_fields == INDEX_FIELDS_MAX)
				return -LE_2BIG;
			k = (int)to->n_fields;
			to->fields[k] = base + from->fields[f];
			to->types[k] = base + from->types[f];
			TRY(index_know_field(to, to->n_fields++));
		} else if (strcmp(type, index_string(to, to->types[k])) != 0) {
			to->types[k] = 0;
		}
		ret_map[f] = (uint32_t)k;
	}
	return 0;
}

/* The classes so far, by name. */
struct names {
	struct hmap map;
	struct hmap_node *nodes; /* the i-th of class i; as many as all parts have classes */
};

static int32_t class_of(struct sample_index *to, struct names *names, uint64_t string)
{
	const char *name = index_string(to, string);
	uint64_t hash = checksum64(name, strlen(name));
	for (struct hmap_node *n = hmap_find(&names->map, hash); n; n = hmap_find_next(n)) {
		int32_t c = (int32_t)(n - names->nodes);
		if (strcmp(index_string(to, to->classes[c]), name) == 0)
			return c;
	}
	to->classes[to->n_classes] = string;
	hmap_insert(&names->map, &names->nodes[to->n_classes], hash);
	return (int32_t)to->n_classes++;
}

static void add_samples(struct sample_index *to, const struct sample_index *from,
			const uint32_t *fields, const int32_t *classes)
{
	uint64_t base = to->strings_len;
	for (uint32_t i = 0; i < from->n_files; i++) {
		to->files[to->n_files + i] = from->files[i];
		to->files[to->n_files + i].path += base;
		to->files[to->n_files + i].first += to->n_samples;
	}
	for (uint64_t i = 0; i < from->n_samples; i++) {
		struct index_sample *s = &to->samples[to->n_samples + i];
		*s = from->samples[i];
		s->first += to->n_members;
		s->key += base;
		s->file += to->n_files;
		s->label = s->label >= 0 ? classes[s->label] : -1;
	}
	for (uint64_t i = 0; i < from->n_members; i++) {
		struct index_member *m = &to->members[to->n_members + i];
		*m = from->members[i];
		m->field = fields[m->field] & INDEX_FIELDS_MAX;
	}
	to->n_files += from->n_files;
	to->n_samples += from->n_samples;
	to->n_members += from->n_members;
	to->strings_len += from->strings_len;
	to->files[to->n_files].first = to->n_samples;
	to->samples[to->n_samples].first = to->n_members;
}

static int add_index(struct sample_index *to, const struct sample_index *from, struct names *names)
{
	uint32_t *fields = calloc((size_t)from->n_fields + 1, sizeof(*fields));
	int32_t *classes = calloc((size_t)from->n_classes + 1, sizeof(*classes));
	uint64_t base = to->strings_len;
	int rc = fields && classes ? 0 : -LE_NOMEM;
	if (rc == 0) {
		memcpy(to->strings + base, from->strings, from->strings_len);
		rc = add_fields(to, from, fields);
	}
	for (uint32_t c = 0; rc == 0 && c < from->n_classes; c++)
		classes[c] = class_of(to, names, base + from->classes[c]);
	if (rc == 0)
		add_samples(to, from, fields, classes);
	free(fields);
	free(classes);
	return rc;
}

static int add_indexes(struct leat_dataset *ds, const struct leat_mix_part *parts, uint32_t n,
		       uint32_t n_classes)
{
	struct sample_index *x = ds->x;
	struct names names = {.nodes = calloc((size_t)n_classes + 1, sizeof(*names.nodes))};
	int rc = names.nodes ? 0 : -LE_NOMEM;
	hmap_init(&names.map, 64);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		ds->part_file[i] = x->n_files;
		rc = add_index(x, parts[i].ds->x, &names);
		memset(ds->part_of_file + ds->part_file[i], (int)i, x->n_files - ds->part_file[i]);
	}
	hmap_fini(&names.map);
	free(names.nodes);
	return rc;
}

static int join_indexes(struct leat_dataset *ds, const struct leat_mix_part *parts, uint32_t n)
{
	struct sample_index *x = ds->x = calloc(1, sizeof(*x));
	uint64_t files = 0, classes = 0;
	if (!x)
		return -LE_NOMEM;
	x->strings_len = 1;
	for (uint32_t i = 0; i < n; i++) {
		count(x, parts[i].ds->x);
		files += parts[i].ds->x->n_files;
		classes += parts[i].ds->x->n_classes;
	}
	if (files > INDEX_FILES_MAX || x->n_samples > INDEX_SAMPLES_MAX || classes > INT32_MAX)
		return -LE_2BIG;
	TRY(make_space(x));
	ds->part_of_file = calloc(files + 1, 1);
	if (!ds->part_of_file)
		return -LE_NOMEM;
	return add_indexes(ds, parts, n, (uint32_t)classes);
}

/* ---- open ---- */

static int order_together(struct leat_dataset *ds, const struct leat_mix_part *parts, uint32_t n,
			  uint64_t epoch)
{
	TRY(sequence_of_init(&ds->of, n));
	for (uint32_t i = 0; i < n; i++) {
		const struct sequence_part *from = &parts[i].ds->of.parts[0];
		struct sequence_part *p = &ds->of.parts[i];
		p->word = from->word;
		p->n = from->n;
		p->weight = parts[i].weight ? parts[i].weight : from->n;
		p->n_shards = from->n_shards;
		p->shard_first = index_shard_firsts(parts[i].ds->x);
		if (!p->shard_first)
			return -LE_NOMEM;
		ds->content = order_fold(ds->content, parts[i].ds->content);
	}
	int rc = sequence_of_finish(&ds->of, true, epoch);
	return rc == -LE_INVAL
		       ? error_say(rc,
				   "each part needs samples, and the weights together are at most "
				   "%llu",
				   (unsigned long long)MIX_WEIGHT_MAX)
		       : rc;
}

static int check_parts(const struct leat_mix_part *parts, uint32_t n, struct leat_fs **ret_fs)
{
	*ret_fs = NULL;
	if (n == 0 || n > MIX_PARTS_MAX)
		return error_say(-LE_INVAL, "a mixture has 1 to %u parts", MIX_PARTS_MAX);
	for (uint32_t i = 0; i < n; i++) {
		const struct leat_dataset *p = parts[i].ds;
		TRY(dataset_check_pid(p));
		if (p->n_parts)
			return error_say(-LE_INVAL, "a mixture cannot be part of another");
		if (p->io.fs && *ret_fs && p->io.fs != *ret_fs)
			return error_say(-LE_INVAL,
					 "parts on Leat must be on the same file system");
		if (p->io.fs)
			*ret_fs = p->io.fs;
	}
	return 0;
}

static int open_mix(struct leat_dataset *ds, const struct leat_mix_part *parts, uint32_t n,
		    const struct leat_mix_options *o)
{
	TRY(join_indexes(ds, parts, n));
	TRY(order_together(ds, parts, n, o->epoch));
	TRY(dataset_start_readers(ds, o->threads));
	ds->source = "mixture";
	for (; ds->n_parts < n; ds->n_parts++) {
		ds->parts[ds->n_parts] = parts[ds->n_parts].ds;
		dataset_use(ds->parts[ds->n_parts]);
	}
	return 0;
}

int leat_dataset_mix(const struct leat_mix_part *parts, uint32_t n_parts,
		     const struct leat_mix_options *opts, struct leat_dataset **ret_dataset)
{
	struct leat_mix_options o = {0};
	struct leat_fs *fs;
	if (opts)
		memcpy(&o, opts, opts->size < sizeof(o) ? opts->size : sizeof(o));
	error_say(0, "%s", "");
	TRY(check_parts(parts, n_parts, &fs));
	if (o.threads > DATASET_THREADS_MAX)
		return error_say(-LE_INVAL, "at most %u threads", DATASET_THREADS_MAX);
	struct leat_dataset *ds = calloc(1, sizeof(*ds));
	if (!ds)
		return error_say(-LE_NOMEM, "out of memory");
	*ds = (struct leat_dataset){
		.magic = DATASET_MAGIC, .refs = 1, .users = 1, .pid = getpid(), .lease_fd = -1};
	int rc = io_init(&ds->io, fs, "leat-load-0");
	if (rc == 0)
		rc = open_mix(ds, parts, n_parts, &o);
	if (rc < 0) {
		if (leat_last_error()->status == 0)
			error_say(rc, "mixture: %s", status_text(rc));
		dataset_unuse(ds);
		return rc;
	}
	*ret_dataset = ds;
	return 0;
}
