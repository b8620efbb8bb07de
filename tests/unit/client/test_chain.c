/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client and a chain of three members: which member gets a request, with which slot and sequence,
 * and how long it takes when one of them dies, is silent or has damaged data.
 */
#include "common/rpc/transport/transport_sim.h"
#include "tests/unit/client/bed.h"

#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/data/chunk_lease.h"
#include "client/data/fetch.h"
#include "client/data/open_file.h"
#include "client/data/write_request.h"
#include "client/layout/stripe.h"
#include "client/ll.h"
#include "client/servers/hedge.h"
#include "client/servers/map_refresh.h"
#include "common/base/checksum.h"
#include "common/kv/kv.h"
#include "common/proto/frame.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

/* Processes that crash, or run at the end of the simulation, leak their memory. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

/* ---- what the tests do ---- */

/* Reads once. *ret_id is the member that has answered, *ret_us the time it took. */
static int read_one(struct inode_io *d, uint64_t idx, uint32_t *ret_id, uint64_t *ret_us)
{
	uint64_t since = loop_now_us();
	struct slot *s;
	int rc;

	assert_int_equal(slot_get(bed.client->slots, NO_DEADLINE, &s), 0);
	rc = fetch_range(d, idx * CHUNK, &(struct slot_vec){s, 0, LEN}, NULL, NULL);
	*ret_us = loop_now_us() - since;
	*ret_id = s->data[LEN - 1];
	for (uint32_t i = 0; rc >= 0 && i < LEN; i++)
		assert_int_equal(s->data[i], *ret_id);
	slot_unref(s);
	return rc;
}

static int write_one(struct inode_io *d, uint64_t *ret_us)
{
	uint64_t since = loop_now_us();
	struct stripe_part part = {.idx = 0, .off = 0, .len = LEN};
	struct slot_vec vec = {NULL, 0, LEN};
	int rc;

	assert_int_equal(slot_get(bed.client->slots, NO_DEADLINE, &vec.slot), 0);
	memset(vec.slot->data, 1, LEN);
	rc = wb_write_now(d, &part, &vec, 1, 0);
	slot_unref(vec.slot);
	*ret_us = loop_now_us() - since;
	return rc;
}

/* Establishes all connections. Returns which member answers reads of chunk idx. */
static uint32_t warm_up(struct inode_io *d, uint64_t idx)
{
	uint32_t id, all = 0;
	uint64_t us;

	for (uint64_t i = 0; i < 32; i++) {
		assert_int_equal(read_one(d, i, &id, &us), 0);
		all |= 1u << (id - 10);
	}
	assert_int_equal(all, 7);
	assert_int_equal(read_one(d, idx, &id, &us), 0);
	return id - 10;
}

/* Calls fn after that time: in a loop, or outside of all. */
static void after_ms(uint64_t ms, struct loop *loop, void (*fn)(void *arg))
{
	assert_int_equal(sim_after(bed.sim, ms * 1000, loop, fn, NULL), 0);
}

static void head_dies(void *arg)
{
	(void)arg;
	sim_proc_crash(bed.oss[0].proc);
}

static void second_leads(void *arg)
{
	(void)arg;
	bed_set_chain(N, 2, 1, 2, 0);
}

static void second_leads_and_client_hears(void *arg)
{
	second_leads(arg);
	bed_tell_client(arg);
}

static void silence(uint32_t i, bool truncated)
{
	char name[8];

	snprintf(name, sizeof(name), "oss%u", i);
	transport_sim_partition(bed.transport, name, "client", truncated);
}

/* ---- tests ---- */

static void killed_head(void)
{
	struct inode_io *d = bed_open();
	struct frame_hdr first;
	uint64_t us;

	(void)warm_up(d, 0);
	assert_int_equal(write_one(d, &us), 0);
	assert_int_equal(bed.oss[0].n_writes, 1);
	assert_int_equal(bed.oss[0].last_write.chain, CHAIN);
	assert_int_equal(bed.oss[0].last_write.epoch, bed.epoch);
	/* The head takes the write and dies. 30 ms later another one is the head, and no
	 * notification is sent. */
	bed.oss[0].write_us = 10000000;
	after_ms(5, NULL, head_dies);
	after_ms(35, NULL, second_leads);
	assert_int_equal(write_one(d, &us), 0);
	assert_in_range(us, 35000, 150000);
	/* Equal slot and sequence at the new head: executed once. */
	first = bed.oss[0].last_write;
	assert_int_equal(bed.oss[1].n_writes, 1);
	assert_int_equal(bed.oss[1].last_write.session, first.session);
	assert_int_equal(bed.oss[1].last_write.slot, first.slot);
	assert_int_equal(bed.oss[1].last_write.seq, first.seq);
	assert_int_equal(bed.oss[1].last_write.epoch, bed.epoch);
	assert_int_equal(bed.oss[2].n_writes, 0);
	/* A new write has another sequence. */
	assert_int_equal(write_one(d, &us), 0);
	assert_true(bed.oss[1].last_write.seq > first.seq);
	bed_close(d);
}

static void silent_head(void)
{
	struct inode_io *d = bed_open();
	uint64_t us;

	(void)warm_up(d, 0);
	silence(0, true);
	after_ms(300, bed.mds_loop, second_leads_and_client_hears);
	assert_int_equal(write_one(d, &us), 0);
	/* The notification of the new map ends the wait, not the deadline of the attempt. */
	assert_in_range(us, 300000, 330000);
	assert_int_equal(bed.oss[1].n_writes, 1);
	silence(0, false);
	bed_close(d);
}

static void silent_head_and_no_word(void)
{
	struct inode_io *d = bed_open();
	uint64_t us;

	(void)warm_up(d, 0);
	silence(0, true);
	after_ms(1200, NULL, second_leads);
	assert_int_equal(write_one(d, &us), 0);
	assert_in_range(us, 1200000, 3000000);
	silence(0, false);
	bed_close(d);
}

static void new_map_leaves_what_is_right(void)
{
	struct inode_io *d = bed_open();
	uint64_t us;

	(void)warm_up(d, 0);
	bed.oss[0].write_us = 100000;
	/* Another member leaves, the head stays: nothing is sent twice. */
	bed_set_chain(2, 2, 0, 2, 1);
	after_ms(10, bed.mds_loop, bed_tell_client);
	assert_int_equal(write_one(d, &us), 0);
	assert_int_equal(bed.oss[0].n_writes, 1);
	assert_int_equal(bed.client->map.epoch, bed.epoch);
	bed_close(d);
}

static void killed_member(void)
{
	struct inode_io *d = bed_open();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	/* Its connection breaks while the reply is outstanding. */
	bed.oss[who].read_us = 10000000;
	bed.client->params.hedge_ms = 0;
	sim_proc_crash(bed.oss[who].proc);
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_not_equal(id, 10 + who);
	assert_in_range(us, 0, 10000);
	bed_close(d);
}

static void silent_member(void)
{
	struct inode_io *d = bed_open();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	silence(who, true);
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_not_equal(id, 10 + who);
	assert_in_range(us, HEDGE_MIN_US, 60000);
	assert_int_equal(bed.client->stats.hedges_won, 1);
	/* It is not preferred now. */
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_in_range(us, 0, 5000);
	assert_int_equal(bed.client->stats.hedges, 1);
	silence(who, false);
	bed_close(d);
}

static void head_is_quick(void *arg)
{
	(void)arg;
	bed.oss[0].read_us = 0;
}

/* A reply that comes after the chunk lease may have expired. */
static void late_under_a_lease(void)
{
	struct inode_io *d = bed_open();
	struct ll_file f = {.magic = LL_FILE_MAGIC,
			    .c = bed.client,
			    .inode = d->inode,
			    .d = d,
			    .can_read = true};
	struct ll_chunk_leases *leases;
	struct ll_data data;

	d->inode->attr.flags |= ATTR_SEALED;
	d->inode->attr.size = CHUNK;
	/* One member only: with several, the attempt would end sooner. */
	bed_set_chain(1, 1, 0, 1, 2);
	after_ms(10, bed.mds_loop, bed_tell_client);
	assert_int_equal(fiber_sleep_us(100000), 0);
	bed.oss[0].n_reads = 0;
	bed.oss[0].read_us = CHUNK_LEASE_MS * 1000u + 100000;
	after_ms(100, NULL, head_is_quick);
	assert_int_equal(ll_read_leased(&f, 0, LEN, &data, &leases), 0);
	assert_int_equal(data.len, LEN);
	assert_int_equal(bed.oss[0].n_reads, 2);
	ll_data_release(&data);
	ll_release_leases(leases);
	/* A member that is always too slow gives no result. */
	bed.oss[0].n_reads = 0;
	bed.oss[0].read_us = CHUNK_LEASE_MS * 1000u + 100000;
	assert_int_equal(ll_read_leased(&f, 0, LEN, &data, &leases), -LE_IO);
	assert_in_range(bed.oss[0].n_reads, 2, 100);
	assert_null(leases);
	bed_close(d);
}

/* The next process continues the session, and must not release chunk leases of the previous one. */
static void lease_of_a_former_process(void)
{
	struct inode_io *d = bed_open();
	struct ll_chunk_leases *before = chunk_leases_make(d), *after;

	bed.client->seq_base += 1ull << 40;
	bed.client->n_chunk_leases = 0;
	after = chunk_leases_make(d);
	assert_true(after->number > before->number);
	ll_release_leases(before);
	ll_release_leases(after);
	bed_close(d);
}

static void slow_member_wins_after_all(void)
{
	struct inode_io *d = bed_open();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].read_us = i == who ? 15000 : 50000;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_equal(id, 10 + who);
	assert_in_range(us, 15000, 20000);
	assert_int_equal(bed.client->stats.hedges, 1);
	assert_int_equal(bed.client->stats.hedges_won, 0);
	bed_close(d);
}

static void second_member_is_bad(void)
{
	struct inode_io *d = bed_open();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	/* The first is silent, the second refuses: the third answers. */
	silence(who, true);
	bed.oss[(who + 1) % N].read_status = -LE_NO_LEASE;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_equal(id, 10 + (who + 2) % N);
	assert_in_range(us, 0, 60000);
	silence(who, false);
	bed_close(d);
}

static void pending_is_for_the_head(void)
{
	struct inode_io *d = bed_open();
	uint32_t id, n_maps;
	uint64_t us;

	(void)warm_up(d, 3);
	bed.oss[1].read_status = bed.oss[2].read_status = -LE_PENDING;
	/* The head waits for a commit, so a second member would not help. */
	bed.oss[0].read_us = 100000;
	n_maps = bed.n_maps;
	for (uint64_t i = 0; i < 8; i++) {
		uint32_t before = bed.oss[0].n_reads;

		assert_int_equal(read_one(d, i, &id, &us), 0);
		assert_int_equal(id, 10);
		assert_in_range(us, 100000, 120000);
		assert_int_equal(bed.oss[0].n_reads, before + 1);
	}
	assert_int_equal(bed.n_maps, n_maps);
	bed_close(d);
}

static void damaged_copies(void)
{
	struct inode_io *d = bed_open();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	bed.oss[who].read_status = -LE_CORRUPT;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_not_equal(id, 10 + who);
	bed.oss[id - 10].wrong_sum = true;
	bed.oss[who].read_status = 0;
	bed.oss[who].wrong_sum = true;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_true(bed.client->stats.checksum_errors > 0);
	/* Every member's data is damaged. */
	for (uint32_t i = 0; i < N; i++) {
		bed.oss[i].wrong_sum = false;
		bed.oss[i].read_status = -LE_CORRUPT;
		bed.oss[i].n_reads = 0;
	}
	assert_int_equal(read_one(d, 3, &id, &us), -LE_CORRUPT);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(bed.oss[i].n_reads, 1);
	bed_close(d);
}

static void only_members_in_sync(void)
{
	struct inode_io *d = bed_open();
	uint32_t id, n;
	uint64_t us;

	bed_set_chain(N, 2, 0, 1, 2);
	assert_int_equal(map_refresh(bed.client, NO_DEADLINE), 0);
	n = bed.oss[2].n_reads;
	for (uint64_t i = 0; i < 32; i++)
		assert_int_equal(read_one(d, i, &id, &us), 0);
	assert_int_equal(bed.oss[2].n_reads, n);
	bed_close(d);
}

/* ---- many reads in one call ---- */

#define MANY     150u
#define MANY_LEN 4096u

/* Reads that many parts of a sealed file. Each has the bytes of one member; a part beyond the end
 * of a chunk has zeros. Returns the members that answered, as bits; *ret_zeros is the number of
 * parts of zeros. */
static uint32_t read_many(struct inode_io *d, uint32_t *ret_zeros)
{
	static uint8_t bufs[MANY][MANY_LEN];
	struct ll_file f = {.magic = LL_FILE_MAGIC,
			    .c = bed.client,
			    .inode = d->inode,
			    .d = d,
			    .can_read = true};
	struct ll_part parts[MANY];
	uint32_t who = 0;

	d->inode->attr.flags |= ATTR_SEALED;
	d->inode->attr.size = 1 << 30;
	bed.attr = d->inode->attr;
	memset(bufs, 0xee, sizeof(bufs));
	for (uint32_t i = 0; i < MANY; i++)
		parts[i] =
			(struct ll_part){&f, bufs[i], i % 40 * CHUNK + i * 64, MANY_LEN, 1, NULL};
	ll_pread_batch(bed.client, parts, MANY);
	*ret_zeros = 0;
	for (uint32_t i = 0; i < MANY; i++) {
		uint8_t id = bufs[i][0];

		assert_int_equal(parts[i].done, MANY_LEN);
		assert_true(id == 0 || (id >= 10 && id < 10 + N));
		for (uint32_t k = 1; k < MANY_LEN; k++)
			assert_int_equal(bufs[i][k], id);
		if (id == 0)
			++*ret_zeros;
		else
			who |= 1u << (id - 10);
	}
	return who;
}

static uint32_t sum_of(size_t member)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N; i++) {
		n += *(uint32_t *)((uint8_t *)&bed.oss[i] + member);
		*(uint32_t *)((uint8_t *)&bed.oss[i] + member) = 0;
	}
	return n;
}
#define SUM(member) sum_of(offsetof(struct fake, member))

static void many_go_together(void)
{
	struct inode_io *d = bed_open();
	uint32_t zeros;

	(void)warm_up(d, 0);
	(void)SUM(n_reads);
	assert_int_equal(read_many(d, &zeros), 7);
	assert_int_equal(SUM(n_parts), MANY);
	assert_int_equal(SUM(n_reads), 0);
	/* As few requests as members and READV_PARTS_MAX allow; one file, one capability. */
	assert_in_range(SUM(n_many), 3, 5);
	assert_int_equal(bed.oss[0].n_caps, 1);
	assert_int_equal(zeros, 0);
	bed_close(d);
}

/* Parts of a batch that a member answers wrongly are read alone. */
static void many_with_a_lie(enum many_lie lie, uint32_t alone_min, uint32_t alone_max)
{
	struct inode_io *d = bed_open();
	uint32_t zeros, n_many;

	(void)warm_up(d, 0);
	(void)SUM(n_reads);
	(void)SUM(n_many);
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].many_lie = lie;
	assert_int_equal(read_many(d, &zeros), 7);
	n_many = SUM(n_many);
	assert_in_range(SUM(n_reads), alone_min * n_many, alone_max * n_many);
	assert_int_equal(zeros, lie == MANY_SHORT && alone_max == 0 ? n_many : 0);
	bed_close(d);
}

static void many_part_fails(void)
{
	many_with_a_lie(MANY_PART_FAILS, 1, 1);
}

static void many_wrong_sum(void)
{
	many_with_a_lie(MANY_WRONG_SUM, 1, 1);
	assert_true(bed.client->stats.checksum_errors >= 3);
}

static void many_answers_lack(void)
{
	many_with_a_lie(MANY_RESULT_LACKS, 1, READV_PARTS_MAX);
}

static void many_pieces_too_many(void)
{
	many_with_a_lie(MANY_TOO_MANY_PIECES, 1, READV_PARTS_MAX);
}

static void many_bytes_too_many(void)
{
	many_with_a_lie(MANY_TOO_MUCH, 1, 1);
}

static void many_bytes_too_few(void)
{
	many_with_a_lie(MANY_TOO_LITTLE, 2, READV_PARTS_MAX);
}

/* Only under a lease a short answer needs no query of the MDS. */
static void many_short(void)
{
	struct client_leases *ls = &bed.client->leases;
	struct inode *i = inode_get(bed.client, (struct ino){100});

	ls->last_contact_us = i->lease_us = i->attr_us = loop_now_us();
	ls->term_us = 60000000;
	many_with_a_lie(MANY_SHORT, 0, 0);
	i->lease_us = 0;
	many_with_a_lie(MANY_SHORT, 1, 1);
	inode_put(bed.client, i);
}

/* The data of a sealed file has moved, and its old chunks are empty. */
static void moved_data(void)
{
	struct inode_io *d = bed_open();
	uint8_t buf[MANY_LEN];
	struct ll_file f = {.magic = LL_FILE_MAGIC,
			    .c = bed.client,
			    .inode = d->inode,
			    .d = d,
			    .can_read = true};

	d->inode->attr.flags |= ATTR_SEALED;
	d->inode->attr.size = 1 << 20;
	assert_int_equal(ll_pread(&f, buf, sizeof(buf), 0), sizeof(buf));
	assert_int_equal(bed.n_getattrs, 0); /* no query without a hole */
	bed.attr = d->inode->attr;
	bed.attr.n_truncations++;
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].n_short = 1;
	assert_int_equal(ll_pread(&f, buf, sizeof(buf), 0), sizeof(buf));
	assert_in_range(buf[0], 10, 10 + N - 1);
	assert_int_equal(bed.n_getattrs, 2); /* the second attempt had met a hole before */
	/* A real hole stays one. */
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].n_short = UINT32_MAX;
	assert_int_equal(ll_pread(&f, buf, sizeof(buf), 0), sizeof(buf));
	assert_int_equal(buf[0], 0);
	bed_close(d);
}

/* Each part of a batch that fails is read alone. */
static void many_that_fail(void)
{
	struct inode_io *d = bed_open();
	uint32_t zeros;

	(void)warm_up(d, 0);
	(void)SUM(n_reads);
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].many_status = -LE_OVERLOAD;
	assert_int_equal(read_many(d, &zeros), 7);
	assert_int_equal(SUM(n_reads), MANY);
	assert_in_range(SUM(n_many), 3, 5);
	bed_close(d);
}

static void many_of_a_silent_member(void)
{
	struct inode_io *d = bed_open();
	uint32_t who = warm_up(d, 3), zeros;
	uint64_t since;

	(void)read_many(d, &zeros);
	since = loop_now_us();
	silence(who, true);
	assert_int_equal(read_many(d, &zeros), 7u & ~(1u << who));
	/* As long as a hedged read waits, and one that finds the member slow. */
	assert_in_range(loop_now_us() - since, HEDGE_MIN_US, 60000);
	assert_in_range(bed.client->stats.hedges, 1, 2); /* one for each request */
	(void)SUM(n_many);
	assert_int_equal(read_many(d, &zeros), 7u & ~(1u << who));
	assert_int_equal(bed.oss[who].n_many, 0);
	silence(who, false);
	bed_close(d);
}

/* No other member can answer, so nothing is hedged, and the attempt ends as that of any request. */
static void many_of_the_only_member(void)
{
	struct inode_io *d = bed_open();
	uint32_t zeros;

	(void)warm_up(d, 0);
	bed_set_chain(1, 1, 0, 1, 2);
	after_ms(10, bed.mds_loop, bed_tell_client);
	assert_int_equal(fiber_sleep_us(100000), 0);
	bed.oss[0].read_us = 4000000;
	after_ms(100, NULL, head_is_quick);
	assert_int_equal(read_many(d, &zeros), 1);
	assert_int_equal(bed.client->stats.hedges, 0);
	bed_close(d);
}

static void many_of_a_killed_member(void)
{
	struct inode_io *d = bed_open();
	uint32_t who = warm_up(d, 3), zeros;
	uint64_t since = loop_now_us();

	bed.oss[who].read_us = 10000000;
	bed.client->params.hedge_ms = 0;
	sim_proc_crash(bed.oss[who].proc);
	assert_int_equal(read_many(d, &zeros), 7u & ~(1u << who));
	assert_in_range(loop_now_us() - since, 0, 20000);
	bed_close(d);
}

#define TEST(name, fn)                                                                             \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		bed_run(fn);                                                                       \
	}
TEST(successor_of_a_killed_head_gets_the_same_request, killed_head)
TEST(word_of_a_new_head_ends_the_wait_for_the_silent_one, silent_head)
TEST(a_silent_head_is_found_out_without_word, silent_head_and_no_word)
TEST(a_new_map_leaves_requests_to_the_right_member_alone, new_map_leaves_what_is_right)
TEST(a_read_goes_to_another_member_when_one_dies, killed_member)
TEST(a_read_is_hedged_when_a_member_is_silent, silent_member)
TEST(a_read_under_a_lease_that_comes_late_is_repeated, late_under_a_lease)
TEST(leases_of_two_processes_have_numbers_of_their_own, lease_of_a_former_process)
TEST(the_first_member_may_win_against_the_second, slow_member_wins_after_all)
TEST(a_hedge_goes_on_to_the_third_member, second_member_is_bad)
TEST(pending_is_asked_of_the_head_at_once, pending_is_for_the_head)
TEST(damage_is_read_from_another_member, damaged_copies)
TEST(members_that_are_not_in_sync_are_not_read, only_members_in_sync)
TEST(reads_that_one_member_answers_go_in_one_request, many_go_together)
TEST(a_part_that_fails_is_asked_for_alone, many_part_fails)
TEST(a_part_with_a_wrong_checksum_is_asked_for_alone, many_wrong_sum)
TEST(parts_without_a_result_are_asked_for_alone, many_answers_lack)
TEST(more_pieces_than_there_are_are_not_believed, many_pieces_too_many)
TEST(a_part_is_never_longer_than_asked_for, many_bytes_too_many)
TEST(parts_without_data_are_asked_for_alone, many_bytes_too_few)
TEST(what_lies_behind_the_end_of_a_chunk_is_zeros, many_short)
TEST(a_hole_in_a_sealed_file_is_asked_about, moved_data)
TEST(each_part_of_a_batch_that_fails_is_read_alone, many_that_fail)
TEST(many_reads_are_hedged_when_a_member_is_silent, many_of_a_silent_member)
TEST(many_reads_of_one_member_are_not_hedged, many_of_the_only_member)
TEST(many_reads_go_to_another_member_when_one_dies, many_of_a_killed_member)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(successor_of_a_killed_head_gets_the_same_request),
		cmocka_unit_test(word_of_a_new_head_ends_the_wait_for_the_silent_one),
		cmocka_unit_test(a_silent_head_is_found_out_without_word),
		cmocka_unit_test(a_new_map_leaves_requests_to_the_right_member_alone),
		cmocka_unit_test(a_read_goes_to_another_member_when_one_dies),
		cmocka_unit_test(a_read_is_hedged_when_a_member_is_silent),
		cmocka_unit_test(a_read_under_a_lease_that_comes_late_is_repeated),
		cmocka_unit_test(leases_of_two_processes_have_numbers_of_their_own),
		cmocka_unit_test(the_first_member_may_win_against_the_second),
		cmocka_unit_test(a_hedge_goes_on_to_the_third_member),
		cmocka_unit_test(pending_is_asked_of_the_head_at_once),
		cmocka_unit_test(damage_is_read_from_another_member),
		cmocka_unit_test(members_that_are_not_in_sync_are_not_read),
		cmocka_unit_test(reads_that_one_member_answers_go_in_one_request),
		cmocka_unit_test(a_part_that_fails_is_asked_for_alone),
		cmocka_unit_test(a_part_with_a_wrong_checksum_is_asked_for_alone),
		cmocka_unit_test(parts_without_a_result_are_asked_for_alone),
		cmocka_unit_test(more_pieces_than_there_are_are_not_believed),
		cmocka_unit_test(a_part_is_never_longer_than_asked_for),
		cmocka_unit_test(parts_without_data_are_asked_for_alone),
		cmocka_unit_test(what_lies_behind_the_end_of_a_chunk_is_zeros),
		cmocka_unit_test(a_hole_in_a_sealed_file_is_asked_about),
		cmocka_unit_test(each_part_of_a_batch_that_fails_is_read_alone),
		cmocka_unit_test(many_reads_are_hedged_when_a_member_is_silent),
		cmocka_unit_test(many_reads_of_one_member_are_not_hedged),
		cmocka_unit_test(many_reads_go_to_another_member_when_one_dies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
