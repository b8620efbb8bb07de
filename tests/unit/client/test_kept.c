/* Changes that a process has begun and the next one repeats: which keep their numbers. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/kept.h"
#include "client/stripe.h"
#include "common/rt/loop.h"
#include "common/rt/sim.h"

#define SLOTS 8

static struct ll_kept memory;
static struct loop *here;

static struct client *process_start(void)
{
	struct client *c = calloc(1, sizeof(*c));

	c->kept = &memory;
	kept_start(c);
	assert_int_equal(seq_table_init(&c->mds_seqs, SLOTS, c->seq_base), 0);
	kept_reserve(c);
	memory.session = 77;
	return c;
}

static void process_killed(struct client *c)
{
	seq_table_fini(&c->mds_seqs);
	free(c);
}

/* The number with which a request of the kernel sends this: of the process, and of a next one to
 * which it comes again. */
static bool keeps_its_number(uint16_t op, const void *req)
{
	static uint64_t unique = 100;
	uint32_t slot, slot2;
	uint64_t seq, seq2;
	struct ll_request r;
	struct client *c;

	memset(&memory, 0, sizeof(memory));
	c = process_start();
	ll_request_begin(&r, c, ++unique);
	assert_int_equal(kept_take(c, op, req, NO_DEADLINE, &slot, &seq), 0);
	fiber_set_local(NULL);
	process_killed(c);
	c = process_start();
	ll_request_begin(&r, c, unique);
	assert_int_equal(kept_take(c, op, req, NO_DEADLINE, &slot2, &seq2), 0);
	kept_give(c, slot2);
	ll_request_end(&r);
	process_killed(c);
	return slot == slot2 && seq == seq2;
}

/* An open that was refused, and tried in another way: that one is repeated. */
static void check_second_try(void)
{
	struct mds_open_req emptied = {.flags = O_WRONLY | O_TRUNC};
	uint32_t first, second, again;
	uint64_t seq, seq2, seq3;
	struct ll_request r;
	struct client *c;

	memset(&memory, 0, sizeof(memory));
	c = process_start();
	ll_request_begin(&r, c, 7);
	assert_int_equal(kept_take(c, OP_mds_open, &emptied, NO_DEADLINE, &first, &seq), 0);
	kept_void(c);
	assert_int_equal(kept_take(c, OP_mds_open, &emptied, NO_DEADLINE, &second, &seq2), 0);
	assert_true(first != second || seq != seq2);
	fiber_set_local(NULL);
	process_killed(c);
	c = process_start();
	ll_request_begin(&r, c, 7);
	assert_int_equal(kept_take(c, OP_mds_open, &emptied, NO_DEADLINE, &again, &seq3), 0);
	assert_true(again == second && seq3 == seq2);
	kept_give(c, again);
	ll_request_end(&r);
	process_killed(c);
}

static void settle(struct client *c)
{
	c->settled_at_us = loop_now_us();
	kept_tick(c);
	latch_wait(&c->bg);
}

/* Until it asks for its change all that nobody asks for again has been given up. */
static void check_one_that_waits_long(void)
{
	struct mds_append_req append = {.len = 1};
	uint32_t gone, slot, slot2;
	uint64_t seq, seq2;
	struct ll_request r, other;
	struct client *c;

	memset(&memory, 0, sizeof(memory));
	c = process_start();
	ll_request_begin(&other, c, 8);
	assert_int_equal(kept_take(c, OP_mds_append, &append, NO_DEADLINE, &gone, &seq), 0);
	ll_request_begin(&r, c, 7);
	assert_int_equal(kept_take(c, OP_mds_append, &append, NO_DEADLINE, &slot, &seq), 0);
	fiber_set_local(NULL);
	process_killed(c);
	c = process_start();
	c->taking_over = false; /* there is nobody to tell */
	latch_init(&c->bg, 0);
	c->loop = here;
	ll_request_begin(&r, c, 7);
	settle(c);
	assert_int_equal(memory.calls[gone].unique, 0);
	assert_int_equal(memory.calls[slot].unique, 7);
	assert_int_not_equal(c->settled_at_us, 0);
	assert_int_equal(kept_take(c, OP_mds_append, &append, NO_DEADLINE, &slot2, &seq2), 0);
	assert_true(slot == slot2 && seq == seq2);
	kept_give(c, slot2);
	settle(c);
	assert_int_equal(c->settled_at_us, 0);
	ll_request_end(&r);
	assert_int_equal(memory.calls[slot].unique, 0);
	process_killed(c);
}

/* Of an inode whose writes have ended since whoever writes now has begun. */
static void check_mark_of_what_is_gathered(void)
{
	static uint8_t bytes[2][4096];
	struct slot gathered = {.data = bytes[0], .size = 4096, .refs = 1}, from = gathered;
	struct inode i = {.ino = {5}, .attr = {.layout = {.chunk_size = LL_IO_MAX}}};
	struct stripe_part part = {.len = 4096};
	struct target t = {.grant = LL_IO_MAX};
	struct slot_vec vec = {&from, 0, 4096};
	struct client *c;
	struct idata d;
	bool taken;

	from.data = bytes[1];
	memset(&memory, 0, sizeof(memory));
	c = process_start();
	d = (struct idata){.inode = &i, .c = c, .gather = {.slot = &gathered, .target = &t}};
	list_init(&d.writes);
	assert_int_equal(gather_write(&d, &part, &vec, 1, &taken), 0);
	assert_true(taken);
	assert_int_not_equal(d.mark, 0);
	assert_int_equal(memory.marks[d.mark - 1].state, KEPT_WRITTEN);
	assert_int_equal(memory.marks[d.mark - 1].ino, 5);
	/* All places are taken by others. */
	d.mark = 0;
	for (uint32_t k = 0; k < LL_KEPT_MARKS; k++)
		memory.marks[k].state = KEPT_SHOWN;
	part.off = 4096;
	assert_int_equal(gather_write(&d, &part, &vec, 1, &taken), 0);
	assert_false(taken);
	assert_int_equal(d.gather.hi, 4096);
	process_killed(c);
}

static void body(struct loop *l, void *arg)
{
	struct mds_setattr_req cut = {.mask = SET_SIZE}, kill = {.mask = SET_KILL_SUID};
	struct mds_open_req emptied = {.flags = O_WRONLY | O_TRUNC}, plain = {.flags = O_WRONLY};
	struct mds_fallocate_req punch = {.len = 1};
	struct mds_append_req append = {.len = 1};
	struct mds_close_req close = {.flags = O_WRONLY};

	here = l;
	assert_true(keeps_its_number(OP_mds_append, &append));
	assert_true(keeps_its_number(OP_mds_setattr, &cut));
	assert_true(keeps_its_number(OP_mds_open, &emptied));
	assert_true(keeps_its_number(OP_mds_fallocate, &punch));
	/* An append may follow in the same request, which needs it. */
	assert_false(keeps_its_number(OP_mds_setattr, &kill));
	kill.mask |= SET_MODE;
	assert_false(keeps_its_number(OP_mds_setattr, &kill));
	kill.mask |= SET_SIZE;
	assert_true(keeps_its_number(OP_mds_setattr, &kill));
	assert_false(keeps_its_number(OP_mds_open, &plain));
	assert_false(keeps_its_number(OP_mds_close, &close));
	check_second_try();
	check_one_that_waits_long();
	check_mark_of_what_is_gathered();
	*(bool *)arg = true;
}

static bool is_done(void *arg)
{
	return *(bool *)arg;
}

static void what_must_not_be_twice_keeps_its_number(void **state)
{
	struct sim_options so = {0};
	bool done = false;
	struct sim_proc *p;
	struct sim *sim;

	(void)state;
	assert_int_equal(sim_create(1, &so, &sim), 0);
	p = sim_proc_create(sim, "client");
	assert_int_equal(sim_proc_start(p, body, &done), 0);
	assert_int_equal(sim_run(sim, is_done, &done, sim_now_us(sim) + 1000000), 0);
	sim_destroy(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_must_not_be_twice_keeps_its_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
