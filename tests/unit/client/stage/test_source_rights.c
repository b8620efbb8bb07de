/* SPDX-License-Identifier: Apache-2.0 */
/* Present rights at a source: wider rights are applied only to the files and folders that the
 * manifest names, never to what has replaced them. */
#include "client/dataset/manifest_make.h"
#include "client/dataset/scan.h"
#include "client/dataset/scan_list.h"
#include "client/dataset/vol_local.h"
#include "client/stage/in/source_rights.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/stage/store/grant.h"
#include "tests/lib/folder.h"
#include "tests/unit/common/rt/rt_test.h"

static char dir[FOLDER_MAX];
static struct vol *v;

static const char *at(const char *name)
{
	static char paths[4][FOLDER_MAX + 64];
	static unsigned next;
	char *path = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void make_file(const char *name)
{
	int fd = open(at(name), O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, name, strlen(name)), strlen(name));
	close(fd);
}

/* set/d/known, set/d/hidden and set/e/f, all private. */
static struct manifest *made(void)
{
	struct scan s;
	struct manifest *m = NULL;
	struct detail *d = calloc(1, sizeof(*d));

	make_folder(NULL, "source_rights", dir);
	assert_int_equal(mkdir(at("set"), 0700) | mkdir(at("set/d"), 0700), 0);
	assert_int_equal(mkdir(at("set/e"), 0700), 0);
	make_file("set/d/known");
	make_file("set/d/hidden");
	make_file("set/e/f");
	assert_int_equal(vol_local_create(loop_env(loop_self()), &v), 0);
	assert_int_equal(scan_tree(v, at("set"), &s, d), 0);
	assert_int_equal(manifest_make_from(v, at("set"), &s, &m, NULL, d), 0);
	scan_fini(&s);
	free(d);
	return m;
}

static void look(struct manifest *m)
{
	const struct source_look l = {.v = v, .source = m->source};
	struct rights *above = NULL;
	uint32_t n = 0;

	assert_int_equal(source_rights(&l, m, &above, &n), 0);
	free(above);
}

static uint32_t mode_of(const struct manifest *m, const char *path)
{
	int64_t file = manifest_find(m, path), folder = manifest_find_dir(m, path);

	assert_true(file >= 0 || folder >= 0);
	return folder >= 0 ? m->dirs[folder].rights.mode : m->files[file].rights.mode;
}

static void end(struct manifest *m)
{
	manifest_destroy(m);
	vol_destroy(v);
	remove_folder(dir);
}

static void own(void *unused)
{
	struct manifest *m = made();

	(void)unused;
	assert_int_equal(chmod(at("set"), 0755) | chmod(at("set/d"), 0755), 0);
	assert_int_equal(chmod(at("set/d/known"), 0644), 0);
	look(m);
	assert_int_equal(mode_of(m, ""), 0755);
	assert_int_equal(mode_of(m, "d"), 0755);
	assert_int_equal(mode_of(m, "d/known"), 0644);
	assert_int_equal(mode_of(m, "e"), 0700);
	/* Emptied and opened: this does not open the names. */
	assert_int_equal(rename(at("set/e/f"), at("f")) | chmod(at("set/e"), 0777), 0);
	look(m);
	assert_int_equal(mode_of(m, "e"), 0700);
	end(m);
}

/* A new folder replaces another, and gets a file of that folder. */
static void another(void *unused)
{
	struct manifest *m = made();

	(void)unused;
	assert_int_equal(rename(at("set/d"), at("away")) | mkdir(at("set/d"), 0700), 0);
	assert_int_equal(rename(at("away/known"), at("set/d/known")), 0);
	assert_int_equal(chmod(at("set/d"), 0755) | chmod(at("set/d/known"), 0644), 0);
	look(m);
	assert_int_equal(mode_of(m, "d"), 0700);
	assert_int_equal(mode_of(m, "d/known"), 0644);
	assert_int_equal(mode_of(m, "d/hidden"), 0400);
	/* A new folder replaces the top folder. */
	assert_int_equal(chmod(at("set/e"), 0755) | rename(at("set"), at("set.old")), 0);
	assert_int_equal(mkdir(at("set"), 0700), 0);
	assert_int_equal(rename(at("set.old/e"), at("set/e")) | chmod(at("set"), 0755), 0);
	look(m);
	assert_int_equal(mode_of(m, ""), 0700);
	assert_int_equal(mode_of(m, "e"), 0755);
	end(m);
}

/* Inode numbers are used again. */
static void same_number(void *unused)
{
	struct manifest *m = made();

	(void)unused;
	int64_t d = manifest_find_dir(m, "d"), f = manifest_find(m, "e/f");
	assert_true(d >= 0 && f >= 0 && m->dirs[d].ino && m->files[f].ino);
	m->dirs[d].born_ns++;
	m->files[f].born_ns--;
	assert_int_equal(chmod(at("set/d"), 0755) | chmod(at("set/e/f"), 0644), 0);
	look(m);
	assert_int_equal(mode_of(m, "d"), 0700);
	assert_int_equal(mode_of(m, "e/f"), 0600);
	/* A folder of the manifest that the source does not have. */
	m->dirs[d].born_ns--;
	m->dirs[d].ino = 0;
	look(m);
	assert_int_equal(mode_of(m, "d"), 0700);
	end(m);
}

/* The names granted in a folder must be recorded again when another folder has replaced it: then
 * the manifest beside the copy is written. */
static void noted(void *unused)
{
	struct manifest *m = made();
	const struct grants g = {.top = m->dirs[0].rights};
	uint64_t before = grant_sum(m, &g);

	(void)unused;
	assert_int_equal(grant_sum(m, &g), before);
	m->dirs[1].ino++;
	assert_int_not_equal(grant_sum(m, &g), before);
	m->dirs[1].ino--;
	m->files[1].born_ns++;
	assert_int_not_equal(grant_sum(m, &g), before);
	end(m);
}

/* An access list is read by name in a second call: it is that of the same folder, or none. */
static void list_of_another(void *unused)
{
	struct manifest *m = made();
	struct acl_pool pool = {0};
	struct vol_stat st;
	struct rights r;
	struct vol *in[3] = {v};

	(void)unused;
	assert_int_equal(vol_beneath(v, at("set"), &in[1]), 0);
	assert_int_equal(vol_beneath(v, "/", &in[2]), 0);
	assert_int_equal(vol_stat(v, at("set/d"), &st), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(vol_rights(in[i], at("set/d"), &st, &pool, &r), 0);
	assert_int_equal(rename(at("set/d"), at("away")) | mkdir(at("set/d"), 0777), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(vol_rights(in[i], at("set/d"), &st, &pool, &r), -LE_STALE);
	acl_pool_fini(&pool);
	vol_destroy(in[1]);
	vol_destroy(in[2]);
	end(m);
}

static void test_own(void **state)
{
	(void)state;
	rt_run(own, NULL);
}

static void test_another(void **state)
{
	(void)state;
	rt_run(another, NULL);
}

static void test_noted(void **state)
{
	(void)state;
	rt_run(noted, NULL);
}

static void test_list_of_another(void **state)
{
	(void)state;
	rt_run(list_of_another, NULL);
}

static void test_same_number(void **state)
{
	(void)state;
	rt_run(same_number, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own),
		cmocka_unit_test(test_another),
		cmocka_unit_test(test_same_number),
		cmocka_unit_test(test_noted),
		cmocka_unit_test(test_list_of_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
