/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends of a client whose session ends meanwhile: the file's end from before need not be its end
 * afterwards. And unflushed data when the metadata server restarts.
 */
#include "tests/unit/client/bed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/data/write.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/restart_log.h"
#include "client/servers/session.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/frame.h"
#include "common/proto/mds_proto.h"
#include "common/proto/oss_proto.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define END   (12u << 10)
#define PLACE (20u << 10)
#define CUT   (4u << 10)

/* Memory in use at the end of the simulation leaks. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

/* No other client has the file open. */
static struct ll_file *open_to_append(uint32_t flags)
{
	struct cred cred = {.flags = CRED_CHECKED};
	struct inode_io *d = bed_open();
	struct ll_file *f;

	bed.attr = (struct attr){.ino = d->inode->ino,
				 .mode = S_IFREG | 0644,
				 .nlink = 1,
				 .size = END,
				 .change = 1,
				 .flags = ATTR_UNSETTLED | ATTR_LEASED,
				 .layout = d->inode->attr.layout};
	bed.append_range = PLACE;
	d->n_append = 1;
	assert_int_equal(size_request_attr(bed.client, &cred, d->inode), 0);
	assert_true(inode_size_fresh(bed.client, d->inode));
	f = file_make(bed.client, d->inode, d, &cred, flags | O_RDWR | O_APPEND);
	assert_non_null(f);
	return f;
}

static void close_it(struct ll_file *f)
{
	struct inode_io *d = f->d;

	assert_int_equal(wb_flush(d), 0);
	d->n_files--;
	d->n_append = 0;
	file_free(f);
	bed_close(d);
}

static void session_ends_while_the_place_is_asked_for(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	bed.append_ends_session = true;
	assert_int_equal(ll_pwrite(f, "record", 6, 0), 6);
	assert_int_equal(bed.n_appends, 2);
	assert_int_equal(bed.append_sizes[0], END);
	assert_int_equal(bed.append_sizes[1], 0);
	assert_int_equal(bed.oss[0].last_off, PLACE);
	assert_int_equal(f->d->size, PLACE + 6);
	close_it(f);
}

static bool ended;

static void append_record(void *arg)
{
	assert_int_equal(ll_pwrite(arg, "record", 6, 0), 6);
	ended = true;
}

static uint32_t take_all(struct slot **slots, uint32_t max)
{
	uint32_t n = slot_pool_total(bed.client->slots);

	assert_true(n <= max);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(slot_get(bed.client->slots, NO_DEADLINE, &slots[i]), 0);
	return n;
}

static void session_ends_while_it_waits_for_a_slot(void)
{
	struct ll_file *f = open_to_append(0);
	struct slot *slots[64];
	uint32_t n = take_all(slots, ARRAY_SIZE(slots));

	map_head(bed.client, &f->inode->attr.layout, 0)->grant = 1 << 20;
	ended = false;
	assert_int_equal(fiber_spawn("append", append_record, f), 0);
	assert_int_equal(fiber_sleep_us(1000), 0);
	assert_true(f->d->appending);
	/* Now only another client has the file open, and has appended. */
	bed.session++;
	bed.attr.flags &= ~(uint32_t)ATTR_LEASED;
	bed.stored = PLACE;
	assert_int_equal(session_renew(bed.client, SESSION), 0);
	while (n > 0)
		slot_unref(slots[--n]);
	while (!ended)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_int_equal(wb_flush(f->d), 0);
	assert_int_equal(bed.n_appends, 1);
	assert_int_equal(bed.append_sizes[0], PLACE);
	assert_int_equal(bed.oss[0].n_writes, 1);
	assert_int_equal(bed.oss[0].last_off, PLACE);
	close_it(f);
}

/* By another client. */
static void cut_to(uint64_t size, uint32_t flags)
{
	bed.attr.size = bed.stored = size;
	bed.attr.change++;
	bed.attr.n_truncations++;
	bed.attr.flags = flags;
}

static void cut_before_it_is_open_again(void)
{
	struct cred cred = {.flags = CRED_CHECKED};
	struct ll_file *f = open_to_append(0);
	struct inode *i = f->inode;
	struct attr attr;

	map_head(bed.client, &i->attr.layout, 0)->grant = 1 << 20;
	bed.session++;
	bed.open_status = -LE_NOT_READY;
	cut_to(CUT, ATTR_LEASED); /* it seems to have no writer */
	assert_int_equal(session_renew(bed.client, SESSION), 0);
	assert_true(bed.client->reopening);
	assert_int_equal(size_get_attr(bed.client, &cred, i, &attr), 0);
	assert_int_equal(attr.size, CUT);
	assert_false(lease_held(bed.client, i));
	ended = false;
	assert_int_equal(fiber_spawn("append", append_record, f), 0);
	assert_int_equal(fiber_sleep_us(100000), 0);
	assert_false(ended);
	cut_to(CUT / 2, ATTR_UNSETTLED | ATTR_LEASED);
	bed.open_status = 0;
	while (!ended)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_int_equal(wb_flush(f->d), 0);
	assert_int_equal(bed.n_appends, 1);
	assert_int_equal(bed.append_sizes[0], CUT / 2);
	assert_int_equal(bed.oss[0].last_off, PLACE);
	close_it(f);
}

static void cut_while_others_write_it(void)
{
	struct cred cred = {.flags = CRED_CHECKED};
	struct ll_file *f = open_to_append(O_SYNC);
	struct attr attr;

	cut_to(END, ATTR_UNSETTLED);
	assert_int_equal(size_request_attr(bed.client, &cred, f->inode), 0);
	assert_int_equal(size_get_attr(bed.client, &cred, f->inode, &attr), 0);
	assert_int_equal(attr.size, END);
	cut_to(CUT, ATTR_UNSETTLED);
	append_record(f);
	assert_int_equal(bed.append_sizes[0], CUT);
	close_it(f);
}

/* In a new session its reopening is refused at first; later it is granted. */
static void refused_at_first(struct ll_file *f)
{
	uint64_t began = loop_now_us();

	bed.session++;
	bed.open_status = -LE_PERM;
	bed.attr.flags = 0;
	assert_int_equal(session_renew(bed.client, SESSION), 0);
	assert_int_equal(ll_pwrite(f, "record", 6, 0), -LE_PERM);
	assert_true(loop_now_us() < began + 1000000);
	bed.open_status = 0;
	bed.attr.flags = ATTR_UNSETTLED;
	append_record(f);
	append_record(f);
	assert_int_equal(bed.n_opens, 2); /* to read and to write */
	assert_int_equal(bed.n_closes, 0);
	close_it(f);
}

static void append_is_refused_at_first(void)
{
	refused_at_first(open_to_append(O_SYNC));
}

static void write_is_refused_at_first(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	f->d->n_append = 0;
	f->flags = f->counted = O_RDWR | O_SYNC;
	ll_set_append(f, false);
	refused_at_first(f);
}

static void server_restarts_while_it_hides(bool shared)
{
	struct ll_file *f = open_to_append(0);
	struct inode *i = f->inode;

	map_head(bed.client, &i->attr.layout, 0)->grant = 1 << 20;
	append_record(f);
	assert_true(has_unflushed(f->d));
	/* Since then a reply, such as that to a close, reported that several clients have it
	 * open. */
	if (shared)
		bed.attr.flags = ATTR_UNSETTLED | ATTR_SHARED;
	assert_int_equal(size_request_attr(bed.client, &(struct cred){.flags = CRED_CHECKED}, i),
			 0);
	assert_true(lease_shared_lasts(bed.client, i) == shared);
	bed.n_restarts++;
	assert_int_equal(session_renew(bed.client, SESSION), 0);
	assert_int_equal(bed.reclaimed & (RECLAIM_UNFLUSHED | RECLAIM_SHARED), RECLAIM_UNFLUSHED);
	/* The reclaim has reported a write lease instead. */
	assert_false(lease_shared_lasts(bed.client, i));
	close_it(f);
}

static void server_restarts(void)
{
	server_restarts_while_it_hides(false);
}

static void server_restarts_and_it_was_shared(void)
{
	server_restarts_while_it_hides(true);
}

static void plan(uint32_t n, int first, int second, int third)
{
	bed.oss[0].n_plan = n;
	bed.oss[0].plan[0] = first;
	bed.oss[0].plan[1] = second;
	bed.oss[0].plan[2] = third;
	bed.next_place = PLACE + 100;
}

/* Another client has written in the append reservation. */
static void place_is_taken(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	plan(1, -LE_EXIST, 0, 0);
	append_record(f);
	assert_int_equal(bed.n_appends, 2);
	assert_int_equal(bed.tried.had_lost, 1);
	assert_int_equal(bed.tried.had_end, PLACE + 6);
	assert_int_equal(bed.oss[0].n_writes, 2);
	assert_int_equal(bed.oss[0].writes[0].off, PLACE);
	assert_int_equal(bed.oss[0].writes[1].off, PLACE + 100);
	for (int i = 0; i < 2; i++)
		assert_true(bed.oss[0].writes[i].flags & WRITE_RESERVED);
	close_it(f);
}

static void session_ends_before_it_is_taken(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	plan(2, -LE_SESSION_GONE, -LE_EXIST, 0);
	append_record(f);
	assert_int_equal(bed.n_appends, 3);
	assert_int_equal(bed.oss[0].writes[1].off, PLACE);
	assert_int_equal(bed.oss[0].writes[2].off, PLACE + 100);
	close_it(f);
}

/* What the other client overwrote may be the record itself: it must not be written a second
 * time. */
static void session_ends_and_it_may_be_there(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	plan(3, -LE_ABORTED, -LE_SESSION_GONE, -LE_EXIST);
	assert_int_equal(ll_pwrite(f, "record", 6, 0), -LE_IO);
	assert_int_equal(bed.n_appends, 2);
	assert_int_equal(bed.oss[0].n_writes, 3);
	close_it(f);
}

/* Serves kernel request number 7. repeats: the previous process has made an append reservation for
 * it, under a sequence that is returned. */
static struct ll_restart_state memory;
static struct ll_request request;

static uint64_t serve_kept(bool repeats)
{
	struct client *c = bed.client;
	const uint64_t seq = 5;

	memset(&memory, 0, sizeof(memory));
	memory.generation = 2;
	if (repeats)
		memory.calls[3] = (struct ll_restart_call){
			.unique = 7, .seq = seq, .generation = 1, .op = OP_mds_append};
	c->restart = &memory;
	restart_log_reserve(c);
	ll_request_begin(&request, c, 7);
	return seq;
}

static void serve_end(void)
{
	ll_request_end(&request);
	bed.client->restart = NULL;
}

/* True if the next process would repeat the last request. */
static bool keeps_last(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < LL_RESTART_CALLS; i++)
		n += memory.calls[i].unique == 7;
	return n == 1 && memory.calls[bed.asked_slot].unique == 7 &&
	       memory.calls[bed.asked_slot].seq == bed.asked_seq;
}

/* Although only this client has the file's end and could coalesce. */
static void former_place_is_asked_about(void)
{
	struct ll_file *f = open_to_append(0);

	map_head(bed.client, &f->inode->attr.layout, 0)->grant = 1 << 20;
	(void)serve_kept(true);
	append_record(f);
	assert_int_equal(bed.n_appends, 2);
	assert_int_equal(bed.tried.had_end, PLACE + 6);
	assert_int_equal(bed.tried.had_there, 1);
	assert_int_equal(bed.oss[0].n_writes, 1);
	assert_int_equal(bed.oss[0].last_off, PLACE);
	serve_end();
	close_it(f);
}

static void former_place_keeps_its_number(void)
{
	struct ll_file *f = open_to_append(O_SYNC);
	uint64_t seq = serve_kept(true);

	append_record(f);
	assert_int_equal(memory.calls[3].unique, 7);
	assert_int_equal(memory.calls[3].seq, seq);
	serve_end();
	close_it(f);
}

/* The file was truncated since: the reply to the previous process is no longer valid. */
static void former_place_is_void(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	bed.had_status = -LE_EXIST;
	(void)serve_kept(true);
	assert_int_equal(ll_pwrite(f, "record", 6, 0), -LE_IO);
	assert_int_equal(bed.n_appends, 2);
	assert_int_equal(bed.oss[0].n_writes, 0);
	serve_end();
	close_it(f);
}

/* What was overwritten may be the record. */
static void former_place_is_taken(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	plan(1, -LE_EXIST, 0, 0);
	(void)serve_kept(true);
	assert_int_equal(ll_pwrite(f, "record", 6, 0), -LE_IO);
	assert_int_equal(bed.n_appends, 2);
	assert_int_equal(bed.oss[0].n_writes, 1);
	serve_end();
	close_it(f);
}

static void void_place_is_not_kept(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	f->d->reservation_void = 1;
	(void)serve_kept(false);
	append_record(f);
	assert_int_equal(bed.n_appends, 2);
	assert_int_equal(bed.tried.had_there, 0);
	assert_true(keeps_last());
	serve_end();
	close_it(f);
}

static void lost_place_is_not_kept(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	plan(1, -LE_EXIST, 0, 0);
	(void)serve_kept(false);
	append_record(f);
	assert_int_equal(bed.n_appends, 2);
	assert_true(keeps_last());
	serve_end();
	close_it(f);
}

/* A write has an unknown outcome, and then its capability expires. */
static void capability_runs_out(void)
{
	struct ll_file *f = open_to_append(0);
	const struct frame_hdr *first = &bed.oss[0].writes[0].hdr;

	map_head(bed.client, &f->inode->attr.layout, 0)->grant = 1 << 20;
	plan(2, -LE_ABORTED, -LE_BAD_CAP, 0);
	append_record(f);
	assert_int_equal(wb_flush(f->d), 0);
	assert_int_equal(f->d->err_gen, 0);
	assert_int_equal(bed.n_opens, 1);
	assert_int_equal(bed.oss[0].n_writes, 3);
	for (int i = 1; i < 3; i++) {
		assert_int_equal(bed.oss[0].writes[i].hdr.slot, first->slot);
		assert_int_equal(bed.oss[0].writes[i].hdr.seq, first->seq);
	}
	close_it(f);
}

/* The first new capabilities have expired too, for an object server without the metadata server's
 * clock: the write succeeds a little later, under the same slot and sequence. */
static void capability_expires(void)
{
	struct ll_file *f = open_to_append(0);
	const struct frame_hdr *first = &bed.oss[0].writes[0].hdr;
	uint64_t began = loop_now_us();

	map_head(bed.client, &f->inode->attr.layout, 0)->grant = 1 << 20;
	plan(3, -LE_CAP_EXPIRED, -LE_CAP_EXPIRED, -LE_CAP_EXPIRED);
	append_record(f);
	assert_int_equal(wb_flush(f->d), 0);
	assert_int_equal(bed.n_opens, 3);
	assert_int_equal(bed.oss[0].n_writes, 4);
	for (int i = 1; i < 4; i++) {
		assert_int_equal(bed.oss[0].writes[i].hdr.slot, first->slot);
		assert_int_equal(bed.oss[0].writes[i].hdr.seq, first->seq);
	}
	assert_in_range(loop_now_us() - began, 150000, 300000);
	close_it(f);
}

/* All new capabilities have expired: the write ends with that error. */
static void capabilities_always_expire(void)
{
	struct ll_file *f = open_to_append(O_SYNC);
	uint64_t began = loop_now_us();

	bed.oss[0].write_status = -LE_CAP_EXPIRED;
	assert_int_equal(ll_pwrite(f, "record", 6, 0), -LE_CAP_EXPIRED);
	assert_int_equal(status_errno(-LE_CAP_EXPIRED), EIO);
	assert_in_range(loop_now_us() - began, 3000000, 8000000);
	assert_in_range(bed.n_opens, 8, 12);
	bed.oss[0].write_status = 0;
	close_it(f);
}

/* Capabilities that are always refused end the write too. */
static void capabilities_are_refused(void)
{
	struct ll_file *f = open_to_append(O_SYNC);

	bed.oss[0].write_status = -LE_BAD_CAP;
	assert_int_equal(ll_pwrite(f, "record", 6, 0), -LE_BAD_CAP);
	assert_in_range(bed.n_opens, 2, 4);
	bed.oss[0].write_status = 0;
	close_it(f);
}

/* Writes 16 KiB across the border of two chunks; *ret_us is the time it took. The file ends in the
 * first. */
static int write_over_border(bool shared, uint64_t *ret_us)
{
	static uint8_t data[16u << 10];
	struct cred cred = {.flags = CRED_CHECKED};
	struct ll_file *f = open_to_append(O_SYNC);
	uint64_t us;
	int64_t rc;

	f->d->n_append = 0;
	f->flags = f->counted = O_RDWR | O_SYNC;
	ll_set_append(f, false);
	if (shared) {
		bed.attr.flags = ATTR_UNSETTLED | ATTR_SHARED;
		assert_int_equal(size_request_attr(bed.client, &cred, f->inode), 0);
	}
	assert_true(lease_held(bed.client, f->inode) == !shared);
	us = loop_now_us();
	rc = ll_pwrite(f, data, sizeof(data), CHUNK - (8u << 10));
	*ret_us = loop_now_us() - us;
	close_it(f);
	assert_true(rc < 0 || rc == sizeof(data));
	return rc < 0 ? (int)rc : 0;
}

/* A file that others can read grows from its end on. */
static void parts_come_in_order(void)
{
	uint64_t us;

	bed.oss[0].write_us = 100000;
	assert_int_equal(write_over_border(true, &us), 0);
	assert_int_equal(bed.oss[0].n_writes, 2);
	assert_int_equal(bed.oss[0].writes[0].off, CHUNK - (8u << 10));
	assert_int_equal(bed.oss[0].writes[1].off, 0);
	assert_in_range(us, 200000, 250000);
}

static void parts_come_at_once(void)
{
	uint64_t us;

	bed.oss[0].write_us = 100000;
	assert_int_equal(write_over_border(false, &us), 0);
	assert_int_equal(bed.oss[0].n_writes, 2);
	assert_in_range(us, 100000, 150000);
}

static void the_first_part_fails(void)
{
	uint64_t us;

	plan(1, -LE_NOSPC, 0, 0);
	assert_int_equal(write_over_border(true, &us), -LE_NOSPC);
	assert_int_equal(bed.oss[0].n_writes, 1);
}

#define TEST(name, fn)                                                                             \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		bed_run(fn);                                                                       \
	}
TEST(an_append_that_is_asked_for_again_does_not_tell_the_end_of_before,
     session_ends_while_the_place_is_asked_for)
TEST(an_append_that_has_waited_for_a_slot_is_not_at_the_end_of_before,
     session_ends_while_it_waits_for_a_slot)
TEST(an_append_waits_for_its_file_and_asks_then_where_it_ends, cut_before_it_is_open_again)
TEST(where_the_chains_said_it_ended_before_a_cut_is_not_told, cut_while_others_write_it)
TEST(an_append_opens_what_was_refused_when_the_session_began, append_is_refused_at_first)
TEST(so_does_a_write_and_it_stays_open, write_is_refused_at_first)
TEST(a_restarted_server_is_told_of_what_is_hidden, server_restarts)
TEST(what_is_hidden_is_not_told_as_shared, server_restarts_and_it_was_shared)

TEST(an_append_does_not_go_over_what_others_wrote_at_its_place, place_is_taken)
TEST(nor_in_another_session, session_ends_before_it_is_taken)
TEST(one_that_may_be_there_already_fails_rather, session_ends_and_it_may_be_there)
TEST(the_place_that_a_former_process_had_is_asked_about, former_place_is_asked_about)
TEST(and_may_be_by_the_process_after_this_one, former_place_keeps_its_number)
TEST(an_append_whose_former_place_was_cut_fails, former_place_is_void)
TEST(and_one_whose_former_place_was_overwritten, former_place_is_taken)
TEST(a_process_that_comes_later_does_not_repeat_a_void_place, void_place_is_not_kept)
TEST(nor_a_lost_one, lost_place_is_not_kept)
TEST(a_write_whose_capability_has_run_out_keeps_its_number, capability_runs_out)
TEST(a_capability_that_has_expired_is_renewed_until_it_is_none, capability_expires)
TEST(capabilities_that_always_expire_are_an_error, capabilities_always_expire)
TEST(capabilities_that_are_refused_for_ever_end, capabilities_are_refused)
TEST(a_shared_file_grows_from_its_end_on, parts_come_in_order)
TEST(not_by_its_second_part_alone, the_first_part_fails)
TEST(under_a_write_lease_all_parts_go_at_once, parts_come_at_once)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_append_that_is_asked_for_again_does_not_tell_the_end_of_before),
		cmocka_unit_test(an_append_that_has_waited_for_a_slot_is_not_at_the_end_of_before),
		cmocka_unit_test(an_append_waits_for_its_file_and_asks_then_where_it_ends),
		cmocka_unit_test(where_the_chains_said_it_ended_before_a_cut_is_not_told),
		cmocka_unit_test(an_append_opens_what_was_refused_when_the_session_began),
		cmocka_unit_test(so_does_a_write_and_it_stays_open),
		cmocka_unit_test(a_restarted_server_is_told_of_what_is_hidden),
		cmocka_unit_test(what_is_hidden_is_not_told_as_shared),
		cmocka_unit_test(an_append_does_not_go_over_what_others_wrote_at_its_place),
		cmocka_unit_test(nor_in_another_session),
		cmocka_unit_test(one_that_may_be_there_already_fails_rather),
		cmocka_unit_test(the_place_that_a_former_process_had_is_asked_about),
		cmocka_unit_test(and_may_be_by_the_process_after_this_one),
		cmocka_unit_test(an_append_whose_former_place_was_cut_fails),
		cmocka_unit_test(and_one_whose_former_place_was_overwritten),
		cmocka_unit_test(a_process_that_comes_later_does_not_repeat_a_void_place),
		cmocka_unit_test(nor_a_lost_one),
		cmocka_unit_test(a_write_whose_capability_has_run_out_keeps_its_number),
		cmocka_unit_test(a_capability_that_has_expired_is_renewed_until_it_is_none),
		cmocka_unit_test(capabilities_that_always_expire_are_an_error),
		cmocka_unit_test(capabilities_that_are_refused_for_ever_end),
		cmocka_unit_test(a_shared_file_grows_from_its_end_on),
		cmocka_unit_test(not_by_its_second_part_alone),
		cmocka_unit_test(under_a_write_lease_all_parts_go_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
