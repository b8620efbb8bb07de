/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/format_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/ffrecord.h"
#include "client/dataset/formats/fixed.h"
#include "client/dataset/formats/mds.h"
#include "client/dataset/formats/npy.h"
#include "client/dataset/formats/npz.h"
#include "client/dataset/formats/tar.h"
#include "client/dataset/formats/tfrecord.h"

static int tar_entry(struct index_builder *b, const struct format_input *in,
		     const struct format_options *o, struct format_fault *ret_fault)
{
	(void)o;
	return tar_index(b, in, ret_fault);
}

static const char *const tar_suffixes[] = {".tar", NULL};
static const char *const tfrecord_suffixes[] = {".tfrecord", ".tfrecords", ".tfrec", NULL};
static const char *const mds_suffixes[] = {".mds", NULL};
static const char *const ffrecord_suffixes[] = {".ffr", ".ffrecord", NULL};
static const char *const npz_suffixes[] = {".npz", NULL};
static const char *const npy_suffixes[] = {".npy", NULL};
static const char *const none[] = {NULL};

/* "npy" must be named by the caller: a folder of arrays may also have one sample per file. */
const struct format format_table[] = {
	{"tar", INDEX_TAR, tar_suffixes, tar_entry},
	{"tfrecord", INDEX_TFRECORD, tfrecord_suffixes, tfrecord_index},
	{"mds", INDEX_MDS, mds_suffixes, mds_index},
	{"ffrecord", INDEX_FFRECORD, ffrecord_suffixes, ffrecord_index},
	{"npz", INDEX_NPZ, npz_suffixes, npz_index},
	{"files", INDEX_FILES, none, NULL},
	{"npy", INDEX_NPY, npy_suffixes, npy_rows_index},
	{"fixed", INDEX_FIXED, none, fixed_index},
	{NULL, INDEX_FILES, none, NULL},
};

const struct format *format_of(enum index_format id)
{
	const struct format *f = format_table;

	while (f->name && f->id != id)
		f++;
	return f->name ? f : NULL;
}

/* Parses "N" or "N+SKIP". */
static bool parse_fixed(const char *text, struct format_options *o)
{
	char *end;

	o->record = strtoull(text, &end, 10);
	o->skip = *end == '+' ? strtoull(end + 1, &end, 10) : 0;
	return *end == 0 && text[0] >= '0' && text[0] <= '9' && o->record > 0 &&
	       o->record <= INT64_MAX && o->skip <= INT64_MAX;
}

const struct format *format_find(const char *text, struct format_options *ret_options)
{
	*ret_options = (struct format_options){0, 0};
	if (strncmp(text, "fixed:", 6) == 0)
		return parse_fixed(text + 6, ret_options) ? format_of(INDEX_FIXED) : NULL;
	for (const struct format *f = format_table; f->name; f++) {
		if (f->id != INDEX_FIXED && strcmp(f->name, text) == 0)
			return f;
	}
	return NULL;
}

/* True also for ".tfrecord" in "train.tfrecord-00001-of-01024". */
static bool ends_with(const char *path, const char *suffix)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const char *at = strstr(base, suffix);
	unsigned k, n;
	int used = 0;

	for (; at; at = strstr(at + 1, suffix)) {
		const char *rest = at + strlen(suffix);

		if (*rest == 0)
			return true;
		if (sscanf(rest, "-%u-of-%u%n", &k, &n, &used) == 2 && rest[used] == 0)
			return true;
	}
	return false;
}

bool format_matches(const struct format *f, const char *path)
{
	for (const char *const *s = f->suffixes; *s; s++) {
		if (ends_with(path, *s))
			return true;
	}
	return false;
}
