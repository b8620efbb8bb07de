/* SPDX-License-Identifier: Apache-2.0 */
/* Packed files as formats read them.
 * valgrind: yes */
#include "client/dataset/formats/unstream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "client/dataset/formats/sniff.h"

#define SIZE (3u << 20)

struct world {
	uint8_t *plain, *packed;
	size_t len;
	struct format_input in;
};

static int64_t read_packed(void *arg, void *buf, size_t len, uint64_t off)
{
	struct world *w = arg;
	if (off >= w->len)
		return 0;
	if (len > w->len - off)
		len = w->len - off;
	memcpy(buf, w->packed + off, len);
	return (int64_t)len;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	w->plain = malloc(SIZE);
	w->packed = malloc(SIZE + 65536);
	srand(29);
	for (size_t i = 0; i < SIZE; i++)
		w->plain[i] = (uint8_t)(i % 3 ? i >> 9 : (size_t)rand());
	z_stream z = {.next_in = w->plain,
		      .avail_in = SIZE,
		      .next_out = w->packed,
		      .avail_out = SIZE + 65536};
	assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
			 Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	w->len = z.total_out;
	deflateEnd(&z);
	w->in = (struct format_input){read_packed, w, w->len, NULL};
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	free(w->plain);
	free(w->packed);
	free(w);
	return 0;
}

static void check(struct world *w, struct unstream_view *v, size_t len, uint64_t off)
{
	uint8_t *buf = malloc(len + 1);
	size_t want = off >= SIZE ? 0 : len < SIZE - off ? len : SIZE - off;
	assert_int_equal(unstream_view_read(v, buf, len, off), want);
	assert_memory_equal(buf, w->plain + off, want);
	free(buf);
}

/* Headers one after the other, steps back within windows, reads of more than is buffered. */
static void test_forward_reads(void **state)
{
	struct world *w = *state;
	struct unstream_view *v;
	assert_int_equal(unstream_view_create(PACKED_GZIP, &w->in, &v), 0);
	for (uint64_t off = 0; off < SIZE - (1 << 20); off += (uint64_t)rand() % 100000) {
		check(w, v, (size_t)rand() % 131072, off);
		check(w, v, 512, off + 600);
	}
	check(w, v, 1u << 20, SIZE - (1u << 20) - 7);
	check(w, v, 1000, SIZE - 10);
	check(w, v, 1, SIZE);
	unstream_view_destroy(v);
}

/* As often as a directory at the end needs it, and not more often. */
static void test_going_back_is_bounded(void **state)
{
	struct world *w = *state;
	struct unstream_view *v;
	uint8_t byte;
	assert_int_equal(unstream_view_create(PACKED_GZIP, &w->in, &v), 0);
	for (int i = 0; i < 4; i++) {
		check(w, v, 100, SIZE - 100);
		check(w, v, 100, 5);
	}
	check(w, v, 100, SIZE - 100);
	assert_int_equal(unstream_view_read(v, &byte, 1, 0), -LE_NOTSUP);
	assert_non_null(strstr(unstream_view_fault(v).what, "unpack"));
	unstream_view_destroy(v);
}

static void test_sizes_are_measured(void **state)
{
	struct world *w = *state;
	struct format_fault fault;
	uint64_t size = 0;
	assert_int_equal(unstream_measure(PACKED_GZIP, &w->in, &size, &fault), 0);
	assert_int_equal(size, SIZE);
	for (size_t cut = 1; cut < w->len; cut += w->len / 7) {
		w->in.size = cut;
		assert_int_equal(unstream_measure(PACKED_GZIP, &w->in, &size, &fault), -LE_CORRUPT);
		assert_non_null(strstr(fault.what, "truncated"));
	}
	w->in.size = w->len;
	w->packed[w->len / 2] ^= 4;
	assert_int_equal(unstream_measure(PACKED_GZIP, &w->in, &size, &fault), -LE_CORRUPT);
	w->packed[w->len / 2] ^= 4;
	assert_int_equal(unstream_measure(PACKED_BZIP2, &w->in, &size, &fault), -LE_NOTSUP);
}

/* Names decide the format where the bytes do not. */
static void test_names(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		enum index_format format;
		enum packing packing;
	} names[] = {
		{"a/b.tar", INDEX_TAR, PACKED_NOT},
		{"a.tar/b", INDEX_FILES, PACKED_NOT},
		{"b.tar.gz", INDEX_TAR, PACKED_GZIP},
		{"b.tgz", INDEX_TAR, PACKED_GZIP},
		{"b.tzst", INDEX_TAR, PACKED_ZSTD},
		{"b.mds.zstd", INDEX_MDS, PACKED_ZSTD},
		{"b.tfrecord-00001-of-00002", INDEX_TFRECORD, PACKED_NOT},
		{"b.tfrec", INDEX_TFRECORD, PACKED_NOT},
		{"b.tar.xz", INDEX_TAR, PACKED_XZ},
		{"b.nii.gz", INDEX_FILES, PACKED_NOT},
		{".gz", INDEX_FILES, PACKED_NOT},
	};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct sniffed s = sniff_name(names[i].name);
		assert_int_equal(s.format, names[i].format);
		assert_int_equal(s.packing, names[i].packing);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_forward_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_going_back_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sizes_are_measured, setup, teardown),
		cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
