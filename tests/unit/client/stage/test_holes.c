/* SPDX-License-Identifier: Apache-2.0 */
/* Holes of files stay holes, in copies and in what is staged out; zeros that use space at the
 * source are equal data, and become holes. */
#include "client/include/leat/leat_stage.h"

#include <fcntl.h>
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

#define SIZE   ((64u << 20) + 777) /* of a file; its last block is partial */
#define PIECE  10000u              /* bytes other than zeros ... */
#define PIECES 16u                 /* ... in one block each */
#define SLACK  (256u << 10)        /* the last block, and metadata of the file system */

struct world {
	char root[FOLDER_MAX], src[96], to[96], path[160];
};

static uint64_t piece_at(unsigned i)
{
	return (uint64_t)i * (SIZE / PIECES) / 16384 * 16384 + 500;
}

/* full: the zeros use space. */
static void put_pieces(const char *path, bool full)
{
	static char piece[PIECE], zeros[1u << 20];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	for (uint64_t off = 0; full && off < SIZE; off += sizeof(zeros))
		assert_true(pwrite(fd, zeros, sizeof(zeros), (off_t)off) > 0);
	assert_int_equal(ftruncate(fd, SIZE), 0);
	for (unsigned i = 0; i < PIECES; i++) {
		memset(piece, (int)i + 1, PIECE);
		assert_int_equal(pwrite(fd, piece, PIECE, (off_t)piece_at(i)), PIECE);
	}
	close(fd);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "holes", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	snprintf(w->path, sizeof(w->path), "%s/sparse", w->src);
	assert_int_equal(mkdir(w->src, 0755), 0);
	assert_int_equal(mkdir(w->to, 0755), 0);
	put_pieces(w->path, false);
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

static struct leat_stage_result *result(void)
{
	static struct leat_stage_result r;
	memset(&r, 0, sizeof(r));
	r.size = sizeof(r);
	return &r;
}

static void assert_kept(const struct world *w, const char *dir)
{
	char cmd[4400], path[4200];
	struct stat st;
	snprintf(cmd, sizeof(cmd), "cmp %s %s/sparse", w->path, dir);
	assert_int_equal(system(cmd), 0);
	snprintf(path, sizeof(path), "%s/sparse", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_in_range((uint64_t)st.st_blocks * 512, PIECES * PIECE, PIECES * 16384 + SLACK);
}

static void test_a_copy_takes_no_space_for_holes(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	struct leat_stage_copy c = {.size = sizeof(c)};
	o.capacity = 1u << 20;
	assert_int_equal(leat_stage_plan(&o, r), 0);
	assert_in_range(r->bytes_needed, PIECES * PIECE, o.capacity);
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(r->bytes_verified, SIZE);
	assert_in_range(r->bytes_moved, PIECES * PIECE, (PIECES + 1) << 20);
	assert_kept(w, r->path);
	assert_int_equal(leat_stage_verify(&o, w->src, result()), 0);
	assert_int_equal(leat_stage_status(w->to, w->src, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_READY);
	assert_int_equal(c.bytes, SIZE);
	assert_in_range(c.bytes_data, PIECES * PIECE, PIECES * 16384 + SLACK);
	/* With space for the zeros it would be too much. */
	o.capacity = PIECES * PIECE;
	assert_int_equal(leat_stage_plan(&o, result()), -LE_NOSPC);
}

static void test_eviction_gives_back_no_holes(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	char other[160];
	assert_int_equal(leat_stage_in(&o, r), 0);
	snprintf(other, sizeof(other), "%s/other", w->root);
	assert_int_equal(mkdir(other, 0755), 0);
	o.source = other;
	r = result();
	assert_int_equal(leat_stage_plan(&o, r), 0);
	assert_in_range(r->bytes_evictable, PIECES * PIECE, PIECES * 16384 + SLACK);
}

static void test_zeros_are_the_same_data_as_holes(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	char id[LEAT_ID_SIZE];
	assert_int_equal(leat_stage_plan(&o, r), 0);
	memcpy(id, r->id, sizeof(id));
	put_pieces(w->path, true);
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_string_equal(r->id, id);
	assert_kept(w, r->path);
}

static void test_what_is_wrong_in_a_hole_is_taken_out(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	char path[4200], copy[4096];
	assert_int_equal(leat_stage_in(&o, r), 0);
	memcpy(copy, r->path, sizeof(copy));
	snprintf(path, sizeof(path), "%s/sparse", copy);
	assert_int_equal(chmod(path, 0600), 0);
	/* A chunk with a piece in it, and one without. */
	for (unsigned i = 0; i < 2; i++) {
		static char wrong[512u << 10];
		memset(wrong, 'x', sizeof(wrong));
		int fd = open(path, O_WRONLY);
		assert_true(fd >= 0);
		assert_true(pwrite(fd, wrong, sizeof(wrong), i * (2u << 20) + (100u << 10)) > 0);
		close(fd);
	}
	assert_int_equal(leat_stage_verify(&o, w->src, result()), -LE_CORRUPT);
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(r->bytes_moved, 1u << 20);
	assert_kept(w, copy);
}

static void test_out_keeps_holes(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	char dest[160];
	snprintf(dest, sizeof(dest), "%s/results", w->root);
	o.to = w->src;
	o.source = dest;
	assert_int_equal(leat_stage_out(&o, result()), 0);
	assert_kept(w, dest);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_copy_takes_no_space_for_holes),
		T(test_eviction_gives_back_no_holes),
		T(test_zeros_are_the_same_data_as_holes),
		T(test_what_is_wrong_in_a_hole_is_taken_out),
		T(test_out_keeps_holes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
