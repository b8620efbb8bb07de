/* Manifests from outside, read where the staging engine reads them: on a fiber's small stack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/stage/manifest.h"
#include "common/base/assert.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"

static int decode(const char *line)
{
	static const uint64_t sums = 0x314d55535441454cULL;
	struct manifest *m = NULL;
	char text[8192];
	int len = snprintf(text, sizeof(text), "%s\n", line);

	ASSERT(len > 0 && len < (int)sizeof(text));
	return manifest_decode(text, (size_t)len, &sums, sizeof(sums), &m, NULL);
}

static void nested(void *arg)
{
	char line[6000], quoted[2100];

	(void)arg;
	for (size_t depth = 1; depth <= 2000; depth = depth * 3 / 2 + 1) {
		memset(line, '[', depth);
		memset(line + depth, ']', depth);
		line[2 * depth] = '\0';
		ASSERT(decode(line) == -LE_CORRUPT);
		line[depth] = '\0';
		ASSERT(decode(line) == -LE_CORRUPT);
	}
	/* Brackets in names are no levels. */
	memset(line, '[', 2000);
	line[2000] = '\0';
	snprintf(quoted, sizeof(quoted), "{\"a\":\"\\\"%.2000s\"}", line);
	ASSERT(decode(quoted) == -LE_CORRUPT);
	loop_stop(loop_self());
}

static void deep_nesting_is_refused(void **state)
{
	struct loop_options lo = {.name = "test"};
	struct env *env = NULL;
	struct loop *l = NULL;

	(void)state;
	assert_int_equal(env_real_create(NULL, &env), 0);
	assert_int_equal(loop_create(env, &lo, &l), 0);
	assert_int_equal(fiber_spawn_on(l, "main", nested, NULL), 0);
	loop_run(l);
	loop_destroy(l);
	env_real_destroy(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(deep_nesting_is_refused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
