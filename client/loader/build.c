#include "client/loader/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/loader/formats/format.h"
#include "common/rt/fiber.h"

#define ARCHIVES_AT_ONCE 16u

struct archive {
	struct building *b;
	const struct files_entry *entry;
	struct sample_index *index;
};

struct building {
	const struct format *format;
	struct format_options options;
	struct vol *v;
	const char *dir;
	struct detail *d;
	struct archive *archives;
	uint32_t n, next;
	int rc;
};

static int64_t read_archive(void *arg, void *buf, size_t len, uint64_t off)
{
	return vol_pread(arg, buf, len, off);
}

static int index_archive(struct building *b, struct archive *a)
{
	char path[4096];
	struct vol_file *f;
	struct format_fault fault = {0, ""};
	struct index_builder *one;
	if (snprintf(path, sizeof(path), "%s/%s", b->dir, a->entry->path) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	int rc = vol_open(b->v, path, &f);
	if (rc < 0)
		return detail_set(b->d, rc, path, UINT64_MAX, "cannot open it: %s",
				  status_text(rc));
	rc = index_builder_create(b->format->id, &one);
	if (rc == 0) {
		struct format_input in = {read_archive, f, a->entry->size, a->entry->path};
		index_add_file(one, a->entry->path, a->entry->size);
		rc = b->format->index(one, &in, &b->options, &fault);
		if (rc == 0)
			rc = index_builder_finish(one, &a->index);
		index_builder_destroy(one);
	}
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

/* The archives' indexes, one behind the other. */
static void append(struct index_builder *all, const struct sample_index *x)
{
	index_add_file(all, index_string(x, x->files[0].path), x->files[0].size);
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
}

static int build_archives(struct building *b, struct index_builder *all)
{
	struct building *bs[ARCHIVES_AT_ONCE];
	for (uint32_t i = 0; i < ARCHIVES_AT_ONCE; i++)
		bs[i] = b;
	uint32_t width = b->n < ARCHIVES_AT_ONCE ? b->n : ARCHIVES_AT_ONCE;
	fiber_parallel("index", index_archives, bs, sizeof(bs[0]), width, width);
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->rc == 0)
			append(all, b->archives[i].index);
		index_destroy(b->archives[i].index);
	}
	return b->rc;
}

/* The first of the table of which there is a file; plain files at last. */
static const struct format *guess(const struct files_entry *entries, uint32_t n)
{
	for (const struct format *f = format_table; f->id != INDEX_FILES; f++) {
		for (uint32_t i = 0; i < n; i++) {
			if (format_matches(f, entries[i].path))
				return f;
		}
	}
	return format_of(INDEX_FILES);
}

static int choose(struct building *b, const char *format, const struct files_entry *entries,
		  uint32_t n)
{
	b->format = format ? format_find(format, &b->options) : guess(entries, n);
	if (!b->format)
		return detail_set(b->d, -LE_INVAL, b->dir, UINT64_MAX,
				  "no format '%s': tar, tfrecord, mds, ffrecord, npz, npy, "
				  "fixed:BYTES, fixed:BYTES+HEADER or files",
				  format);
	for (uint32_t i = 0; b->format->index && i < n; i++) {
		if (format_matches(b->format, entries[i].path))
			b->archives[b->n++] = (struct archive){.b = b, .entry = &entries[i]};
	}
	if (b->format->index && b->n == 0)
		return detail_set(b->d, -LE_NOENT, b->dir, UINT64_MAX, "no files of format %s",
				  b->format->name);
	return 0;
}

bool index_is_of(const struct sample_index *x, const struct index_source *from)
{
	struct format_options options;
	const struct format *f =
		from->format ? format_find(from->format, &options) : guess(from->entries, from->n);
	/* An index does not say how long a record was to be. */
	return f && f->id == x->format && f->id != INDEX_FIXED;
}

int index_build(struct vol *v, const char *dir, const struct index_source *from,
		struct sample_index **ret_index, struct detail *d)
{
	struct building b = {.v = v, .dir = dir, .d = d};
	struct index_builder *all = NULL;
	b.archives = calloc((size_t)from->n + 1, sizeof(*b.archives));
	if (!b.archives)
		return -LE_NOMEM;
	int rc = choose(&b, from->format, from->entries, from->n);
	if (rc == 0)
		rc = index_builder_create(b.format->id, &all);
	if (rc == 0)
		rc = b.format->index ? build_archives(&b, all)
				     : files_index(all, from->entries, from->n);
	if (rc == 0)
		rc = index_builder_finish(all, ret_index);
	index_builder_destroy(all);
	free(b.archives);
	if (rc < 0)
		detail_set(d, rc, dir, UINT64_MAX, "cannot make a sample index: %s",
			   status_text(rc));
	return rc;
}
