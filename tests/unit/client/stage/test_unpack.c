/* SPDX-License-Identifier: Apache-2.0 */
/* Archives staged as folders, through the public calls: their content, what they must not do, and
 * the leftovers when the process dies. */
#include "client/include/leat/leat_stage.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"
#include "tests/lib/folder.h"

struct world {
	char root[FOLDER_MAX], src[96], to[96];
	FILE *tar;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "unpack", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
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

/* ---- archives ---- */

static void tar_begin(struct world *w, const char *name)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", w->src, name);
	w->tar = fopen(path, "w");
	assert_non_null(w->tar);
}

static void tar_add(struct world *w, const char *name, char type, const char *link, size_t len)
{
	char h[512] = "";
	unsigned sum = 0, seed = (unsigned)len + (unsigned char)name[0];
	snprintf(h, 100, "%s", name);
	snprintf(h + 100, 8, "%07o", 0644);
	snprintf(h + 124, 12, "%011lo", (unsigned long)len);
	snprintf(h + 136, 12, "%011o", 0);
	h[156] = type;
	snprintf(h + 157, 100, "%s", link);
	memcpy(h + 257,
	       "ustar\0"
	       "00",
	       8);
	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	fwrite(h, 1, sizeof(h), w->tar);
	for (size_t i = 0; i < (len + 511) / 512 * 512; i++) {
		seed = seed * 1664525 + 1013904223;
		fputc(i < len ? (int)(seed >> 24) : 0, w->tar);
	}
}

static void tar_end(struct world *w)
{
	static const char zeros[1024];
	fwrite(zeros, 1, sizeof(zeros), w->tar);
	assert_int_equal(fclose(w->tar), 0);
}

static void put_file(const struct world *w, const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", w->src, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static struct leat_stage_result *stage(const struct world *w, int want)
{
	static struct leat_stage_result r;
	struct leat_stage_options o = {
		.size = sizeof(o), .source = w->src, .to = w->to, .unpack = 1};
	memset(&r, 0, sizeof(r));
	r.size = sizeof(r);
	int rc = leat_stage_in(&o, &r);
	if (rc != want)
		print_message("%s\n", r.message);
	assert_int_equal(rc, want);
	return &r;
}

static int n_copies;

static int count_copy(void *arg, const struct leat_stage_copy *c)
{
	(void)arg;
	(void)c;
	n_copies++;
	return 0;
}

static int copies(const struct world *w)
{
	n_copies = 0;
	assert_int_equal(leat_stage_list(w->to, count_copy, NULL), 0);
	return n_copies;
}

static size_t size_of(const struct leat_stage_result *r, const char *name)
{
	char path[8192];
	struct stat st;
	snprintf(path, sizeof(path), "%s/%s", r->path, name);
	return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? (size_t)st.st_size : SIZE_MAX;
}

/* ---- what is in them ---- */

static void good_archives(struct world *w)
{
	tar_begin(w, "a.tar");
	tar_add(w, "./sub/one", '0', "", 70000);
	tar_add(w, "sub//./two", '0', "", 2500000);
	tar_add(w, "sub/", '5', "", 0);
	tar_add(w, "again", '0', "", 10);
	tar_add(w, "as before", '1', "again", 0);
	tar_add(w, "again", '0', "", 20); /* as tar -r does: the last one counts */
	tar_add(w, "linked", '1', "./sub/one", 0);
	tar_add(w, "passwd", '2', "/etc/passwd", 0);
	tar_add(w, "device", '3', "", 0);
	tar_add(w, "empty", '0', "", 0);
	tar_end(w);
	tar_begin(w, "b.tar");
	tar_add(w, "sub/one", '0', "", 5);
	tar_end(w);
	put_file(w, "plain", "text");
}

static void test_members_become_files(void **state)
{
	struct world *w = *state;
	good_archives(w);
	const struct leat_stage_result *r = stage(w, 0);
	assert_int_equal(r->files, 8);
	assert_int_equal(r->skipped, 2);
	assert_int_equal(size_of(r, "a/sub/one"), 70000);
	assert_int_equal(size_of(r, "a/sub/two"), 2500000);
	assert_int_equal(size_of(r, "a/again"), 20);
	assert_int_equal(size_of(r, "a/as before"), 10);
	assert_int_equal(size_of(r, "a/linked"), 70000);
	assert_int_equal(size_of(r, "a/empty"), 0);
	assert_int_equal(size_of(r, "b/sub/one"), 5);
	assert_int_equal(size_of(r, "plain"), 4);
	assert_int_equal(size_of(r, "a/passwd"), SIZE_MAX);
	assert_int_equal(size_of(r, "a.tar"), SIZE_MAX);
	/* According to tar. */
	char *cmd;
	assert_true(asprintf(&cmd,
			     "cd %s && mkdir x && tar xf a.tar -C x --exclude=passwd "
			     "--exclude=device && "
			     "diff -r x %s/a",
			     w->src, r->path) > 0);
	assert_int_equal(system(cmd), 0);
	free(cmd);
	/* The copies of the archives are removed. */
	assert_int_equal(copies(w), 1);
}

static void test_a_second_run_moves_nothing(void **state)
{
	struct world *w = *state;
	good_archives(w);
	assert_true(stage(w, 0)->bytes_moved > 0);
	assert_int_equal(stage(w, 0)->bytes_moved, 0);
	assert_int_equal(copies(w), 1);
}

static void test_archives_that_were_wanted_stay(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = {.size = sizeof(o), .source = w->src, .to = w->to};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	r->size = sizeof(*r);
	good_archives(w);
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(stage(w, 0)->bytes_moved, 0);
	assert_int_equal(copies(w), 2);
	free(r);
}

static void test_a_lease_is_of_what_was_unpacked(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = {
		.size = sizeof(o), .source = w->src, .to = w->to, .unpack = 1, .lease = "job"};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	r->size = sizeof(*r);
	good_archives(w);
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(copies(w), 1);
	assert_int_equal(leat_stage_evict(w->to, r->id), -LE_BUSY);
	free(r);
}

/* ---- what they must not do ---- */

static void refused(struct world *w, const char *name, char type, const char *link, int want)
{
	tar_begin(w, "a.tar");
	tar_add(w, "fine", '0', "", 100);
	tar_add(w, name, type, link, 0);
	tar_end(w);
	const struct leat_stage_result *r = stage(w, want);
	assert_int_equal(r->code,
			 want == -LE_NOTSUP ? LEAT_STAGE_USAGE : LEAT_STAGE_SOURCE_CORRUPT);
	assert_string_equal(r->fail_path, "a.tar");
	assert_int_not_equal(access("/tmp/leat-unpack-evil", F_OK), 0);
}

static void test_names_that_lead_out(void **state)
{
	static const char *const names[] = {"../evil", "x/../../evil", "/tmp/leat-unpack-evil",
					    "..",      "x/..",         "a/../b"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		refused(*state, names[i], '0', "", -LE_CORRUPT);
	refused(*state, "x", '1', "../../etc/passwd", -LE_CORRUPT);
	refused(*state, "x", '1', "/etc/passwd", -LE_CORRUPT);
	refused(*state, "x", '1', "not there", -LE_CORRUPT);
	refused(*state, "x", '1', "x", -LE_CORRUPT);
	refused(*state, "fine/below", '0', "", -LE_CORRUPT);
	refused(*state, "x", 'S', "", -LE_NOTSUP);
}

static void test_two_that_make_the_same(void **state)
{
	struct world *w = *state;
	char path[256];
	tar_begin(w, "a.tar");
	tar_add(w, "x", '0', "", 10);
	tar_end(w);
	snprintf(path, sizeof(path), "%s/a", w->src);
	assert_int_equal(mkdir(path, 0755), 0);
	put_file(w, "a/x", "other");
	assert_int_equal(stage(w, -LE_CORRUPT)->code, LEAT_STAGE_SOURCE_CORRUPT);
}

static void test_what_cannot_be_unpacked_is_told(void **state)
{
	struct world *w = *state;
	put_file(w, "plain", "text");
	assert_int_equal(stage(w, -LE_NOENT)->code, LEAT_STAGE_USAGE);
	put_file(w, "b.tar.xz", "x");
	assert_int_equal(stage(w, -LE_NOTSUP)->code, LEAT_STAGE_USAGE);
	char path[256];
	snprintf(path, sizeof(path), "%s/b.tar.xz", w->src);
	assert_int_equal(unlink(path), 0);
	put_file(w, "c.tar", "this is no archive, whatever its name says");
	const struct leat_stage_result *r = stage(w, -LE_CORRUPT);
	assert_int_equal(r->code, LEAT_STAGE_SOURCE_CORRUPT);
	assert_string_equal(r->fail_path, "c.tar");
}

/* ---- compressed ---- */

/* Packs with the usual program; false: it is not installed. */
static bool pack(const struct world *w, const char *tar, const char *packer, const char *end)
{
	char *cmd;
	assert_true(asprintf(&cmd,
			     "cd %s && command -v %s >/dev/null || exit 77; "
			     "%s -c %s >%s%s && rm %s",
			     w->src, packer, packer, tar, tar, end, tar) > 0);
	int rc = system(cmd);
	free(cmd);
	assert_true(rc == 0 || WEXITSTATUS(rc) == 77);
	if (rc)
		print_message("%s is not here\n", packer);
	return rc == 0;
}

static void test_compressed_archives(void **state)
{
	static const char *const how[][2] = {{"gzip", ".gz"}, {"zstd", ".zst"}, {"lz4", ".lz4"}};
	struct world *w = *state;
	char name[16];
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%c.tar", "xyz"[i]);
		tar_begin(w, name);
		tar_add(w, "sub/one", '0', "", 70000);
		tar_add(w, "two", '0', "", 2500000 + (size_t)i);
		tar_add(w, "linked", '1', "sub/one", 0);
		tar_end(w);
		/* An archive that cannot be packed stays as it is. */
		pack(w, name, how[i][0], how[i][1]);
	}
	good_archives(w);
	const struct leat_stage_result *r = stage(w, 0);
	assert_int_equal(r->files, 8 + 9);
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%c/two", "xyz"[i]);
		assert_int_equal(size_of(r, name), 2500000 + i);
		snprintf(name, sizeof(name), "%c/linked", "xyz"[i]);
		assert_int_equal(size_of(r, name), 70000);
	}
	char *cmd;
	assert_true(asprintf(&cmd,
			     "cd %s && mkdir o && tar xf x.tar* -C o && diff -r o %s/x && "
			     "[ -z \"$(find %s -type d -name plain)\" ]",
			     w->src, r->path, w->to) > 0);
	assert_int_equal(system(cmd), 0);
	free(cmd);
	assert_int_equal(copies(w), 1);
}

static void *stage_thread(void *arg)
{
	const struct world *w = arg;
	struct leat_stage_options o = {
		.size = sizeof(o), .source = w->src, .to = w->to, .unpack = 1};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	r->size = sizeof(*r);
	if (leat_stage_in(&o, r) < 0) {
		print_message("%s\n", r->message);
		r->bytes_moved = UINT64_MAX;
	}
	return r;
}

static void test_one_unpacks_and_all_wait(void **state)
{
	struct world *w = *state;
	pthread_t threads[4];
	char path[256];
	struct stat st;
	uint64_t moved = 0;
	tar_begin(w, "a.tar");
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "file%d", i);
		tar_add(w, path, '0', "", 1000000 + (size_t)i);
	}
	tar_end(w);
	if (!pack(w, "a.tar", "gzip", ".gz"))
		skip();
	snprintf(path, sizeof(path), "%s/a.tar.gz", w->src);
	assert_int_equal(stat(path, &st), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stage_thread, w), 0);
	for (int i = 0; i < 4; i++) {
		void *ret;
		pthread_join(threads[i], &ret);
		struct leat_stage_result *r = ret;
		assert_int_not_equal(r->bytes_moved, UINT64_MAX);
		assert_int_equal(r->files, 20);
		assert_int_equal(r->bytes_verified, 20000190);
		moved += r->bytes_moved;
		free(r);
	}
	assert_int_equal(moved, st.st_size);
	assert_int_equal(copies(w), 1);
	char *cmd;
	assert_true(asprintf(&cmd, "[ \"$(ls %s/.leat | grep -c lock)\" = 1 ]", w->to) > 0);
	assert_int_equal(system(cmd), 0);
	free(cmd);
}

static void test_a_damaged_stream(void **state)
{
	struct world *w = *state;
	char path[256];
	tar_begin(w, "a.tar");
	tar_add(w, "file", '0', "", 300000);
	tar_end(w);
	if (!pack(w, "a.tar", "gzip", ".gz"))
		skip();
	snprintf(path, sizeof(path), "%s/a.tar.gz", w->src);
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	for (int i = 0; i < 3; i++) {
		FILE *f = fopen(path, "r+");
		assert_non_null(f);
		/* A byte of the data; a truncation; something after the end. */
		if (i == 0) {
			fseek(f, 20000, SEEK_SET);
			int c = fgetc(f);
			fseek(f, 20000, SEEK_SET);
			fputc(c ^ 4, f);
		} else if (i == 1) {
			assert_int_equal(ftruncate(fileno(f), st.st_size / 2), 0);
		} else {
			assert_int_equal(ftruncate(fileno(f), 0), 0);
		}
		assert_int_equal(fclose(f), 0);
		const struct leat_stage_result *r = stage(w, -LE_CORRUPT);
		assert_int_equal(r->code, LEAT_STAGE_SOURCE_CORRUPT);
		assert_string_equal(r->fail_path, "a.tar.gz");
	}
}

/* More than the capacity. *ret_missing: by how much. */
static void too_much(struct world *w, const char *path, uint64_t *ret_missing)
{
	struct leat_stage_options o = {.size = sizeof(o),
				       .source = w->src,
				       .to = w->to,
				       .unpack = 1,
				       .capacity = 64u << 20};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	r->size = sizeof(*r);
	assert_int_equal(leat_stage_in(&o, r), -LE_NOSPC);
	assert_int_equal(r->code, LEAT_STAGE_NO_CAPACITY);
	if (path)
		assert_string_equal(r->fail_path, path);
	*ret_missing = r->bytes_missing;
	free(r);
}

/* A thousand times as large unpacked: refused before the disk is full. */
static void test_a_bomb_that_is_packed(void **state)
{
	struct world *w = *state;
	uint64_t missing;
	char *cmd;
	assert_true(asprintf(&cmd, "head -c 200000000 /dev/zero | gzip >%s/a.tar.gz", w->src) > 0);
	assert_int_equal(system(cmd), 0);
	free(cmd);
	too_much(w, "a.tar.gz", &missing);
	assert_true(asprintf(&cmd, "[ -z \"$(find %s -size +1M)\" ]", w->to) > 0);
	assert_int_equal(system(cmd), 0);
	free(cmd);
}

/* 2,000 names of one member of 8 MiB would be 16 GiB: refused before it is read. */
static void test_a_bomb_of_links(void **state)
{
	struct world *w = *state;
	uint64_t missing;
	char name[32];
	tar_begin(w, "a.tar");
	tar_add(w, "large", '0', "", 8u << 20);
	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "link%d", i);
		tar_add(w, name, '1', "large", 0);
	}
	tar_end(w);
	too_much(w, NULL, &missing);
	assert_true(missing > (15ull << 30));
}

/* ---- cancelled ---- */

struct cancelling {
	const struct world *w;
	bool asked;
	int rc;
};

static void *cancel_thread(void *arg)
{
	struct cancelling *c = arg;
	c->rc = leat_stage_cancel(c->w->to, c->w->src);
	return NULL;
}

/* Cancels once, by the source's name, during unpacking. */
static void cancel_once(void *arg, const struct leat_stage_progress *p)
{
	struct cancelling *c = arg;
	pthread_t thread;
	if (c->asked || strcmp(p->phase, "unpack") != 0)
		return;
	c->asked = true;
	/* A job's thread must not wait for another job. */
	assert_int_equal(pthread_create(&thread, NULL, cancel_thread, c), 0);
	pthread_join(thread, NULL);
	/* Longer than the interval at which the job polls: it sees the cancellation at its next
	 * poll. */
	usleep(150000);
}

static void test_cancelled_while_it_unpacks(void **state)
{
	struct world *w = *state;
	struct cancelling c = {.w = w};
	struct leat_stage_options o = {.size = sizeof(o),
				       .source = w->src,
				       .to = w->to,
				       .unpack = 1,
				       .progress = cancel_once,
				       .arg = &c};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	char name[32];
	r->size = sizeof(*r);
	tar_begin(w, "a.tar");
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "file%d", i);
		tar_add(w, name, '0', "", 1000000 + (size_t)i);
	}
	tar_end(w);
	assert_int_equal(leat_stage_in(&o, r), -LE_CANCELED);
	assert_int_equal(c.rc, 0);
	assert_int_equal(r->code, LEAT_STAGE_CANCELLED);
	free(r);
	assert_int_equal(stage(w, 0)->bytes_moved, 0);
	assert_int_equal(copies(w), 1);
}

/* ---- dying ---- */

static uint64_t die_at;
static const char *die_phase;

static void on_progress(void *arg, const struct leat_stage_progress *p)
{
	(void)arg;
	if (strcmp(p->phase, die_phase) == 0 && p->bytes >= die_at)
		raise(SIGKILL);
}

static void test_killed_and_gone_on_with(void **state)
{
	struct world *w = *state;
	good_archives(w);
	pack(w, "a.tar", "gzip", ".gz");
	static const char *const phases[] = {"copy", "unpack", "unpack"};
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct leat_stage_options o = {.size = sizeof(o),
						       .source = w->src,
						       .to = w->to,
						       .unpack = 1,
						       .progress = on_progress};
			struct leat_stage_result *r = calloc(1, sizeof(*r));
			r->size = sizeof(*r);
			die_phase = phases[i];
			die_at = i == 2 ? 2600000 : 1;
			leat_stage_in(&o, r);
			_exit(1);
		}
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
	}
	const struct leat_stage_result *r = stage(w, 0);
	assert_int_equal(r->bytes_moved, 0);
	assert_int_equal(size_of(r, "a/sub/two"), 2500000);
	assert_int_equal(copies(w), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_members_become_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_second_run_moves_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_archives_that_were_wanted_stay, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_lease_is_of_what_was_unpacked, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_names_that_lead_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_two_that_make_the_same, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_cannot_be_unpacked_is_told, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_compressed_archives, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_unpacks_and_all_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_damaged_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_bomb_that_is_packed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_bomb_of_links, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancelled_while_it_unpacks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_and_gone_on_with, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
