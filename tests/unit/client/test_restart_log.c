/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that a process has begun and the next one repeats: which keep their slot and sequence. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/write_coalesce.h"
#include "client/layout/stripe.h"
#include "client/ll.h"
#include "client/restart/resume.h"
#include "client/servers/request_slots.h"
#include "client/servers/restart_log.h"
#include "client/servers/target.h"
#include "common/base/list.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/sim/sim.h"
#include "common/rt/slot.h"

#define SLOTS 8

static struct ll_restart_state memory;
static struct loop *here;

static struct client *process_start(void)
{
	struct client *c = calloc(1, sizeof(*c));

	c->restart = &memory;
	restart_log_start(c);
	assert_int_equal(request_slots_init(&c->mds_seqs, SLOTS, c->seq_base), 0);
	restart_log_reserve(c);
	memory.session = 77;
	return c;
}

static void process_killed(struct client *c)
{
	request_slots_fini(&c->mds_seqs);
	free(c);
}

/* Returns true if a kernel request sends this under the same slot and sequence when the next
 * process repeats it. */
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
	assert_int_equal(restart_log_begin(c, op, req, NO_DEADLINE, &slot, &seq), 0);
	fiber_set_local(NULL);
	process_killed(c);
	c = process_start();
	ll_request_begin(&r, c, unique);
	assert_int_equal(restart_log_begin(c, op, req, NO_DEADLINE, &slot2, &seq2), 0);
	restart_log_end(c, slot2);
	ll_request_end(&r);
	process_killed(c);
	return slot == slot2 && seq == seq2;
}

/* An open was refused, and tried with other flags: the second request is the one to repeat. */
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
	assert_int_equal(restart_log_begin(c, OP_mds_open, &emptied, NO_DEADLINE, &first, &seq), 0);
	restart_log_discard(c);
	assert_int_equal(restart_log_begin(c, OP_mds_open, &emptied, NO_DEADLINE, &second, &seq2),
			 0);
	assert_true(first != second || seq != seq2);
	fiber_set_local(NULL);
	process_killed(c);
	c = process_start();
	ll_request_begin(&r, c, 7);
	assert_int_equal(restart_log_begin(c, OP_mds_open, &emptied, NO_DEADLINE, &again, &seq3),
			 0);
	assert_true(again == second && seq3 == seq2);
	restart_log_end(c, again);
	ll_request_end(&r);
	process_killed(c);
}

static void settle(struct client *c)
{
	c->settled_at_us = loop_now_us();
	restart_resume_tick(c);
	latch_wait(&c->bg);
}

/* A request that waits long before its change keeps its slot, while all that are not repeated lose
 * theirs. */
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
	assert_int_equal(restart_log_begin(c, OP_mds_append, &append, NO_DEADLINE, &gone, &seq), 0);
	ll_request_begin(&r, c, 7);
	assert_int_equal(restart_log_begin(c, OP_mds_append, &append, NO_DEADLINE, &slot, &seq), 0);
	fiber_set_local(NULL);
	process_killed(c);
	c = process_start();
	c->taking_over = false; /* the MDS need not be notified */
	latch_init(&c->bg, 0);
	c->loop = here;
	ll_request_begin(&r, c, 7);
	settle(c);
	assert_int_equal(memory.calls[gone].unique, 0);
	assert_int_equal(memory.calls[slot].unique, 7);
	assert_int_not_equal(c->settled_at_us, 0);
	assert_int_equal(restart_log_begin(c, OP_mds_append, &append, NO_DEADLINE, &slot2, &seq2),
			 0);
	assert_true(slot == slot2 && seq == seq2);
	restart_log_end(c, slot2);
	settle(c);
	assert_int_equal(c->settled_at_us, 0);
	ll_request_end(&r);
	assert_int_equal(memory.calls[slot].unique, 0);
	process_killed(c);
}

/* A file's writes have ended since the present writer began. */
static void check_mark_of_what_is_gathered(void)
{
	static uint8_t bytes[2][4096];
	struct slot gathered = {.data = bytes[0], .size = 4096, .refs = 1}, from = gathered;
	struct inode i = {.ino = {5}, .attr = {.layout = {.chunk_size = LL_IO_MAX}}};
	struct stripe_part part = {.len = 4096};
	struct target t = {.grant = LL_IO_MAX};
	struct slot_vec vec = {&from, 0, 4096};
	struct client *c;
	struct inode_io d;
	bool taken;

	from.data = bytes[1];
	memset(&memory, 0, sizeof(memory));
	c = process_start();
	d = (struct inode_io){.inode = &i, .c = c, .coalesce = {.slot = &gathered, .target = &t}};
	list_init(&d.writes);
	assert_int_equal(coalesce_write(&d, &part, &vec, 1, &taken), 0);
	assert_true(taken);
	assert_int_not_equal(d.mark, 0);
	assert_int_equal(memory.marks[d.mark - 1].state, MARK_WRITTEN);
	assert_int_equal(memory.marks[d.mark - 1].ino, 5);
	/* All marks are in use. */
	d.mark = 0;
	for (uint32_t k = 0; k < LL_RESTART_MARKS; k++)
		memory.marks[k].state = MARK_VISIBLE;
	part.off = 4096;
	assert_int_equal(coalesce_write(&d, &part, &vec, 1, &taken), 0);
	assert_false(taken);
	assert_int_equal(d.coalesce.hi, 4096);
	process_killed(c);
}

static void body(struct loop *l, void *arg)
{
	struct mds_setattr_req truncated = {.mask = SET_SIZE}, kill = {.mask = SET_KILL_SUID};
	struct mds_open_req emptied = {.flags = O_WRONLY | O_TRUNC}, plain = {.flags = O_WRONLY};
	struct mds_fallocate_req punch = {.len = 1};
	struct mds_append_req append = {.len = 1};
	struct mds_close_req close = {.flags = O_WRONLY};

	here = l;
	assert_true(keeps_its_number(OP_mds_append, &append));
	assert_true(keeps_its_number(OP_mds_setattr, &truncated));
	assert_true(keeps_its_number(OP_mds_open, &emptied));
	assert_true(keeps_its_number(OP_mds_fallocate, &punch));
	/* An append may follow in the same request, and needs the slot. */
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
