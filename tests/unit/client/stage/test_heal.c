/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged chunks of a copy: not trusted during the repair, right and trusted afterwards, and no
 * other user's files are changed. */
#include "client/dataset/manifest_file.h"
#include "client/stage/agent/agent_heal.h"
#include "client/stage/heal.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/dataset/io_context.h"
#include "client/include/leat/leat_stage.h"
#include "client/stage/agent/agent.h"
#include "client/stage/store/local_store.h"
#include "client/stage/store/store_lock.h"
#include "common/base/hmap.h"
#include "tests/lib/folder.h"

#define SIZE (3u * MANIFEST_CHUNK + 12345u)

static bool mounts; /* something can be mounted */

struct world {
	char root[FOLDER_MAX], src[96], to[96];
	struct leat_stage_result r;
	struct stage_io io;
	struct manifest *m;
	uint8_t *bytes; /* of the one file */
	uint64_t chunks[5];
	uint32_t n;
	struct heal_report report;
	int rc;
	/* Results that read() found, and what it returns. */
	uint32_t reads;
	int answer;
	bool lie, locked;
	uint32_t bits; /* of the chunks, on the disk, at the first read */
};

static uint32_t bits_on_disk(const struct world *w)
{
	char path[4200];
	uint8_t b[17] = {0};
	snprintf(path, sizeof(path), "%s/.leat/%s/bitmap", w->to, w->r.id);
	int fd = open(path, O_RDONLY);
	assert_true(fd >= 0 && pread(fd, b, sizeof(b), 0) == sizeof(b));
	close(fd);
	return b[16];
}

static int state_of(const struct world *w)
{
	struct leat_stage_copy *c = calloc(1, sizeof(*c));
	c->size = sizeof(*c);
	assert_int_equal(leat_stage_status(w->to, w->r.id, c), 0);
	int state = c->state;
	free(c);
	return state;
}

static int read_right(void *arg, uint32_t file, uint64_t off, uint64_t len, void *ret_bytes)
{
	struct world *w = arg;
	struct local_store s;
	assert_true(file < w->m->n_files);
	assert_true(off < SIZE && len <= SIZE - off && off % w->m->files[0].block == 0);
	if (w->reads++ == 0) {
		w->bits = bits_on_disk(w);
		assert_int_equal(store_init(&s, w->io.env, w->to, w->r.id), 0);
		w->locked = store_is_locked(&s);
	}
	memcpy(ret_bytes, w->bytes + off, len);
	((uint8_t *)ret_bytes)[0] ^= w->lie;
	return w->answer;
}

static void heal_fiber(void *arg)
{
	struct world *w = arg;
	const struct heal_options o = {w->io.env, w->to, w->r.id, w->m, read_right, w};
	w->reads = 0;
	w->rc = copy_heal(&o, w->chunks, w->n, &w->report);
}

static int heal(struct world *w)
{
	assert_int_equal(io_run(&w->io, heal_fiber, w), 0);
	return w->rc;
}

static void load_fiber(void *arg)
{
	struct world *w = arg;
	char dir[4200];
	struct detail d = {0};
	snprintf(dir, sizeof(dir), "%s/.leat/%s", w->to, w->r.id);
	w->rc = manifest_load(w->io.local, dir, &w->m, &d);
}

static void put(const struct world *w, const char *name, size_t len)
{
	char path[200];
	snprintf(path, sizeof(path), "%s/%s", w->src, name);
	FILE *f = fopen(path, "w");
	assert_int_equal(fwrite(w->bytes, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void stage(struct world *w)
{
	struct leat_stage_options o = {.size = sizeof(o), .source = w->src, .to = w->to};
	w->r = (struct leat_stage_result){.size = sizeof(w->r)};
	assert_int_equal(leat_stage_in(&o, &w->r), 0);
	manifest_destroy(w->m);
	w->m = NULL;
	assert_int_equal(io_run(&w->io, load_fiber, w), 0);
	assert_int_equal(w->rc, 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "heal", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	assert_int_equal(mkdir(w->src, 0755) | mkdir(w->to, 0755), 0);
	w->bytes = malloc(SIZE);
	for (uint32_t i = 0; i < SIZE; i++)
		w->bytes[i] = (uint8_t)(hash_u64(i / 8) >> (i % 8 * 8));
	assert_int_equal(io_init(&w->io, NULL, "heal"), 0);
	put(w, "file", SIZE);
	stage(w);
	for (uint32_t i = 0; i < 4; i++)
		w->chunks[i] = i;
	w->n = 4;
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	manifest_destroy(w->m);
	io_fini(&w->io);
	remove_folder(w->root);
	free(w->bytes);
	free(w);
	return 0;
}

static void file_of(const struct world *w, char ret_path[4300])
{
	snprintf(ret_path, 4300, "%s/.leat/%s/data/file", w->to, w->r.id);
}

static void flip(const struct world *w, uint64_t at)
{
	char path[4300];
	file_of(w, path);
	assert_int_equal(chmod(path, 0600), 0);
	int fd = open(path, O_RDWR);
	uint8_t b = w->bytes[at] ^ 0x20;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
	close(fd);
	assert_int_equal(chmod(path, 0444), 0);
}

static void assert_right(const struct world *w)
{
	char path[4300];
	struct stat st;
	uint8_t *got = malloc(SIZE);
	file_of(w, path);
	int fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, got, SIZE, 0), SIZE);
	assert_memory_equal(got, w->bytes, SIZE);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0222, 0);
	close(fd);
	free(got);
	assert_int_equal(state_of(w), LEAT_COPY_READY);
	assert_int_equal(bits_on_disk(w), 0xf);
}

static void test_wrong_blocks_are_put_right(void **state)
{
	struct world *w = *state;
	char path[4300];
	struct stat before, after;
	file_of(w, path);
	assert_int_equal(stat(path, &before), 0);
	/* No damage: no change. */
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->report.healed + w->report.left + w->reads, 0);
	flip(w, 5);
	flip(w, MANIFEST_CHUNK - 1);
	flip(w, SIZE - 1);
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->reads, 3);
	assert_int_equal(w->report.healed, 2);
	assert_int_equal(w->report.left, 0);
	/* During the repair. */
	assert_true(w->locked);
	assert_int_equal(w->bits, 0x6);
	assert_right(w);
	/* The inode and the time of the file are unchanged. */
	assert_int_equal(stat(path, &after), 0);
	assert_true(before.st_ino == after.st_ino);
}

/* Any program may have reported it to the agent. */
static void test_a_chunk_that_is_not_there_is_passed_over(void **state)
{
	struct world *w = *state;
	flip(w, MANIFEST_CHUNK + 5);
	w->chunks[0] = 4;
	w->chunks[3] = UINT64_MAX;
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->report.healed, 1);
	assert_right(w);
}

static void test_what_nobody_has_is_not_believed(void **state)
{
	struct world *w = *state;
	flip(w, MANIFEST_CHUNK);
	flip(w, 0);
	w->lie = true;
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->report.healed, 0);
	assert_int_equal(w->report.left, 2);
	assert_int_equal(bits_on_disk(w), 0xc);
	assert_int_equal(state_of(w), LEAT_COPY_DEGRADED);
	w->lie = false;
	w->answer = -LE_CORRUPT;
	assert_int_equal(heal(w), 0);
	assert_int_equal(state_of(w), LEAT_COPY_DEGRADED);
	w->answer = 0;
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->report.healed, 2);
	assert_right(w);
}

/* A crash after the data, before the bit: the chunk is right, and is checked nevertheless. */
static void test_a_right_chunk_gets_its_bit_back(void **state)
{
	struct world *w = *state;
	char path[4200];
	snprintf(path, sizeof(path), "%s/.leat/%s/bitmap", w->to, w->r.id);
	int fd = open(path, O_WRONLY);
	uint8_t bits = 0xb;
	assert_int_equal(pwrite(fd, &bits, 1, 16), 1);
	close(fd);
	assert_int_equal(state_of(w), LEAT_COPY_DEGRADED);
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->reads, 0);
	assert_int_equal(w->report.healed, 1);
	assert_right(w);
}

static void test_not_while_somebody_else_is_at_it(void **state)
{
	struct world *w = *state;
	char path[4200];
	flip(w, 7);
	snprintf(path, sizeof(path), "%s/.leat/%s.lock", w->to, w->r.id);
	int fd = open(path, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(heal(w), -LE_BUSY);
	close(fd);
	/* Nor one that is not READY any longer. */
	snprintf(path, sizeof(path), "%s/.leat/%s/READY", w->to, w->r.id);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(heal(w), -LE_NOENT);
	assert_int_equal(w->reads, 0);
}

static void test_holes_stay(void **state)
{
	struct world *w = *state;
	char path[4300];
	struct stat before, after;
	memset(w->bytes + MANIFEST_CHUNK, 0, MANIFEST_CHUNK);
	put(w, "file", SIZE);
	stage(w);
	file_of(w, path);
	assert_int_equal(stat(path, &before), 0);
	if (before.st_blocks * 512 > SIZE - (int64_t)MANIFEST_CHUNK / 2)
		skip(); /* a file system without holes */
	flip(w, MANIFEST_CHUNK + 5);
	flip(w, 2 * MANIFEST_CHUNK - 1);
	flip(w, 2 * MANIFEST_CHUNK);
	assert_int_equal(heal(w), 0);
	/* The manifest records that these are zeros. */
	assert_int_equal(w->reads, 1);
	assert_int_equal(w->report.healed, 2);
	assert_right(w);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_blocks, before.st_blocks);
}

/* It does not prevent the repair of others. */
static void test_a_file_of_others_is_left_out(void **state)
{
	struct world *w = *state;
	char path[4300], second[4300];
	if (geteuid() != 0)
		skip();
	put(w, "second", 4096);
	stage(w);
	w->chunks[w->n++] = 4;
	flip(w, 5);
	file_of(w, path);
	snprintf(second, sizeof(second), "%s/.leat/%s/data/second", w->to, w->r.id);
	int fd = open(second, O_RDWR);
	assert_int_equal(pwrite(fd, "xx", 2, 0), 2);
	close(fd);
	assert_int_equal(chown(path, 4711, 4711), 0);
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->report.healed, 1);
	assert_int_equal(w->report.left, 1);
	assert_string_equal(w->report.why,
			    "file: it belongs to user 4711, not to user 0: remove it");
	assert_int_equal(state_of(w), LEAT_COPY_DEGRADED);
	/* The owner that the manifest names. */
	w->m->files[0].rights.uid = 4711;
	assert_int_equal(heal(w), 0);
	assert_int_equal(w->report.healed, 1);
	assert_string_equal(w->report.why, "");
	assert_int_equal(state_of(w), LEAT_COPY_READY);
}

/* What replaces the file is not changed. */
static void test_no_link_is_written_to(void **state)
{
	struct world *w = *state;
	char path[4300], other[200], data[4300], moved[4300];
	uint8_t *got = malloc(SIZE);
	file_of(w, path);
	snprintf(other, sizeof(other), "%s/other", w->root);
	for (int how = mounts ? -1 : 0; how < 3; how++) {
		/* As long as the file, with other bytes. */
		int fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
		assert_int_equal(ftruncate(fd, SIZE), 0);
		if (how == -1)
			assert_int_equal(mount(other, path, NULL, MS_BIND, NULL), 0);
		if (how == 0 || how == 1)
			assert_int_equal(unlink(path), 0);
		if (how == 0)
			assert_int_equal(symlink(other, path), 0);
		if (how == 1)
			assert_int_equal(link(other, path), 0);
		if (how == 2) {
			/* Replaces the folder itself. */
			snprintf(data, sizeof(data), "%s/.leat/%s/data", w->to, w->r.id);
			snprintf(moved, sizeof(moved), "%s/moved", w->root);
			assert_int_equal(rename(data, moved), 0);
			assert_int_equal(symlink(w->root, data), 0);
			snprintf(data, sizeof(data), "%s/file", w->root);
			assert_int_equal(rename(other, data), 0);
		}
		assert_int_equal(heal(w), 0);
		assert_int_equal(w->report.healed, 0);
		if (how == -1) {
			assert_non_null(strstr(w->report.why, "mounted"));
			assert_int_equal(umount(path), 0);
		}
		assert_int_equal(w->reads, 0);
		memset(got, 1, SIZE);
		assert_int_equal(pread(fd, got, SIZE, 0), SIZE);
		for (uint32_t i = 0; i < SIZE; i++)
			assert_int_equal(got[i], 0);
		close(fd);
	}
	free(got);
}

/* ---- reports to an agent ---- */

struct telling {
	struct world *w;
	struct agent *a;
	const char *peer, *id;
	uint64_t first;
	uint32_t n;
	int rc; /* of the last report */
};

static void notify_fiber(void *arg)
{
	struct telling *x = arg;
	for (uint32_t i = 0; i < x->n; i++)
		x->rc = agent_damaged(x->a, x->peer, x->id, x->first + i);
}

static int tell(struct telling *x, const char *peer, uint64_t first, uint32_t n)
{
	x->peer = peer;
	x->first = first;
	x->n = n;
	assert_int_equal(io_run(&x->w->io, notify_fiber, x), 0);
	return x->rc;
}

/* One peer leaves places for others, and chunks of copies that are not here take none. */
static void test_no_peer_takes_all_places(void **state)
{
	struct world *w = *state;
	char other[MANIFEST_ID_SIZE], path[4300];
	struct agent *a = calloc(1, sizeof(*a));
	struct telling x = {.w = w, .a = a, .id = other};
	a->io = w->io;
	a->dirs[0] = w->src;
	a->dirs[1] = w->to;
	a->n_dirs = 2;
	a->healing = true; /* at another copy */
	memcpy(other, w->r.id, sizeof(other));
	other[0] ^= 1;
	assert_int_equal(tell(&x, "tcp 10.1.2.3:7440", 0, 1), -LE_NOENT);
	assert_int_equal(a->n_damaged, 0);
	x.id = w->r.id;
	assert_int_equal(tell(&x, "tcp 10.1.2.3:7440", 0, AGENT_DAMAGED_OF), 0);
	assert_int_equal(tell(&x, "tcp 10.1.2.3:7441", AGENT_DAMAGED_OF, 1), -LE_BUSY);
	assert_int_equal(tell(&x, "tcp 10.1.2.3:7441", 0, 1), 0);
	assert_int_equal(a->n_damaged, AGENT_DAMAGED_OF);
	assert_int_equal(tell(&x, "tcp 10.1.2.4:7440", AGENT_DAMAGED_OF, 1), 0);
	assert_int_equal(tell(&x, "tcp [fd00::1]:7440", 1000, AGENT_DAMAGED_OF), 0);
	assert_int_equal(tell(&x, "tcp [fd00::2]:7440", 2000, 1), -LE_BUSY);
	assert_int_equal(tell(&x, "tcp [fd00:0:0:1::1]:7440", 2000, 1), 0);
	assert_int_equal(tell(&x, "what", 3000, AGENT_DAMAGED_OF), 0);
	assert_int_equal(tell(&x, "else", 4000, 1), -LE_BUSY);
	assert_int_equal(a->n_damaged, 3 * AGENT_DAMAGED_OF + 2);
	snprintf(path, sizeof(path), "%s/.leat/%s/READY", w->to, w->r.id);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(tell(&x, "tcp 10.1.2.5:7440", 5000, 1), -LE_NOENT);
	free(a);
}

int main(void)
{
	/* Other processes do not see these mounts. */
	mounts = unshare(CLONE_NEWNS) == 0 &&
		 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_wrong_blocks_are_put_right),
		T(test_a_chunk_that_is_not_there_is_passed_over),
		T(test_what_nobody_has_is_not_believed),
		T(test_a_right_chunk_gets_its_bit_back),
		T(test_not_while_somebody_else_is_at_it),
		T(test_holes_stay),
		T(test_a_file_of_others_is_left_out),
		T(test_no_peer_takes_all_places),
		T(test_no_link_is_written_to),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
