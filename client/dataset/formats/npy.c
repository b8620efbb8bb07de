/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format.h"
#include "leat/leat_loader.h"

/* A cursor in the dict. `bad` stays set. */
struct text {
	const char *p, *end;
	bool bad;
};

static void skip_space(struct text *t)
{
	while (t->p < t->end && (*t->p == ' ' || *t->p == '\n'))
		t->p++;
}

static bool accept(struct text *t, char c)
{
	skip_space(t);
	if (t->p == t->end || *t->p != c)
		return false;
	t->p++;
	return true;
}

static void expect(struct text *t, char c)
{
	if (!accept(t, c))
		t->bad = true;
}

/* Parses 'text' or "text". */
static void take_string(struct text *t, char *out, size_t size)
{
	char quote = accept(t, '\'') ? '\'' : '"';
	size_t n = 0;

	out[0] = 0;
	if (quote == '"')
		expect(t, '"');
	while (t->p < t->end && *t->p != quote && n + 1 < size)
		out[n++] = *t->p++;
	out[n] = 0;
	expect(t, quote);
}

static bool take_word(struct text *t, const char *word)
{
	size_t n = strlen(word);

	skip_space(t);
	if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0)
		return false;
	t->p += n;
	return true;
}

static uint64_t take_number(struct text *t)
{
	uint64_t v = 0;

	skip_space(t);
	if (t->p == t->end || *t->p < '0' || *t->p > '9')
		t->bad = true;
	for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++) {
		if (v > INT64_MAX / 10 - 1)
			t->bad = true;
		else
			v = v * 10 + (uint64_t)(*t->p - '0');
	}
	return v;
}

/* Parses (3, 4), (3,) or (). */
static void take_shape(struct text *t, struct npy *n)
{
	n->n_dims = 0;
	expect(t, '(');
	while (!t->bad && !accept(t, ')')) {
		if (n->n_dims == NPY_DIMS_MAX) {
			t->bad = true;
			return;
		}
		n->shape[n->n_dims++] = take_number(t);
		if (!accept(t, ',')) {
			expect(t, ')');
			return;
		}
	}
}

/* Returns the bytes of an element; 0: not a plain number. */
static uint32_t size_of_type(const char *type)
{
	char *end;
	unsigned long size;

	if (type[0] == 0 || type[1] == 0 || strchr("<>|=", type[0]) == NULL ||
	    strchr("biufcSV?", type[1]) == NULL)
		return 0;
	size = strtoul(type + 2, &end, 10);
	return *end == 0 && size > 0 && size <= 65536 ? (uint32_t)size : 0;
}

static int take_dict(struct text *t, struct npy *n)
{
	char key[32];
	int seen = 0;

	expect(t, '{');
	while (!t->bad && !accept(t, '}')) {
		take_string(t, key, sizeof(key));
		expect(t, ':');
		if (strcmp(key, "descr") == 0) {
			skip_space(t);
			if (t->p < t->end && *t->p == '[')
				return -LE_NOTSUP;
			take_string(t, n->type, sizeof(n->type));
			seen |= 1;
		} else if (strcmp(key, "fortran_order") == 0) {
			n->fortran = take_word(t, "True");
			t->bad |= !n->fortran && !take_word(t, "False");
			seen |= 2;
		} else if (strcmp(key, "shape") == 0) {
			take_shape(t, n);
			seen |= 4;
		} else {
			t->bad = true;
		}
		if (!accept(t, ',')) {
			expect(t, '}');
			break;
		}
	}
	return t->bad || seen != 7 ? -LE_CORRUPT : 0;
}

int npy_parse(const void *bytes, size_t len, struct npy *ret_npy)
{
	const uint8_t *p = bytes;
	struct npy n = {.n_dims = 0};
	size_t at = 10, head;

	if (len < 12 || memcmp(p, "\x93NUMPY", 6) != 0 || p[6] < 1 || p[6] > 3)
		return -LE_CORRUPT;
	head = p[8] | (size_t)p[9] << 8;
	if (p[6] > 1) {
		head |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
		at = 12;
	}
	if (head > NPY_HEAD_MAX)
		return -LE_CORRUPT;
	n.data = at + head;
	if (n.data > len) {
		*ret_npy = n;
		return -LE_NODATA;
	}
	struct text t = {(const char *)p + at, (const char *)p + n.data, false};
	TRY(take_dict(&t, &n));
	n.item_size = size_of_type(n.type);
	if (n.item_size == 0)
		return -LE_NOTSUP;
	n.len = n.item_size;
	for (uint32_t i = 0; i < n.n_dims; i++) {
		if (__builtin_mul_overflow(n.len, n.shape[i], &n.len) || n.len > INT64_MAX)
			return -LE_CORRUPT;
	}
	*ret_npy = n;
	return 0;
}

/* ---- rows as samples ---- */

static int read_header(const struct format_input *in, struct npy *ret_npy,
		       struct format_fault *ret_fault)
{
	size_t len = in->size < 12 + NPY_HEAD_MAX ? (size_t)in->size : 12 + NPY_HEAD_MAX;
	uint8_t *head = malloc(len + 1);
	int rc;

	if (!head)
		return -LE_NOMEM;
	rc = format_read(in, head, len, 0, ret_fault);
	if (rc == 0) {
		rc = npy_parse(head, len, ret_npy);
		if (rc == -LE_CORRUPT || rc == -LE_NODATA)
			rc = format_damaged(ret_fault, 0, "not a NumPy array");
		else if (rc < 0)
			*ret_fault = (struct format_fault){0, "an array of objects or records"};
	}
	free(head);
	return rc;
}

/* Writes the type of a row, "<f4[3,224,224]". */
static void row_type(const struct npy *n, char *out, size_t size)
{
	size_t used = (size_t)snprintf(out, size, "%s[", n->type);

	for (uint32_t i = 1; i < n->n_dims && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%llu", i > 1 ? "," : "",
					 (unsigned long long)n->shape[i]);
	if (used < size)
		snprintf(out + used, size - used, "]");
}

int npy_rows_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault)
{
	char type[16 + 24 * NPY_DIMS_MAX];
	struct npy n;
	uint64_t row;

	(void)o;
	*ret_fault = (struct format_fault){0, ""};
	TRY(read_header(in, &n, ret_fault));
	if (n.n_dims == 0 || (n.fortran && n.n_dims > 1)) {
		*ret_fault = (struct format_fault){0, "no rows, or in Fortran order"};
		return -LE_NOTSUP;
	}
	if (n.len > in->size - n.data)
		return format_damaged(ret_fault, in->size, "truncated");
	row = n.shape[0] > 0 ? n.len / n.shape[0] : 0;
	if (n.shape[0] > 0 && row == 0) {
		/* A header of a few bytes could declare any number of rows. */
		*ret_fault = (struct format_fault){0, "rows of no bytes"};
		return -LE_NOTSUP;
	}
	row_type(&n, type, sizeof(type));
	for (uint64_t i = 0; i < n.shape[0]; i++) {
		char key[24];

		index_add_sample(b, key, (size_t)snprintf(key, sizeof(key), "%llu",
							  (unsigned long long)i), -1);
		index_add_member(b, "data", 4, n.data + i * row, row);
		TRY(index_builder_error(b));
	}
	index_field_type(b, "data", 4, type);
	return index_builder_error(b);
}

/* ---- the installed interface ---- */

int leat_array_parse(const void *bytes, uint64_t len, struct leat_array *ret_array)
{
	size_t size = ret_array->size;
	struct leat_array a = {.size = size};
	struct npy n;

	_Static_assert(NPY_DIMS_MAX == LEAT_DIMS_MAX, "the same limit");
	if (npy_parse(bytes, len, &n) < 0 || n.len > len - n.data)
		return -LE_INVAL;
	a.data = (const uint8_t *)bytes + n.data;
	a.len = n.len;
	a.fortran = n.fortran;
	a.n_dims = n.n_dims;
	memcpy(a.type, n.type, sizeof(a.type));
	memcpy(a.shape, n.shape, sizeof(a.shape));
	memcpy(ret_array, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}
