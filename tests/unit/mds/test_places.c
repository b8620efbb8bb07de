/* Places of appends: whose they are after a session has ended, somebody has written there, or the
 * append has failed; and what is told of those before them. */
#include <fcntl.h>

#include "tests/unit/mds/fixture.h"

static uint64_t append(struct fx *f, struct ino ino, uint64_t len, uint64_t size)
{
	struct mds_append_req q = {.ino = ino, .len = len, .size = size};
	struct mds_append_rep p;

	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	return p.off;
}

/* A place that was given under a session that has ended is its client's, until something is cut. */
static void former_place_body(struct fx *f)
{
	struct mds_append_req q = {.len = 10};
	struct mds_append_rep p, again;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "placed", O_WRONLY | O_APPEND, &a), 0);
	q.ino = a.ino;
	assert_int_equal(append(f, a.ino, 100, 0), 0);
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 100);
	open_find(&f->m->opens, session_find(&f->m->sessions, f->session), a.ino)->placed = false;
	f->session = fx_session(f, 2);
	f->slot = 1;
	/* Who cuts the file would not ask it. */
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), -LE_BADF);
	assert_int_equal(fx_open(f, a.ino, O_RDONLY), 0);
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), -LE_BADF);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	assert_int_equal(append(f, a.ino, 10, 0), 110);
	q.had_end = p.off + 10;
	q.had_cuts = p.cuts;
	q.had_there = 1;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), 0);
	assert_int_equal(again.off, 100);
	q.had_there = 0;
	assert_int_equal(append(f, a.ino, 10, 0), 120); /* what was given meanwhile stays given */
	q.had_end = 1000;				/* never given */
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), 0);
	assert_int_equal(again.off, 130);
	/* As if it had answered that it has written there. */
	open_find(&f->m->opens, session_find(&f->m->sessions, f->session), a.ino)->placed = false;
	assert_int_equal(fx_truncate(f, a.ino, 50), 0);
	q.had_end = p.off + 10;
	f->stat.size = 50;
	q.had_there = 1;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), -LE_EXIST);
	q.had_there = 0;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &again), 0);
	assert_int_equal(again.off, 50);
}

/* Somebody has written at a place before the append that it was given to: what is left of it is
 * given again, behind what the chains have then. */
static void lost_place_body(struct fx *f)
{
	struct mds_append_req q = {.len = 10, .had_lost = 1};
	struct mds_append_rep p;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "lost", O_WRONLY | O_APPEND, &a), 0);
	q.ino = a.ino;
	f->session = fx_session(f, 2);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	assert_int_equal(append(f, a.ino, 10, 0), 0);
	f->stat.size = 4;
	q.had_end = 10;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 4);
	assert_int_equal(append(f, a.ino, 10, 0), 14);
	/* What was given behind it is out of reach then, and is asked for again. */
	q.had_end = 14;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 4);
	assert_int_equal(p.there, 4);
	q.had_end = 24;
	q.had_lost = 0;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 14);
	assert_int_equal(p.there, 0); /* nobody was asked */
	/* And what was cut meanwhile is no place. */
	q.had_end = 24;
	q.had_cuts = p.cuts + 1;
	q.had_lost = 1;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 24);
}

/* Appends fail, each behind the one before, and are given back: nothing is left in between. */
static void given_back_body(struct fx *f)
{
	struct mds_append_req q = {.len = 10}, back = {.had_lost = 1};
	struct mds_append_rep p;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "back", O_WRONLY | O_APPEND, &a), 0);
	q.ino = back.ino = a.ino;
	f->session = fx_session(f, 2);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	f->stat.size = 7;
	for (uint32_t order = 0; order < 2; order++) {
		for (uint32_t i = 0; i < 3; i++) {
			assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
			assert_int_equal(p.off, 10 * i + (order > 0 ? 7 : 0));
		}
		back.had_cuts = p.cuts;
		for (uint32_t i = 0; i < 3; i++) {
			uint64_t k = order > 0 ? 2 - i : i;

			back.had_end = 10 * (k + 1) + (order > 0 ? 7 : 0);
			assert_int_equal(fx_call(f, OP_mds_append, &back, &p), 0);
		}
		assert_int_equal(fx_call(f, OP_mds_append, &back, &p), 0);
		assert_int_equal(p.off, 7);
	}
}

/* Where a chunk begins the chains are asked whether what was given before it is there. */
static void chunk_begins_body(struct fx *f)
{
	struct mds_append_req q = {0};
	struct mds_append_rep p;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "begins", O_WRONLY | O_APPEND, &a), 0);
	f->session = fx_session(f, 2);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	q = (struct mds_append_req){.ino = a.ino, .len = a.layout.chunk_size};
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 0);
	q.len = 10;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, a.layout.chunk_size);
	assert_int_equal(p.there, 0);
	f->stat.size = a.layout.chunk_size;
	q.had_end = p.off + 10;
	q.had_cuts = p.cuts;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, a.layout.chunk_size);
	assert_int_equal(p.there, a.layout.chunk_size);
}

/* Two had one place, and who was faster has one behind it. That stays his: the slower one gets the
 * one behind, and so they do not meet again. */
static void overtaken_body(struct fx *f)
{
	struct mds_append_req q = {.len = 10, .had_lost = 1, .had_end = 10};
	struct mds_append_rep p;
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "overtaken", O_WRONLY | O_APPEND, &a), 0);
	q.ino = a.ino;
	f->session = fx_session(f, 2);
	assert_int_equal(fx_open(f, a.ino, O_WRONLY | O_APPEND), 0);
	assert_int_equal(append(f, a.ino, 10, 0), 0);
	f->stat.size = 10;
	assert_int_equal(append(f, a.ino, 10, 10), 10);
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 20);
	assert_int_equal(p.there, 10);
	/* Once more: who has 10 to 20 does not come. */
	q.had_end = 30;
	assert_int_equal(fx_call(f, OP_mds_append, &q, &p), 0);
	assert_int_equal(p.off, 10);
}

TEST(test_former_place, former_place_body)
TEST(test_lost_place, lost_place_body)
TEST(test_given_back, given_back_body)
TEST(test_overtaken, overtaken_body)
TEST(test_chunk_begins, chunk_begins_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_former_place),
		cmocka_unit_test(test_lost_place),
		cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_overtaken),
		cmocka_unit_test(test_chunk_begins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
