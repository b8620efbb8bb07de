/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes are read for a batch, and as which pieces they are cached. */
#include "client/loader/batch/batch.h"
#include "client/loader/batch/batch_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define RECORD  3000u
#define SAMPLES 100u

struct world {
	char root[64], path[96];
	struct leat_dataset *ds;
	struct field_set set;
	struct leat_batch b;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct leat_dataset_options o = {.size = sizeof(o), .format = "fixed:3000"};
	const char *tmp = getenv("TMPDIR");
	snprintf(w->root, sizeof(w->root), "%.40s/plan.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(w->root));
	snprintf(w->path, sizeof(w->path), "%s/records.bin", w->root);
	FILE *f = fopen(w->path, "w");
	assert_non_null(f);
	for (uint32_t i = 0; i < SAMPLES * RECORD; i++)
		fputc((int)i & 255, f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(leat_dataset_open(w->root, &o, &w->ds), 0);
	assert_int_equal(field_set_init(&w->set, w->ds, NULL), 0);
	assert_int_equal(batch_init(&w->b, w->ds, &w->set, SAMPLES), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	batch_fini(&w->b);
	field_set_fini(&w->set);
	leat_dataset_close(w->ds);
	unlink(w->path);
	rmdir(w->root);
	free(w);
	return 0;
}

static void plan(struct world *w, uint32_t n, uint64_t first, uint64_t step)
{
	for (uint32_t i = 0; i < n; i++)
		w->b.ids[i] = first + i * step;
	w->b.n = n;
	assert_int_equal(batch_plan(&w->b), 0);
}

/* The plan only tests whether there is a cache; reads use it. */
static void with_cache(struct world *w)
{
	w->b.cache = (struct cache *)w;
}

static void test_what_lies_together_is_read_at_once(void **state)
{
	struct world *w = *state;
	plan(w, SAMPLES, 0, 1);
	assert_int_equal(w->b.n_runs, 1);
	assert_int_equal(w->b.n_pieces, 1);
	assert_int_equal(w->b.need, SAMPLES * RECORD);
	/* Gaps of up to 16 KiB are read too, larger ones are not. */
	plan(w, 10, 0, 6);
	assert_int_equal(w->b.n_pieces, 1);
	plan(w, 10, 0, 7);
	assert_int_equal(w->b.n_pieces, 10);
	plan(w, 10, 90, (uint64_t)-1);
	assert_int_equal(w->b.n_pieces, 10);
	assert_int_equal(w->b.n_runs, 10);
}

/* One run, so that one read suffices, but a piece for each sample, which is equal in any batch. */
static void test_with_a_cache_samples_are_kept_one_by_one(void **state)
{
	struct world *w = *state;
	with_cache(w);
	plan(w, SAMPLES, 0, 1);
	assert_int_equal(w->b.n_runs, 1);
	assert_int_equal(w->b.n_pieces, SAMPLES);
	for (uint32_t i = 0; i < SAMPLES; i++) {
		const struct piece_io *p = &w->b.pieces[i];
		assert_int_equal(p->sample, i);
		assert_int_equal(p->off, i * RECORD);
		assert_int_equal(p->len, RECORD);
		assert_int_equal(p->dst, w->b.off[batch_at(&w->b, 1, i)]);
		assert_int_equal(p->run, 0);
	}
	plan(w, 2, 7, 90);
	assert_int_equal(w->b.n_runs, 2);
	assert_int_equal(w->b.pieces[1].off, 97 * RECORD);
	assert_int_equal(w->b.pieces[1].len, RECORD);
	/* A sample twice is no run. */
	plan(w, 2, 7, 0);
	assert_int_equal(w->b.n_runs, 2);
	w->b.cache = NULL;
}

/* A hostile index: sizes whose sum overflows 64 bits. */
static void test_too_much_is_refused(void **state)
{
	struct world *w = *state;
	struct sample_index *x = w->ds->x;
	for (uint32_t i = 0; i < 5; i++) {
		x->members[i].codec = INDEX_DEFLATED;
		x->members[i].raw = INT64_MAX;
		w->b.ids[i] = i;
	}
	for (w->b.n = 1; w->b.n <= 5; w->b.n++) {
		assert_int_equal(batch_plan(&w->b), -LE_2BIG);
		assert_int_equal(w->b.d.rc, -LE_2BIG);
	}
	struct leat_batch *b;
	assert_int_equal(leat_dataset_read(w->ds, w->b.ids, 5, &b), -LE_2BIG);
	/* An index that is only large lacks memory, or is damaged. */
	x->members[0].raw = BATCH_BYTES_MAX / 2;
	assert_true(leat_dataset_read(w->ds, w->b.ids, 1, &b) < 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_what_lies_together_is_read_at_once),
		T(test_with_a_cache_samples_are_kept_one_by_one),
		T(test_too_much_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
