/* SPDX-License-Identifier: Apache-2.0 */
/* Planted bugs of the loader and of staging: an assertion stops each of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "client/include/leat/leat_loader.h"
#include "client/include/leat/leat_stage.h"
#include "tests/lib/dies.h"
#include "tests/lib/folder.h"

#define FILES 3u

struct world {
	char root[FOLDER_MAX], src[96], to[96];
};

static int setup(void **state)
{
	struct world *w = *state = calloc(1, sizeof(*w));
	make_folder(NULL, "assertions", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
	assert_int_equal(mkdir(w->to, 0755), 0);
	for (uint32_t i = 0; i < FILES; i++) {
		char path[160], text[1000];
		snprintf(path, sizeof(path), "%s/%u.bin", w->src, i);
		memset(text, 'a' + (int)i, sizeof(text));
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fwrite(text, 1, sizeof(text), f), sizeof(text));
		assert_int_equal(fclose(f), 0);
	}
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	remove_folder(w->root);
	free(w);
	return 0;
}

static void load(void *arg)
{
	const struct world *w = arg;
	struct leat_dataset_options o = {.size = sizeof(o)};
	struct leat_loader_options lo = {.size = sizeof(lo), .batch = 1, .epochs = 1};
	struct leat_dataset *ds;
	struct leat_loader *ld;
	struct leat_batch *b;
	if (leat_dataset_open(w->src, &o, &ds) < 0 || leat_loader_open(ds, &lo, &ld) < 0)
		return;
	while (leat_next(ld, &b) == 1)
		leat_batch_unref(b);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void stage(void *arg)
{
	const struct world *w = arg;
	static struct leat_stage_result r = {.size = sizeof(r)};
	struct leat_stage_options o = {.size = sizeof(o), .source = w->src, .to = w->to};
	(void)leat_stage_in(&o, &r);
}

static void test_a_batch_that_was_not_read(void **state)
{
	assert_dies("loader_unfilled", load, *state, "b->runs[i].left == 0");
}

static void test_memory_that_was_not_reserved(void **state)
{
	assert_dies("loader_unreserved", load, *state, "mapped == ld->memory");
}

static void test_a_copy_that_is_not_whole(void **state)
{
	assert_dies("stage_skip_chunks", stage, *state, "ft->work[i].missing == 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_batch_that_was_not_read),
		cmocka_unit_test(test_memory_that_was_not_reserved),
		cmocka_unit_test(test_a_copy_that_is_not_whole),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
