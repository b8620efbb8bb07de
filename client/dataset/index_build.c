/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/index_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/choose.h"
#include "client/dataset/formats/format_table.h"
#include "client/dataset/formats/sniff.h"
#include "client/dataset/formats/unstream.h"
#include "common/rt/fiber.h"

#define ARCHIVES_AT_ONCE 16u

struct archive {
	struct building *b;
	struct candidate at;
	struct sample_index *index; /* NULL: it is not of the format */
};

struct building {
	const struct format *format;
	struct format_options options;
	struct vol *v;
	const char *dir;
	const struct index_source *from;
	struct survey *survey;
	struct candidate *candidates;
	struct detail *d;
	struct archive *archives;
	uint32_t n, next;
	int rc;
};

static int64_t read_archive(void *arg, void *buf, size_t len, uint64_t off)
{
	return vol_pread(arg, buf, len, off);
}

static int refuse_packed(struct building *b, const char *name, const struct sniffed *s)
{
	char path[2 * 4096];
	snprintf(path, sizeof(path), "%s/%s", b->dir, name);
	return detail_set(b->d, -LE_NOTSUP, path, UINT64_MAX,
			  "it is packed by %s, which cannot be read here: unpack it (%s -d)",
			  packing_name(s->packing), packing_name(s->packing));
}

/* Returns 1 if the file is of the format, 0 if it is left out. */
static int is_of_format(struct building *b, const struct archive *a, const struct format_input *in,
			struct sniffed *ret_sniffed, struct format_fault *ret_fault)
{
	*ret_sniffed = (struct sniffed){b->format->id, PACKED_NOT};
	if (b->format->id == INDEX_FIXED)
		return 1;
	TRY(sniff(in, ret_sniffed));
	if (ret_sniffed->format == b->format->id)
		return 1;
	ret_sniffed->packing = PACKED_NOT;
	/* An empty archive. */
	if (a->at.must && in->size == 0)
		return 1;
	if (!a->at.must)
		return 0;
	*ret_fault = (struct format_fault){0, "it is not of the data set's format, unlike other "
					      "files of its kind: repair it, move it away, or "
					      "select the files by a pattern"};
	return -LE_CORRUPT;
}

/* Indexes the contents of a packed file. Unpacks it twice: a format needs the size before it can
 * find samples. */
static int index_packed(struct building *b, struct index_builder *one,
			const struct format_input *in, enum packing packing,
			struct format_fault *ret_fault)
{
	struct format_input plain = {.read = unstream_view_read, .path = in->path};
	struct unstream_view *v;
	int rc = unstream_measure(packing, in, &plain.size, ret_fault);
	if (rc == -LE_NOTSUP && ret_fault->what[0] == 0)
		return refuse_packed(b, in->path, &(struct sniffed){b->format->id, packing});
	if (rc == -LE_FBIG)
		*ret_fault = (struct format_fault){0, "its unpacked contents exceed 64 GiB"};
	TRY(rc);
	TRY(unstream_view_create(packing, in, &v));
	plain.arg = v;
	index_file_packed(one, packing, plain.size);
	rc = b->format->index(one, &plain, &b->options, ret_fault);
	if (rc < 0 && unstream_view_fault(v).what[0])
		*ret_fault = unstream_view_fault(v);
	unstream_view_destroy(v);
	return rc;
}

static int index_one(struct building *b, struct archive *a, struct vol_file *f,
		     struct format_fault *ret_fault)
{
	const struct files_entry *e = &b->from->entries[a->at.entry];
	struct format_input in = {read_archive, f, e->size, e->path};
	struct index_builder *one;
	struct sniffed what;
	int rc = is_of_format(b, a, &in, &what, ret_fault);
	if (rc <= 0)
		return rc;
	TRY(index_builder_create(b->format->id, &one));
	index_add_file(one, e->path, e->size);
	if (what.packing != PACKED_NOT)
		rc = index_packed(b, one, &in, what.packing, ret_fault);
	else
		rc = b->format->index(one, &in, &b->options, ret_fault);
	if (rc == 0)
		rc = index_builder_finish(one, &a->index);
	index_builder_destroy(one);
	return rc;
}

static int index_archive(struct building *b, struct archive *a)
{
	const struct files_entry *e = &b->from->entries[a->at.entry];
	char path[4096];
	struct vol_file *f;
	struct format_fault fault = {0, ""};
	if (snprintf(path, sizeof(path), "%s/%s", b->dir, e->path) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	int rc = vol_open(b->v, path, &f);
	if (rc < 0)
		return detail_set(b->d, rc, path, UINT64_MAX, "cannot open it: %s",
				  status_text(rc));
	rc = index_one(b, a, f, &fault);
	vol_close(f);
	if (rc < 0)
		detail_set(b->d, rc, path, fault.off, "%s",
			   fault.what[0] ? fault.what : status_text(rc));
	return rc;
}

static void index_archives(void *arg)
{
	struct building *b = *(struct building **)arg;
	while (b->next < b->n && b->rc == 0) {
		int rc = index_archive(b, &b->archives[b->next++]);
		if (rc < 0 && b->rc == 0)
			b->rc = rc;
	}
}

/* Appends the index of one archive. */
static void append(struct index_builder *all, const struct sample_index *x)
{
	index_add_file(all, index_string(x, x->files[0].path), x->files[0].size);
	index_file_packed(all, (enum packing)x->files[0].packing, x->files[0].plain);
	for (uint64_t s = 0; s < x->n_samples; s++) {
		const char *key = index_string(x, x->samples[s].key);
		index_add_sample(all, key, strlen(key), x->samples[s].label);
		for (uint64_t m = x->samples[s].first; m < x->samples[s + 1].first; m++) {
			const char *field = index_string(x, x->fields[x->members[m].field]);
			const struct index_member *from = &x->members[m];
			index_add_member(all, field, strlen(field), from->off, from->len);
			index_member_check(all, from->check, from->crc);
			if (from->codec == INDEX_DEFLATED)
				index_member_deflated(all, from->raw);
		}
	}
	for (uint32_t f = 0; f < x->n_fields; f++) {
		const char *field = index_string(x, x->fields[f]);
		const char *type = index_string(x, x->types[f]);
		if (type[0])
			index_field_type(all, field, strlen(field), type);
	}
	for (uint32_t i = 0; i < x->n_left; i++) {
		const struct index_left *l = &x->left[i];
		index_add_left(all, &(struct index_left_out){.why = (enum index_left_why)l->why,
							     .kind = index_string(x, l->kind),
							     .first = index_string(x, l->first),
							     .n = l->n,
							     .bytes = l->bytes});
	}
}

/* Joins the archives' indexes in order; leaves out files that are not of the format. */
static int join_archives(struct building *b, struct index_builder *all)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < b->n; i++) {
		const struct archive *a = &b->archives[i];
		if (a->index)
			append(all, a->index);
		else
			survey_leave(b->survey, all, a->at.entry, INDEX_LEFT_FORMAT);
		n += a->index != NULL;
	}
	return n > 0 || b->n == 0 ? 0
				  : detail_set(b->d, -LE_NOENT, b->dir, UINT64_MAX,
					       "no file is of the format %s", b->format->name);
}

static int build_archives(struct building *b, struct index_builder *all, uint32_t n)
{
	struct building *bs[ARCHIVES_AT_ONCE];
	b->archives = calloc((size_t)n + 1, sizeof(*b->archives));
	if (!b->archives)
		return -LE_NOMEM;
	for (b->n = 0; b->n < n; b->n++)
		b->archives[b->n] = (struct archive){.b = b, .at = b->candidates[b->n]};
	for (uint32_t i = 0; i < ARCHIVES_AT_ONCE; i++)
		bs[i] = b;
	uint32_t width = n < ARCHIVES_AT_ONCE ? n : ARCHIVES_AT_ONCE;
	if (width)
		fiber_parallel("index", index_archives, bs, sizeof(bs[0]), width, width);
	if (b->rc == 0)
		b->rc = join_archives(b, all);
	for (uint32_t i = 0; i < n; i++)
		index_destroy(b->archives[i].index);
	free(b->archives);
	return b->rc;
}

bool index_is_of(const struct sample_index *x, const char *format)
{
	struct format_options options;
	const struct format *f = format ? format_find(format, &options) : NULL;
	if (!format)
		return x->guessed;
	/* An index does not contain the size of a record. */
	return f && f->id == x->format && f->id != INDEX_FIXED;
}

/* Decides which plain files are samples. */
static int build_files(struct building *b, struct index_builder *all, uint32_t n)
{
	struct files_entry *e = calloc((size_t)n + 1, sizeof(*e));
	if (!e)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < n; i++)
		e[i] = b->from->entries[b->candidates[i].entry];
	int rc = files_index(all, e, n);
	free(e);
	return rc;
}

static int build(struct building *b, struct sample_index **ret_index)
{
	struct index_builder *all;
	uint32_t n;
	TRY(survey_create(b->v, b->dir, b->from, &b->survey, b->d));
	TRY(survey_format(b->survey, &b->format, &b->options, b->d));
	TRY(index_builder_create(b->format->id, &all));
	if (!b->from->format)
		index_set_guessed(all);
	int rc = survey_files(b->survey, b->format, all, b->candidates, &n, b->d);
	if (rc == 0)
		rc = b->format->index ? build_archives(b, all, n) : build_files(b, all, n);
	if (rc == 0)
		rc = index_builder_finish(all, ret_index);
	index_builder_destroy(all);
	return rc;
}

int index_build(struct vol *v, const char *dir, const struct index_source *from,
		struct sample_index **ret_index, struct detail *d)
{
	struct building b = {.v = v, .dir = dir, .d = d, .from = from};
	b.candidates = calloc((size_t)from->n + 1, sizeof(*b.candidates));
	int rc = b.candidates ? build(&b, ret_index) : -LE_NOMEM;
	survey_destroy(b.survey);
	free(b.candidates);
	if (rc < 0)
		detail_set(d, rc, dir, UINT64_MAX, "cannot make a sample index: %s",
			   status_text(rc));
	return rc;
}
