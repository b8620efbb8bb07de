/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests from outside, decoded where the staging engine decodes them: on a fiber's small
 * stack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/dataset/manifest.h"
#include "client/dataset/manifest_file.h"
#include "common/base/assert.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"
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

static const uint8_t some_acl[] = {
	2,  0, 0, 0,                      /* version */
	1,  0, 6, 0, 255,  255, 255, 255, /* user::rw- */
	2,  0, 4, 0, 0xd1, 7,   0,   0,   /* user:2001:r-- */
	4,  0, 4, 0, 255,  255, 255, 255, /* group::r-- */
	16, 0, 4, 0, 255,  255, 255, 255, /* mask::r-- */
	32, 0, 0, 0, 255,  255, 255, 255, /* other::--- */
};

/* Three files, of 2 and 0 chunks and one of a single byte, directories, links, names of bytes. */
static struct manifest *some_manifest(void)
{
	struct vol_stat st = {.size = MANIFEST_CHUNK + 100,
			      .mtime_ns = 12345,
			      .ino = 7,
			      .born_ns = 8,
			      .mode = 0644};
	struct rights dir = {.mode = 0755, .uid = 1, .gid = 2};
	struct rights r = {0640, 2000, 100, some_acl, sizeof(some_acl)};
	struct manifest_link l = {"a/link", "M\xfcller", 99, 5, 6};
	struct manifest *m;

	assert_int_equal(manifest_create(&m), 0);
	assert_int_equal(manifest_add(m, "a/\"q\".tar", &st, 16384), 0);
	st.size = 0;
	assert_int_equal(manifest_add(m, "a/empty", &st, 16384), 0);
	assert_int_equal(manifest_add_rights(m, &r, "/else/where"), 0);
	st.size = 1;
	assert_int_equal(manifest_add(m, "b\xff\n", &st, 65536), 0);
	st = (struct vol_stat){.mtime_ns = 1, .ino = 11, .born_ns = -21};
	assert_int_equal(manifest_add_dir(m, "", &st, &dir), 0);
	st = (struct vol_stat){.mtime_ns = 2, .ino = INT64_MAX, .born_ns = INT64_MAX};
	assert_int_equal(manifest_add_dir(m, "a", &st, &r), 0);
	st = (struct vol_stat){.mtime_ns = 3};
	assert_int_equal(manifest_add_dir(m, "a/empty.d", &st, &dir), 0);
	assert_int_equal(manifest_add_link(m, &l), 0);
	for (uint64_t i = 0; i < m->n_sums; i++)
		m->sums[i] = i * 0x9e3779b97f4a7c15ULL;
	snprintf(m->name, sizeof(m->name), "pictures");
	snprintf(m->version, sizeof(m->version), "v1");
	snprintf(m->source, sizeof(m->source), "/pictures");
	m->cluster = (struct uuid){{1, 2, 3, 255}};
	manifest_finish(m);
	return m;
}

static void directories_links_rights_and_names_of_bytes_are_kept(void **state)
{
	struct manifest *m = some_manifest(), *again;
	char *text, path[4096];
	void *sums;
	size_t len, sums_len;

	(void)state;
	assert_int_equal(manifest_encode(m, &text, &len), 0);
	assert_int_equal(manifest_encode_sums(m, &sums, &sums_len), 0);
	assert_int_equal(manifest_decode(text, len, sums, sums_len, &again, NULL), 0);
	assert_int_equal(again->n_files, 3);
	assert_int_equal(again->n_dirs, 3);
	assert_int_equal(again->n_links, 1);
	assert_string_equal(again->files[2].path, "b\xff\n");
	assert_null(again->files[2].from);
	assert_int_equal(manifest_source_path(again, &again->files[2], path), 0);
	assert_string_equal(path, "/pictures/b\xff\n");
	assert_int_equal(manifest_source_path(again, &again->files[1], path), 0);
	assert_string_equal(path, "/else/where");
	for (int i = 0; i < 3; i++) {
		assert_true(rights_equal(&m->files[i].rights, &again->files[i].rights));
		assert_true(rights_equal(&m->dirs[i].rights, &again->dirs[i].rights));
		assert_int_equal(again->dirs[i].mtime_ns, i + 1);
		assert_int_equal(again->dirs[i].ino, m->dirs[i].ino);
		assert_int_equal(again->dirs[i].born_ns, m->dirs[i].born_ns);
		assert_int_equal(again->files[i].ino, 7);
		assert_int_equal(again->files[i].born_ns, 8);
		assert_int_equal(again->dirs[i].filled, i < 2);
	}
	assert_memory_equal(again->dirs[1].rights.acl, some_acl, sizeof(some_acl));
	assert_string_equal(again->links[0].path, "a/link");
	assert_string_equal(again->links[0].target, "M\xfcller");
	assert_int_equal(again->links[0].mtime_ns, 99);
	assert_int_equal(again->links[0].gid, 6);
	assert_int_equal(manifest_find_dir(again, "a/empty.d"), 2);
	manifest_destroy(again);
	manifest_destroy(m);
	free(text);
	free(sums);
}

/* The id covers content and shape. */
static void the_id_knows_links_and_empty_directories(void **state)
{
	struct rights dir = {.mode = 0700, .uid = 9};
	struct vol_stat st = {.mtime_ns = 3, .ino = 4};
	struct manifest_link l = {"a/link2", "x", 1, 1, 1};
	struct manifest *m = some_manifest(), *other = some_manifest();

	(void)state;
	other->dirs[1].rights.mode = 0;
	other->files[0].mtime_ns++;
	other->dirs[1].ino++;
	manifest_finish(other);
	assert_string_equal(m->id, other->id);
	assert_int_equal(manifest_add_dir(other, "c", &st, &dir), 0);
	manifest_finish(other);
	assert_string_not_equal(m->id, other->id);
	assert_int_equal(manifest_add_dir(m, "c", &st, &dir), 0);
	manifest_finish(m);
	assert_string_equal(m->id, other->id);
	assert_int_equal(manifest_add_link(m, &l), 0);
	manifest_finish(m);
	assert_string_not_equal(m->id, other->id);
	manifest_destroy(m);
	manifest_destroy(other);
}

static void missing_directories_are_like_those_above(void **state)
{
	struct vol_stat st = {.mode = 0600, .ino = 4, .born_ns = 5};
	struct rights dir = {.mode = 0700, .uid = 9};
	struct manifest_dir root = {.rights = {.mode = 0755, .uid = 1}, .mtime_ns = 5};
	static const char *const want[] = {"", "a", "a-b", "a/b", "a/b/c", "z"};
	struct manifest *m;

	(void)state;
	assert_int_equal(manifest_create(&m), 0);
	assert_int_equal(manifest_add(m, "a-b/x", &st, 4096), 0);
	assert_int_equal(manifest_add(m, "a/b/c/1", &st, 4096), 0);
	assert_int_equal(manifest_add(m, "a/b/c/2", &st, 4096), 0);
	assert_int_equal(manifest_add(m, "z/1", &st, 4096), 0);
	assert_int_equal(manifest_add_dir(m, "a/b", &st, &dir), 0);
	assert_int_equal(manifest_fill_dirs(m, &root), 0);
	assert_int_equal(m->n_dirs, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_string_equal(m->dirs[i].path, want[i]);
		assert_int_equal(m->dirs[i].rights.uid, strncmp(want[i], "a/b", 3) ? 1 : 9);
		/* Only files and folders with reported inodes have inode numbers. */
		assert_int_equal(m->dirs[i].ino, strcmp(want[i], "a/b") ? 0 : 4);
		assert_int_equal(m->dirs[i].born_ns, strcmp(want[i], "a/b") ? 0 : 5);
	}
	manifest_destroy(m);
}

static int decode_rows(const char *rows, unsigned files, unsigned dirs, unsigned links)
{
	static const uint64_t sums = 0x314d55535441454cULL;
	struct manifest *m = NULL;
	struct detail d = {0};
	char text[4096];
	int len = snprintf(text, sizeof(text),
			   "{\"leat\":\"dataset\",\"v\":3,\"hash\":\"xxh3-64\",\"chunk\":1048576,"
			   "\"name\":\"\",\"version\":\"\",\"source\":\"/s\"}\n%s"
			   "{\"end\":true,\"files\":%u,\"dirs\":%u,\"links\":%u,\"bytes\":0,"
			   "\"id\":\"\"}\n",
			   rows, files, dirs, links);

	ASSERT(len > 0 && len < (int)sizeof(text));
	int rc = manifest_decode(text, (size_t)len, &sums, sizeof(sums), &m, &d);
	assert_int_equal(rc, -LE_CORRUPT);
	/* The rows are valid: only the id, which is not of their content, is wrong. */
	return strstr(d.what, "the id does not match") ? 0 : rc;
}

#define DIR_ROW(path, more)                                                                        \
	"{\"dir\":\"" path "\",\"mode\":493,\"uid\":0,\"gid\":0,\"mtime\":1,\"ino\":1" more "}\n"
#define FILE_ROW(path, more)                                                                       \
	"{\"path\":\"" path "\",\"size\":0,\"block\":4096,\"mode\":420,\"uid\":0,\"gid\":0,"       \
	"\"mtime\":1,\"ino\":1,\"ver\":1,\"chunks\":[]" more "}\n"
#define LINK_ROW(path, target)                                                                     \
	"{\"link\":\"" path "\",\"target\":\"" target "\",\"uid\":0,\"gid\":0,\"mtime\":1}\n"

static void hostile_rows_are_refused(void **state)
{
	const char *root = DIR_ROW("", "");
	static const struct {
		const char *rows;
		unsigned files, dirs, links;
	} bad[] = {
		{DIR_ROW("b", "") DIR_ROW("a", ""), 0, 3, 0},         /* out of order */
		{FILE_ROW("a/b", ""), 1, 1, 0},                       /* no directory */
		{FILE_ROW("a", "") FILE_ROW("a/b", ""), 2, 1, 0},     /* below a file */
		{LINK_ROW("a", "/etc") FILE_ROW("a/b", ""), 1, 1, 1}, /* below a link */
		{FILE_ROW("a", "") LINK_ROW("a", "b"), 1, 1, 1},      /* one name twice */
		{DIR_ROW("a", "") LINK_ROW("a", "b"), 0, 2, 1},
		{LINK_ROW("a", ""), 0, 1, 1},
		{LINK_ROW("../a", "b"), 0, 1, 1},
		{DIR_ROW("..", ""), 0, 2, 0},
		{DIR_ROW("a", ",\"acl\":\"AAAA\""), 0, 2, 0},
		{DIR_ROW("a", ",\"acl\":7"), 0, 2, 0},
		{DIR_ROW("a", ",\"born\":\"1\""), 0, 2, 0},
		{FILE_ROW("a", ",\"born\":1.5"), 1, 1, 0},
		/* A directory without an inode. */
		{"{\"dir\":\"a\",\"mode\":493,\"uid\":0,\"gid\":0,\"mtime\":1}\n", 0, 2, 0},
		{FILE_ROW("a", ",\"from\":\"b\""), 1, 1, 0},
		{FILE_ROW("a", ",\"from\":\"/b/../c\""), 1, 1, 0},
		{FILE_ROW("a", ",\"path_b64\":\"YQ==\""), 1, 1, 0},             /* it is text */
		{FILE_ROW("a\xef\xbf\xbd", ",\"path_b64\":\"Yv8=\""), 1, 1, 0}, /* differs from the
										 * path */
		{FILE_ROW("\xef\xbf\xbd", ",\"path_b64\":\"AP8=\""), 1, 1, 0},  /* a NUL */
		{FILE_ROW("\xef\xbf\xbd", ",\"path_b64\":\"/w=\""), 1, 1, 0},
		{FILE_ROW("a/\xef\xbf\xbd", ",\"path_b64\":\"YS//\""), 1, 1, 0},
	};
	char rows[2048];

	(void)state;
	assert_int_equal(decode_rows(root, 0, 1, 0), 0);
	assert_int_equal(decode_rows("", 0, 0, 0), -LE_CORRUPT);
	assert_int_equal(decode_rows(DIR_ROW("a", ""), 0, 1, 0), -LE_CORRUPT);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(rows, sizeof(rows), "%s%s", root, bad[i].rows);
		assert_int_equal(decode_rows(rows, bad[i].files, bad[i].dirs, bad[i].links),
				 -LE_CORRUPT);
	}
	snprintf(rows, sizeof(rows), "%s%s", root,
		 FILE_ROW("\xef\xbf\xbd", ",\"path_b64\":\"/w==\"")
			 LINK_ROW("\xef\xbf\xbd\xef\xbf\xbd", "t") DIR_ROW("a", ""));
	/* The exact bytes decide the order: 0xff comes last. */
	assert_int_equal(decode_rows(rows, 1, 2, 1), -LE_CORRUPT);
	snprintf(rows, sizeof(rows), "%s%s", root,
		 DIR_ROW("a", "") LINK_ROW("a/l", "../t")
			 FILE_ROW("\xef\xbf\xbd", ",\"path_b64\":\"/w==\",\"from\":\"/b/c\""));
	assert_int_equal(decode_rows(rows, 1, 2, 1), 0);
}

static void manifests_of_another_version_say_what_to_do(void **state)
{
	static const uint64_t sums = 0x314d55535441454cULL;
	static const char text[] = "{\"leat\":\"dataset\",\"v\":2,\"hash\":\"xxh3-64\"}\n";
	struct manifest *m = NULL;
	struct detail d = {0};

	(void)state;
	assert_int_equal(manifest_decode(text, sizeof(text) - 1, &sums, sizeof(sums), &m, &d),
			 -LE_NOTSUP);
	assert_non_null(strstr(d.what, "make it anew with leat dataset create"));
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
	/* If a changed byte is accepted, the content is equal: names and times may differ. */
	for (size_t i = 0; i < len; i++) {
		text[i] ^= 1;
		int rc = manifest_decode(text, len, sums, sums_len, &again, NULL);
		assert_true(rc == 0 || rc == -LE_CORRUPT || rc == -LE_NOTSUP);
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
		cmocka_unit_test(directories_links_rights_and_names_of_bytes_are_kept),
		cmocka_unit_test(the_id_knows_links_and_empty_directories),
		cmocka_unit_test(missing_directories_are_like_those_above),
		cmocka_unit_test(hostile_rows_are_refused),
		cmocka_unit_test(manifests_of_another_version_say_what_to_do),
		cmocka_unit_test(paths_that_lead_out_are_refused),
		cmocka_unit_test(aliases),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
