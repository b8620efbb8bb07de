/* SPDX-License-Identifier: Apache-2.0 */
/* Leftovers of interrupted calls, and of previous owners and versions. */
#include "client/include/leat/leat_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"
#include "tests/lib/folder.h"

struct world {
	char root[FOLDER_MAX], src[96], to[96];
};

static void run(const struct world *w, const char *command)
{
	char cmd[512];
	assert_true(snprintf(cmd, sizeof(cmd), "cd %s && %s", w->root, command) <
		    (int)sizeof(cmd));
	assert_int_equal(system(cmd), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "left", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	run(w, "mkdir src to && head -c 100000 /dev/zero | tr '\\0' x >src/file");
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	remove_folder(w->root);
	free(w);
	return 0;
}

static struct leat_stage_options options(const struct world *w)
{
	return (struct leat_stage_options){
		.size = sizeof(struct leat_stage_options), .source = w->src, .to = w->to};
}

static uint64_t moved(const struct leat_stage_options *o)
{
	static struct leat_stage_result r;
	r = (struct leat_stage_result){.size = sizeof(r)};
	assert_int_equal(leat_stage_in(o, &r), 0);
	return r.bytes_moved;
}

/* When a copy is continued, its files get the owners of the source. */
static void test_of_a_former_owner(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	if (geteuid() != 0)
		skip();
	run(w, "chown -R 12001:12001 src");
	assert_int_equal(moved(&o), 100000);
	run(w, "rm to/.leat/*/READY && chown -R 12002:12002 src");
	assert_int_equal(moved(&o), 0);
	run(w, "test \"$(stat -c %u.%g to/.leat/*/data/file)\" = 12002.12002");
	run(w, "rm to/.leat/*/READY && chown 12003:12003 to/.leat/*/data/file");
	assert_int_equal(moved(&o), 100000);
}

/* In that version any user could list the names of data sets. */
static void test_of_a_former_version(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	run(w, "mkdir -p to/.leat/sources && chmod 755 to/.leat to/.leat/sources && "
	       "touch to/.leat/sources/private@v1");
	moved(&o);
	run(w, "cd to/.leat && test $(stat -c %a sources) = 711 && ! ls sources | grep private && "
	       "ls sources | grep -qE '^[0-9a-f]{64}$'");
}

static void test_of_killed_calls(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_dataset_info info = {.size = sizeof(info)};
	struct leat_stage_result r = {.size = sizeof(r)};
	char catalog[128];
	moved(&o);
	run(w, "for i in 0 1 2 3 4 5 6 7 8 9; do cd to/.leat/*/data/.. && "
	       "touch .new-mine .new-000000000000000$i && cd ../../..; done");
	assert_int_equal(moved(&o), 0);
	run(w, "test \"$(cd to/.leat/*/data/.. && echo .new-*)\" = .new-mine");
	snprintf(catalog, sizeof(catalog), "%s/catalog", w->root);
	o.catalog = catalog;
	assert_int_equal(leat_dataset_create(&o, "a@1", &info, &r), 0);
	run(w, "touch $(dirname catalog/by-id/*/*/manifest)/.new-0123456789abcdef");
	assert_int_equal(leat_dataset_remove(NULL, catalog, "a@1"), 0);
	run(w, "test -z \"$(find catalog/by-id -mindepth 1)\"");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_of_a_former_owner),
		T(test_of_a_former_version),
		T(test_of_killed_calls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
