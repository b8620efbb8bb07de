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

/* Two files, of 2 and 0 chunks and one of a single byte. */
static struct manifest *some_manifest(void)
{
	struct vol_stat st = {
		.size = MANIFEST_CHUNK + 100, .mtime_ns = 12345, .ino = 7, .mode = 0644};
	struct manifest *m;

	assert_int_equal(manifest_create(&m), 0);
	assert_int_equal(manifest_add(m, "a/\"q\".tar", &st, 16384), 0);
	st.size = 0;
	assert_int_equal(manifest_add(m, "a/empty", &st, 16384), 0);
	st.size = 1;
	assert_int_equal(manifest_add(m, "b", &st, 65536), 0);
	for (uint64_t i = 0; i < m->n_sums; i++)
		m->sums[i] = i * 0x9e3779b97f4a7c15ULL;
	snprintf(m->name, sizeof(m->name), "pictures");
	snprintf(m->version, sizeof(m->version), "v1");
	m->cluster = (struct uuid){{1, 2, 3, 255}};
	manifest_finish(m);
	return m;
}

static void round_trip_and_every_flipped_byte(void **state)
{
	struct manifest *m = some_manifest(), *again;
	char *text, *text2;
	void *sums;
	size_t len, len2, sums_len;

	(void)state;
	assert_int_equal(m->n_chunks, 3);
	assert_int_equal(m->n_sums, 64 + 1 + 1);
	assert_int_equal(manifest_encode(m, &text, &len), 0);
	assert_int_equal(manifest_encode_sums(m, &sums, &sums_len), 0);
	assert_int_equal(manifest_decode(text, len, sums, sums_len, &again, NULL), 0);
	assert_string_equal(again->id, m->id);
	assert_true(uuid_equal(&again->cluster, &m->cluster));
	assert_int_equal(manifest_encode(again, &text2, &len2), 0);
	assert_string_equal(text, text2);
	manifest_destroy(again);
	for (size_t i = 0; i < sums_len; i++) {
		((uint8_t *)sums)[i] ^= 1;
		assert_int_equal(manifest_decode(text, len, sums, sums_len, &again, NULL),
				 -LE_CORRUPT);
		((uint8_t *)sums)[i] ^= 1;
	}
	/* What is accepted in spite of a changed byte has the same content: names and times may
	 * differ. */
	for (size_t i = 0; i < len; i++) {
		text[i] ^= 1;
		int rc = manifest_decode(text, len, sums, sums_len, &again, NULL);
		assert_true(rc == 0 || rc == -LE_CORRUPT);
		if (rc == 0) {
			assert_string_equal(again->id, m->id);
			manifest_destroy(again);
		}
		text[i] ^= 1;
		assert_int_equal(manifest_decode(text, i, sums, sums_len, &again, NULL),
				 -LE_CORRUPT);
	}
	free(text);
	free(text2);
	free(sums);
	manifest_destroy(m);
}

static void paths_that_lead_out_are_refused(void **state)
{
	static const char *const bad[] = {"",     "/",    "/a",     "a/", "a//b", "..",
					  "../a", "a/..", "a/../b", ".",  "./a",  "a/./b"};
	struct manifest *m;
	struct vol_stat st = {.size = 0};
	char deep[300] = "";

	(void)state;
	assert_int_equal(manifest_create(&m), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_false(manifest_path_is_safe(bad[i]));
		assert_int_equal(manifest_add(m, bad[i], &st, 16384), -LE_INVAL);
	}
	assert_true(manifest_path_is_safe("a/...b/..c"));
	for (int i = 0; i < 70; i++)
		memcpy(deep + 2 * i, "d/", 3);
	deep[127] = 0;
	assert_true(manifest_path_is_safe(deep));
	deep[127] = '/';
	assert_false(manifest_path_is_safe(deep));
	manifest_destroy(m);
}

static void aliases(void **state)
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];

	(void)state;
	assert_int_equal(manifest_parse_alias("a.b-c_d@v1", name, version), 0);
	assert_string_equal(name, "a.b-c_d");
	assert_string_equal(version, "v1");
	assert_int_equal(manifest_parse_alias("a", name, version), 0);
	assert_string_equal(version, "latest");
	assert_int_equal(manifest_parse_alias("a@", name, version), -LE_INVAL);
	assert_int_equal(manifest_parse_alias("@v", name, version), -LE_INVAL);
	assert_int_equal(manifest_parse_alias("../a@v", name, version), -LE_INVAL);
	assert_int_equal(manifest_parse_alias("a@v/1", name, version), -LE_INVAL);
	assert_int_equal(manifest_parse_alias(".a@v", name, version), -LE_INVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deep_nesting_is_refused),
		cmocka_unit_test(round_trip_and_every_flipped_byte),
		cmocka_unit_test(paths_that_lead_out_are_refused),
		cmocka_unit_test(aliases),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
