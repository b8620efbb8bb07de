/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of a format that are computed in steps while its bytes arrive: records around the ends
 * of steps and of pieces, several in one run. A wrong byte anywhere is found and its record named,
 * and no right record is refused.
 */
#include "client/include/leat/leat_loader.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/crc32c.h"
#include "common/base/hmap.h"
#include "common/base/status.h"

#define HEAD 12u
#define TAIL 4u

/* The last is longer than a piece. */
static const uint32_t lengths[] = {
	1, 0, 100, 262144 - 16 - 117, 262144, 262143, 262145, 524288, 700001, 30, 4300000};
#define RECORDS (sizeof(lengths) / sizeof(lengths[0]))

struct world {
	char dir[64], path[96];
	uint8_t *data; /* of the file */
	uint64_t size, at[RECORDS];
	int fd;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	uint64_t off = 0;

	for (size_t i = 0; i < RECORDS; i++)
		w->size += HEAD + lengths[i] + TAIL;
	w->data = malloc(w->size);
	for (size_t i = 0; i < RECORDS; i++) {
		uint64_t len = lengths[i];
		uint8_t *p = w->data + off;
		uint32_t head, body;

		w->at[i] = off + HEAD;
		for (uint64_t k = 0; k < len; k++)
			p[HEAD + k] = (uint8_t)hash_u64_2(i, k / 5);
		memcpy(p, &len, 8);
		head = crc32c_mask(crc32c(p, 8));
		body = crc32c_mask(crc32c(p + HEAD, len));
		memcpy(p + 8, &head, 4);
		memcpy(p + HEAD + len, &body, 4);
		off += HEAD + len + TAIL;
	}
	snprintf(w->dir, sizeof(w->dir), "/tmp/leat-sums-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->path, sizeof(w->path), "%s/a.tfrecord", w->dir);
	w->fd = open(w->path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(pwrite(w->fd, w->data, w->size, 0), w->size);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	close(w->fd);
	unlink(w->path);
	rmdir(w->dir);
	free(w->data);
	free(w);
	return 0;
}

static void check(const struct world *w, const struct leat_batch *b, const uint64_t *ids)
{
	struct leat_view v = {.size = sizeof(v)};

	assert_int_equal(leat_batch_field(b, "record", &v), 0);
	for (uint64_t i = 0; i < v.n; i++) {
		assert_int_equal(v.lengths[i], lengths[ids[i]]);
		if (v.lengths[i] == 0)
			continue; /* a batch of empty samples has no memory */
		assert_memory_equal((const uint8_t *)v.base + v.offsets[i], w->data + w->at[ids[i]],
				    v.lengths[i]);
	}
}

static void test_right_records(void **state)
{
	const struct world *w = *state;
	struct leat_dataset *ds;
	struct leat_batch *b;

	assert_int_equal(leat_dataset_open(w->dir, NULL, &ds), 0);
	for (uint64_t first = 0; first < RECORDS; first++) {
		for (uint64_t n = 1; first + n <= RECORDS; n++) {
			uint64_t up[RECORDS], down[RECORDS];

			for (uint64_t i = 0; i < n; i++) {
				up[i] = first + i;
				down[i] = first + n - 1 - i;
			}
			assert_int_equal(leat_dataset_read(ds, up, (uint32_t)n, &b), 0);
			check(w, b, up);
			leat_batch_unref(b);
			assert_int_equal(leat_dataset_read(ds, down, (uint32_t)n, &b), 0);
			check(w, b, down);
			leat_batch_unref(b);
		}
	}
	leat_dataset_close(ds);
}

static void flip(const struct world *w, uint64_t off)
{
	uint8_t byte;

	assert_int_equal(pread(w->fd, &byte, 1, (off_t)off), 1);
	byte ^= 64;
	assert_int_equal(pwrite(w->fd, &byte, 1, (off_t)off), 1);
}

static void test_wrong_bytes(void **state)
{
	const struct world *w = *state;
	uint64_t all[RECORDS];
	struct leat_dataset *ds;
	struct leat_batch *b;

	assert_int_equal(leat_dataset_open(w->dir, NULL, &ds), 0);
	for (uint64_t i = 0; i < RECORDS; i++)
		all[i] = i;
	for (uint64_t i = 0; i < RECORDS; i++) {
		const uint32_t len = lengths[i];
		const uint32_t places[] = {0,      len / 2, len - 1,
					   262143, 262144,  (1u << 22) - (uint32_t)w->at[i]};

		for (size_t k = 0; k < sizeof(places) / sizeof(places[0]); k++) {
			if (places[k] >= len)
				continue;
			flip(w, w->at[i] + places[k]);
			assert_int_equal(leat_dataset_read(ds, all, RECORDS, &b), -LE_CORRUPT);
			assert_int_equal(leat_last_error()->offset, w->at[i]);
			assert_string_equal(leat_last_error()->path, "a.tfrecord");
			flip(w, w->at[i] + places[k]);
		}
	}
	assert_int_equal(leat_dataset_read(ds, all, RECORDS, &b), 0);
	check(w, b, all);
	leat_batch_unref(b);
	leat_dataset_close(ds);
}

/* The record has no byte in the batch that could be called bad, and the others keep theirs. */
static void test_a_wrong_record_without_bytes_is_left_out(void **state)
{
	const struct world *w = *state;
	const uint64_t empty = 1;
	struct leat_loader_options o = {.size = sizeof(o),
					.order = "sequential",
					.tail = "shorter",
					.batch = 4,
					.depth = 2,
					.on_error = LEAT_ON_ERROR_SKIP};
	uint64_t others[RECORDS];
	uint32_t got = 0;
	struct leat_dataset *ds;
	struct leat_loader *ld;
	struct leat_batch *b;

	assert_int_equal(lengths[empty], 0);
	flip(w, w->at[empty]);
	assert_int_equal(leat_dataset_open(w->dir, NULL, &ds), 0);
	assert_int_equal(leat_dataset_read(ds, &empty, 1, &b), -LE_CORRUPT);
	assert_int_equal(leat_loader_open(ds, &o, &ld), 0);
	for (uint64_t i = 0; i < RECORDS - 1; i++)
		others[i] = i + (i >= empty);
	/* In slots that are used again, for other records. */
	for (int epoch = 0; epoch < 2; epoch++, got = 0) {
		while (leat_next(ld, &b) == 1) {
			uint32_t n = leat_batch_len(b);

			assert_true(got + n < RECORDS);
			assert_memory_equal(leat_batch_ids(b), others + got, n * sizeof(others[0]));
			check(w, b, others + got);
			got += n;
			leat_batch_unref(b);
		}
		assert_int_equal(got, RECORDS - 1);
	}
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_right_records, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_wrong_record_without_bytes_is_left_out,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
