/* SPDX-License-Identifier: Apache-2.0 */
/* The sample index and the formats that it is built from.
 * valgrind: yes */
#include "client/dataset/formats/format_table.h"
#include "client/dataset/formats/tar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/dataset/formats/files.h"

struct archive {
	uint8_t data[1 << 20];
	size_t len;
	uint32_t reads;
};

static int64_t read_archive(void *arg, void *buf, size_t len, uint64_t off)
{
	struct archive *a = arg;
	a->reads++;
	if (off >= a->len)
		return 0;
	if (len > a->len - off)
		len = a->len - off;
	memcpy(buf, a->data + off, len);
	return (int64_t)len;
}

static void set_sum(uint8_t *h)
{
	uint32_t sum = 0;
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

static uint8_t *put(struct archive *a, char type, const char *name, const void *data, size_t len)
{
	uint8_t *h = a->data + a->len;
	assert_true(a->len + 1024 + len < sizeof(a->data));
	memset(h, 0, 512);
	memcpy(h, name, strlen(name) < 100 ? strlen(name) : 100);
	snprintf((char *)h + 124, 12, "%011zo", len);
	h[156] = (uint8_t)type;
	memcpy(h + 257,
	       "ustar\0"
	       "00",
	       8);
	set_sum(h);
	memset(h + 512, 0, (len + 511) / 512 * 512);
	memcpy(h + 512, data, len);
	a->len += 512 + (len + 511) / 512 * 512;
	return h;
}

static void put_end(struct archive *a)
{
	memset(a->data + a->len, 0, 1024);
	a->len += 1024;
}

static int index_of(struct archive *a, struct sample_index **ret_index,
		    struct format_fault *ret_fault)
{
	struct index_builder *b;
	struct format_input in = {read_archive, a, a->len, NULL};
	assert_int_equal(index_builder_create(INDEX_TAR, &b), 0);
	index_add_file(b, "x.tar", a->len);
	int rc = tar_index(b, &in, ret_fault);
	if (rc == 0)
		rc = index_builder_finish(b, ret_index);
	index_builder_destroy(b);
	return rc;
}

static struct archive *archive(void)
{
	struct archive *a = calloc(1, sizeof(*a));
	assert_non_null(a);
	return a;
}

static const char *key_of(const struct sample_index *x, uint64_t s)
{
	return index_string(x, x->samples[s].key);
}

static void test_webdataset_groups(void **state)
{
	(void)state;
	struct archive *a = archive();
	struct sample_index *x;
	struct format_fault fault;
	put(a, '5', "./train/", "", 0);
	put(a, '0', "./train/0001.JPG", "jpeg", 4);
	put(a, '0', "./train/0001.cls", "7", 1);
	put(a, '0', "train/0002.seg.png", "png", 3);
	put(a, 0, "train/0002.cls", "", 0);
	put(a, '0', "README", "no extension", 12);
	put(a, '0', "v1.2/.hidden", "x", 1);
	put(a, '0', "__meta__/x.json", "xyz", 3);
	put(a, '2', "train/0002.link", "", 0);
	put(a, '0', "train/0001.cls", "8", 1);
	put_end(a);
	assert_int_equal(index_of(a, &x, &fault), 0);
	assert_int_equal(x->n_samples, 3);
	assert_int_equal(x->n_members, 5);
	assert_string_equal(key_of(x, 0), "train/0001");
	assert_string_equal(key_of(x, 1), "train/0002");
	assert_string_equal(key_of(x, 2), "train/0001");
	assert_int_equal(index_field(x, "jpg"), 0);
	assert_int_equal(index_field(x, "seg.png"), 2);
	assert_int_equal(index_field(x, "gif"), -1);
	assert_memory_equal(a->data + x->members[0].off, "jpeg", 4);
	assert_int_equal(x->members[0].len, 4);
	assert_memory_equal(a->data + x->members[4].off, "8", 1);
	assert_int_equal(x->n_left, 1);
	assert_int_equal(x->left[0].why, INDEX_LEFT_MEMBER);
	assert_int_equal(x->left[0].n, 3);
	assert_int_equal(x->left[0].bytes, 16);
	assert_string_equal(index_string(x, x->left[0].first), "README");
	index_destroy(x);
	free(a);
}

/* Each name has the key that the expression of webdataset's base_plus_ext gives it. */
static void test_keys_of_members(void **state)
{
	(void)state;
	static const char *const names[][3] = {
		{"__init__.py", "__init__", "py"}, {"__meta__.json", "__meta__", "json"},
		{"a..b", "a", ".b"},		   {"b.", "b", ""},
		{"d/.x.Y", "d/", "x.y"},	   {"c.d/e/.x", "c.d/e/", "x"},
		{"_a.b", "_a", "b"},		   {"0 T 2.0 t.mp3", "0 T 2", "0 t.mp3"},
	};
	struct archive *a = archive();
	struct sample_index *x;
	struct format_fault fault;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		put(a, '0', names[i][0], "x", 1);
	put_end(a);
	assert_int_equal(index_of(a, &x, &fault), 0);
	assert_int_equal(x->n_samples, sizeof(names) / sizeof(names[0]));
	for (uint32_t i = 0; i < x->n_samples; i++) {
		assert_string_equal(key_of(x, i), names[i][1]);
		assert_string_equal(index_string(x, x->fields[x->members[i].field]), names[i][2]);
	}
	assert_int_equal(x->n_left, 0);
	index_destroy(x);
	free(a);
}

/* More fields, and more of them in one sample, than a machine word has bits; names of any
 * length. */
static void test_any_number_of_fields(void **state)
{
	(void)state;
	struct index_builder *b;
	struct sample_index *x, *y;
	char name[3000];
	void *data;
	size_t len;
	assert_int_equal(index_builder_create(INDEX_TAR, &b), 0);
	index_add_file(b, "f", 100);
	for (int s = 0; s < 3; s++) {
		index_add_sample(b, "k", 1, -1);
		for (int f = 0; f < 5000; f++) {
			int n = snprintf(name, sizeof(name), "field %d", f * (s + 1));
			assert_false(index_has_member(b, name, (size_t)n));
			index_add_member(b, name, (size_t)n, 0, 1);
			assert_true(index_has_member(b, name, (size_t)n));
		}
	}
	memset(name, 'n', sizeof(name));
	index_add_member(b, name, sizeof(name), 0, 1);
	index_add_sample(b, "k", 1, -1);
	assert_false(index_has_member(b, "field 0", 7));
	index_add_member(b, "field 0", 7, 0, 1);
	assert_int_equal(index_builder_finish(b, &x), 0);
	index_builder_destroy(b);
	assert_int_equal(index_encode(x, &data, &len), 0);
	assert_int_equal(index_decode(data, len, &y), 0);
	assert_int_equal(y->n_fields, x->n_fields);
	for (uint32_t f = 0; f < y->n_fields; f++)
		assert_int_equal(index_field(y, index_string(x, x->fields[f])), f);
	assert_int_equal(index_field(y, "field"), -1);
	free(data);
	index_destroy(x);
	index_destroy(y);
}

static void test_long_names(void **state)
{
	(void)state;
	struct archive *a = archive();
	struct sample_index *x;
	struct format_fault fault;
	char name[600], pax[700];
	memset(name, 'n', sizeof(name));
	memcpy(name + 500, ".bin", 5);
	put(a, 'L', "././@LongLink", name, strlen(name) + 1);
	put(a, '0', name, "gnu", 3);
	name[0] = 'm';
	int n = snprintf(pax, sizeof(pax), "%zu path=%s\n", strlen(name) + 10, name);
	assert_int_equal(n, strlen(name) + 10);
	put(a, 'x', "PaxHeader", pax, (size_t)n);
	put(a, '0', "short.bin", "pax", 3);
	uint8_t *h = put(a, '0', "p.bin", "ustar", 5);
	memcpy(h + 345, "some/dir", 8);
	set_sum(h);
	put_end(a);
	assert_int_equal(index_of(a, &x, &fault), 0);
	assert_int_equal(x->n_samples, 3);
	assert_int_equal(strlen(key_of(x, 0)), 500);
	assert_int_equal(key_of(x, 0)[0], 'n');
	assert_int_equal(key_of(x, 1)[0], 'm');
	assert_string_equal(key_of(x, 2), "some/dir/p");
	index_destroy(x);
	free(a);
}

static void test_base256_and_pax_sizes(void **state)
{
	(void)state;
	struct archive *a = archive();
	struct sample_index *x;
	struct format_fault fault;
	uint8_t *h = put(a, '0', "a.bin", "12345", 5);
	memset(h + 124, 0, 12);
	h[124] = 0x80;
	h[135] = 5;
	set_sum(h);
	put(a, 'x', "PaxHeader", "10 size=6\n", 10);
	h = put(a, '0', "b.bin", "123456", 6);
	snprintf((char *)h + 124, 12, "%011o", 0);
	set_sum(h);
	put_end(a);
	assert_int_equal(index_of(a, &x, &fault), 0);
	assert_int_equal(x->members[0].len, 5);
	assert_int_equal(x->members[1].len, 6);
	index_destroy(x);
	free(a);
}

static void assert_refused(struct archive *a, int want, uint64_t off)
{
	struct sample_index *x;
	struct format_fault fault;
	assert_int_equal(index_of(a, &x, &fault), want);
	assert_true(fault.what[0] != 0);
	assert_int_equal(fault.off, off);
	free(a);
}

static void test_damaged_archives_are_refused(void **state)
{
	(void)state;
	struct archive *a = archive();
	memset(a->data, 'x', 3000);
	a->len = 3000;
	assert_refused(a, -LE_CORRUPT, 0);

	a = archive();
	put(a, '0', "a.bin", "123", 3);
	put(a, '0', "b.bin", "123", 3);
	a->data[1024 + 3] ^= 1;
	assert_refused(a, -LE_CORRUPT, 1024);

	a = archive(); /* the data is truncated */
	put(a, '0', "a.bin", "123", 3);
	a->len = 512;
	assert_refused(a, -LE_CORRUPT, 0);

	a = archive(); /* half a header */
	put(a, '0', "a.bin", "123", 3);
	put(a, '0', "b.bin", "123", 3);
	a->len = 1024 + 100;
	assert_refused(a, -LE_CORRUPT, 1024);

	a = archive(); /* a size near 2^64 */
	uint8_t *h = put(a, '0', "a.bin", "123", 3);
	memset(h + 124, 0xff, 12);
	set_sum(h);
	assert_refused(a, -LE_CORRUPT, 0);

	a = archive();
	put(a, 'x', "PaxHeader", "99 path=a\n", 10);
	assert_refused(a, -LE_CORRUPT, 512);

	a = archive();
	put(a, 'x', "PaxHeader", "22 GNU.sparse.major=1\n", 22);
	assert_refused(a, -LE_NOTSUP, 512);

	a = archive();
	put(a, '0', "a.bin", "123", 3);
	put(a, '0', "a.BIN", "123", 3);
	assert_refused(a, -LE_CORRUPT, 1536);
}

static void test_large_members_are_skipped_over(void **state)
{
	(void)state;
	struct archive *a = archive();
	struct sample_index *x;
	struct format_fault fault;
	static uint8_t big[300000];
	put(a, '0', "a.bin", big, sizeof(big));
	put(a, '0', "b.bin", big, sizeof(big));
	put_end(a);
	assert_int_equal(index_of(a, &x, &fault), 0);
	assert_int_equal(x->n_samples, 2);
	assert_true(a->reads <= 4);
	index_destroy(x);
	free(a);
}

static void test_classes_of_plain_files(void **state)
{
	(void)state;
	static const struct files_entry entries[] = {
		{"a-b/1.png", 5}, {"a/2.png", 0}, {"a/x/3.png", 7}, {"z/4.png", 1}};
	struct index_builder *b;
	struct sample_index *x;
	assert_int_equal(index_builder_create(INDEX_FILES, &b), 0);
	assert_int_equal(files_index(b, entries, 4), 0);
	assert_int_equal(index_builder_finish(b, &x), 0);
	index_builder_destroy(b);
	assert_int_equal(x->n_classes, 3);
	assert_string_equal(index_string(x, x->classes[0]), "a");
	assert_string_equal(index_string(x, x->classes[1]), "a-b");
	assert_int_equal(x->samples[0].label, 1);
	assert_int_equal(x->samples[1].label, 0);
	assert_int_equal(x->samples[2].label, 0);
	assert_int_equal(x->samples[3].label, 2);
	assert_int_equal(index_bytes(x), 13);
	index_destroy(x);
}

static struct sample_index *some_index(void)
{
	struct index_builder *b;
	struct sample_index *x;
	assert_int_equal(index_builder_create(INDEX_TAR, &b), 0);
	index_add_file(b, "a", 1000);
	index_add_sample(b, "k0", 2, -1);
	index_add_member(b, "png", 3, 10, 20);
	index_add_member(b, "cls", 3, 40, 1);
	index_add_file(b, "empty", 0);
	index_add_file(b, "z", 100);
	for (int c = 0; c < 4; c++)
		index_add_class(b, "class", 5);
	index_add_sample(b, "k1", 2, 3);
	index_add_member(b, "png", 3, 100, 0);
	assert_int_equal(index_builder_finish(b, &x), 0);
	index_builder_destroy(b);
	assert_int_equal(x->n_samples, 2);
	assert_int_equal(x->n_members, 3);
	return x;
}

static void assert_not_decoded(const struct sample_index *x)
{
	struct sample_index *bad;
	void *data;
	size_t len;
	assert_int_equal(index_encode(x, &data, &len), 0);
	assert_int_equal(index_decode(data, len, &bad), -LE_CORRUPT);
	free(data);
}

/* Names come from archives and may contain anything, even a NUL. */
static void test_a_name_with_a_nul_is_no_other_one(void **state)
{
	(void)state;
	struct index_builder *b;
	struct sample_index *x;
	char name[60] = "x\0k1";
	assert_int_equal(index_builder_create(INDEX_NPZ, &b), 0);
	index_add_file(b, "f", 100);
	index_add_sample(b, "k", 1, -1);
	index_add_member(b, "x", 1, 0, 1);
	assert_true(index_has_member(b, name, 1));
	/* In the table a key follows the field's name. */
	index_add_sample(b, "k1", 2, -1);
	index_add_member(b, "x", 1, 0, 1);
	for (size_t len = 2; len <= sizeof(name); len++)
		assert_false(index_has_member(b, name, len));
	index_add_member(b, name, 4, 1, 1);
	assert_int_equal(index_builder_finish(b, &x), -LE_INVAL);
	index_builder_destroy(b);
}

/* A label is the number of a class, which mixtures use as an index. */
static void test_labels_without_a_class_are_refused(void **state)
{
	(void)state;
	struct sample_index *x = some_index();
	static const int32_t labels[] = {4, -2, INT32_MAX, INT32_MIN};
	for (int i = 0; i < 4; i++) {
		x->samples[1].label = labels[i];
		assert_not_decoded(x);
	}
	index_destroy(x);
}

/* A batch has one place for each field of a sample: of two members the larger one would be unpacked
 * into the space of the smaller one. */
static void test_a_field_twice_in_a_sample_is_refused(void **state)
{
	(void)state;
	struct sample_index *x = some_index();
	x->members[1].field = x->members[0].field;
	assert_not_decoded(x);
	index_destroy(x);
	/* Two fields of one name, which become one in a mixture. */
	x = some_index();
	x->fields[1] = x->fields[0];
	assert_not_decoded(x);
	index_destroy(x);
}

/* One sample of two columns, 3 and 5 bytes. */
static int index_mds(const char *columns, struct format_fault *ret_fault)
{
	struct archive *a = archive();
	struct format_options o;
	struct index_builder *b;
	uint32_t head[3] = {1, (uint32_t)(12 + strlen(columns)), (uint32_t)(20 + strlen(columns))};
	memcpy(a->data, head, 12);
	memcpy(a->data + 12, columns, strlen(columns));
	a->len = head[2];
	struct format_input in = {read_archive, a, a->len, NULL};
	assert_int_equal(index_builder_create(INDEX_MDS, &b), 0);
	index_add_file(b, "x.mds", a->len);
	int rc = format_find("mds", &o)->index(b, &in, &o, ret_fault);
	index_builder_destroy(b);
	free(a);
	return rc;
}

static void test_a_column_twice_is_refused(void **state)
{
	(void)state;
	struct format_fault fault;
	assert_int_equal(index_mds("{\"column_names\":[\"x\",\"y\"],\"column_encodings\":["
				   "\"bytes\",\"bytes\"],\"column_sizes\":[3,5]}",
				   &fault),
			 0);
	assert_int_equal(index_mds("{\"column_names\":[\"x\",\"x\"],\"column_encodings\":["
				   "\"bytes\",\"bytes\"],\"column_sizes\":[3,5]}",
				   &fault),
			 -LE_CORRUPT);
	assert_non_null(strstr(fault.what, "twice"));
}

static void test_index_file_round_trip(void **state)
{
	(void)state;
	struct sample_index *x = some_index(), *y;
	void *data, *again;
	size_t len, len2;
	assert_int_equal(index_encode(x, &data, &len), 0);
	assert_int_equal(index_decode(data, len, &y), 0);
	assert_int_equal(index_encode(y, &again, &len2), 0);
	assert_int_equal(len, len2);
	assert_memory_equal(data, again, len);
	assert_int_equal(index_order_word(x), index_order_word(y));
	uint64_t *first = index_shard_firsts(y);
	assert_int_equal(first[0], 0);
	assert_int_equal(first[1], 1);
	assert_int_equal(first[2], 1);
	assert_int_equal(first[3], 2);
	free(first);
	/* Every truncation and every flipped byte is detected. */
	struct sample_index *bad;
	for (size_t i = 0; i < len; i++) {
		uint8_t *bytes = data;
		assert_int_equal(index_decode(data, i, &bad), -LE_CORRUPT);
		bytes[i] ^= 0x40;
		assert_int_equal(index_decode(data, len, &bad), -LE_CORRUPT);
		bytes[i] ^= 0x40;
	}
	free(data);
	free(again);
	index_destroy(x);
	index_destroy(y);
}

static void test_builder_refuses_nonsense(void **state)
{
	(void)state;
	struct index_builder *b;
	struct sample_index *x;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(index_builder_create(INDEX_TAR, &b), 0);
		index_add_file(b, "b", 100);
		if (i == 0)
			index_add_file(b, "a", 100); /* not ascending */
		if (i == 1)
			index_add_member(b, "x", 1, 0, 1); /* of no sample */
		index_add_sample(b, "k", 1, -1);
		if (i == 2)
			index_add_member(b, "x", 1, 90, 11); /* beyond the end */
		if (i == 3)
			index_add_member(b, "x", 1, UINT64_MAX, 2);
		assert_true(index_builder_finish(b, &x) < 0);
		index_builder_destroy(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_webdataset_groups),
		cmocka_unit_test(test_keys_of_members),
		cmocka_unit_test(test_any_number_of_fields),
		cmocka_unit_test(test_long_names),
		cmocka_unit_test(test_base256_and_pax_sizes),
		cmocka_unit_test(test_damaged_archives_are_refused),
		cmocka_unit_test(test_large_members_are_skipped_over),
		cmocka_unit_test(test_classes_of_plain_files),
		cmocka_unit_test(test_index_file_round_trip),
		cmocka_unit_test(test_a_name_with_a_nul_is_no_other_one),
		cmocka_unit_test(test_labels_without_a_class_are_refused),
		cmocka_unit_test(test_a_field_twice_in_a_sample_is_refused),
		cmocka_unit_test(test_a_column_twice_is_refused),
		cmocka_unit_test(test_builder_refuses_nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
