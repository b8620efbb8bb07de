/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of MosaicML Streaming: the head names the columns, each sample has its sizes. */
#include "client/dataset/formats/mds.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format.h"

#define CONFIG_MAX (1u << 20)
#define COLUMNS_MAX 4096u

/* A column; size 0: each sample has its own size. */
struct column {
	const char *name;
	size_t name_len;
	uint32_t size;
};

struct shard {
	const struct format_input *in;
	struct format_fault *fault;
	struct index_builder *b;
	uint32_t n, n_columns, n_variable;
	uint32_t *offsets; /* n + 1 */
	json_t *config;
	struct column *columns; /* n_columns */
	uint32_t *sizes;        /* sizes of one sample: n_variable */
};

/* Returns NumPy's name for an encoding of fixed size. */
static const char *type_of(const char *encoding)
{
	static const char *const names[][2] = {
		{"int", "<i8"},	    {"uint8", "|u1"},	{"uint16", "<u2"},  {"uint32", "<u4"},
		{"uint64", "<u8"},  {"int8", "|i1"},	{"int16", "<i2"},   {"int32", "<i4"},
		{"int64", "<i8"},   {"float16", "<f2"}, {"float32", "<f4"}, {"float64", "<f8"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(encoding, names[i][0]) == 0)
			return names[i][1];
	}
	return encoding;
}

static int take_column(struct shard *s, uint32_t i, json_t *name, json_t *encoding, json_t *size)
{
	struct column *c = &s->columns[i];
	json_int_t bytes = json_is_integer(size) ? json_integer_value(size) : 0;

	if (!json_is_string(name) || !json_is_string(encoding) ||
	    !(json_is_null(size) || json_is_integer(size)) || bytes < 0 || bytes > UINT32_MAX ||
	    (json_is_integer(size) && bytes == 0))
		return format_damaged(s->fault, s->offsets[0], "a column that is none");
	for (uint32_t k = 0; k < i; k++) {
		if (strcmp(s->columns[k].name, json_string_value(name)) == 0)
			return format_damaged(s->fault, s->offsets[0], "the same column twice");
	}
	*c = (struct column){json_string_value(name), json_string_length(name), (uint32_t)bytes};
	s->n_variable += bytes == 0;
	index_field_type(s->b, c->name, c->name_len, type_of(json_string_value(encoding)));
	return 0;
}

static int take_config(struct shard *s)
{
	json_t *names = json_object_get(s->config, "column_names");
	json_t *encodings = json_object_get(s->config, "column_encodings");
	json_t *sizes = json_object_get(s->config, "column_sizes");
	json_t *compression = json_object_get(s->config, "compression");
	size_t n = json_array_size(names);

	if (compression && !json_is_null(compression)) {
		*s->fault = (struct format_fault){0, "compressed MDS shards are not supported"};
		return -LE_NOTSUP;
	}
	if (n == 0 || n > COLUMNS_MAX || json_array_size(encodings) != n ||
	    json_array_size(sizes) != n)
		return format_damaged(s->fault, 4, "no columns, or too many");
	s->columns = calloc(n, sizeof(*s->columns));
	s->sizes = calloc(n, sizeof(*s->sizes));
	if (!s->columns || !s->sizes)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < n; i++)
		TRY(take_column(s, i, json_array_get(names, i), json_array_get(encodings, i),
				json_array_get(sizes, i)));
	s->n_columns = (uint32_t)n;
	return 0;
}

/* Reads the configuration, which lies between the offsets and the first sample. */
static int read_config(struct shard *s)
{
	uint64_t at = 4 + 4 * ((uint64_t)s->n + 1);
	size_t len = s->offsets[0] - at;
	char *text;
	int rc;

	if (s->offsets[0] < at || len > CONFIG_MAX)
		return format_damaged(s->fault, 4, "no space for the columns");
	text = malloc(len + 1);
	if (!text)
		return -LE_NOMEM;
	rc = format_read(s->in, text, len, at, s->fault);
	if (rc == 0) {
		s->config = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
		rc = json_is_object(s->config)
			     ? take_config(s)
			     : format_damaged(s->fault, at, "the columns are not JSON");
	}
	free(text);
	return rc;
}

static int add_sample(struct shard *s, uint32_t i)
{
	uint64_t begin = s->offsets[i], end = s->offsets[i + 1];
	uint64_t at = begin + 4 * (uint64_t)s->n_variable;
	const uint32_t *size_of = s->sizes;
	char key[16];

	if (end < at || end > s->in->size)
		return format_damaged(s->fault, begin, "a sample's offset is out of bounds");
	TRY(format_read(s->in, s->sizes, 4 * (size_t)s->n_variable, begin, s->fault));
	index_add_sample(s->b, key, (size_t)snprintf(key, sizeof(key), "%u", i), -1);
	for (uint32_t c = 0; c < s->n_columns; c++) {
		uint32_t size = s->columns[c].size;

		if (size == 0)
			size = *size_of++;
		if (size > end - at)
			return format_damaged(s->fault, begin, "a column goes beyond its sample");
		index_add_member(s->b, s->columns[c].name, s->columns[c].name_len, at, size);
		at += size;
	}
	return at == end ? index_builder_error(s->b)
			 : format_damaged(s->fault, begin, "a sample is longer than its columns");
}

static int index_shard(struct shard *s)
{
	uint64_t table;

	TRY(format_read(s->in, &s->n, 4, 0, s->fault));
	table = 4 * ((uint64_t)s->n + 1);
	if (table > s->in->size - 4)
		return format_damaged(s->fault, 0, "more samples than fit into the file");
	s->offsets = malloc(table);
	if (!s->offsets)
		return -LE_NOMEM;
	TRY(format_read(s->in, s->offsets, table, 4, s->fault));
	TRY(read_config(s));
	for (uint32_t i = 0; i < s->n; i++)
		TRY(add_sample(s, i));
	return 0;
}

int mds_index(struct index_builder *b, const struct format_input *in,
	      const struct format_options *o, struct format_fault *ret_fault)
{
	struct shard s = {.in = in, .fault = ret_fault, .b = b};
	int rc;

	(void)o;
	*ret_fault = (struct format_fault){0, ""};
	rc = in->size < 8 ? format_damaged(ret_fault, 0, "truncated") : index_shard(&s);
	free(s.offsets);
	free(s.columns);
	free(s.sizes);
	json_decref(s.config);
	return rc;
}
