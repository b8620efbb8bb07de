/* SPDX-License-Identifier: Apache-2.0 */
/* Targets that are given up as lost: refused with the names of files, accepted, and continued by
 * the next server. */
#include <fcntl.h>

#include "mds/cluster/placement.h"
#include "mds/cluster/rebalance.h"
#include "tests/unit/mds/fixture.h"

#define VICTIM 3u /* the last target */

static int say_hello(struct fx *f, uint32_t i)
{
	struct mds_target_register_req q = {.cluster = f->m->store.cluster.cluster,
					    .uuid = {{100, (uint8_t)i}},
					    .target = i + 1,
					    .commits = 1,
					    .addrs = bytes_str(f->oss_addr[i]),
					    .capacity = 1u << 30,
					    .free = 1u << 29,
					    .incarnation = 5};
	struct mds_target_register_rep p;

	return fx_call_as(f, 0, 0, 0, OP_mds_target_register, &q, &p);
}

static void beat(struct fx *f, uint32_t i)
{
	struct mds_target_heartbeat_req q = {.target = i + 1,
					     .uuid = {{100, (uint8_t)i}},
					     .commits = 1,
					     .capacity = 1u << 30,
					     .free = 1u << 29,
					     .incarnation = 5};
	struct mds_target_heartbeat_rep p;

	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_heartbeat, &q, &p), 0);
}

/* All targets but the victim send heartbeats, until the victim counts as down. */
static void victim_dies(struct fx *f)
{
	assert_int_equal(say_hello(f, 0), 0);
	assert_int_equal(say_hello(f, 1), 0);
	f->m->params.lease_ms = 2500;
	f->m->params.lease_margin_ms = 500;
	f->m->cluster.detect_from_us = 0;
	for (int i = 0; i < 10; i++) {
		beat(f, 0);
		beat(f, 1);
		fx_sleep_ms(500);
	}
	f->m->params.lease_ms = 600000;
	assert_int_equal(f->m->cluster.targets[VICTIM - 1]->info.state, TARGET_DOWN);
}

static int ask(struct fx *f, struct mds_target_lose_req q, struct mds_target_lose_rep *ret_rep)
{
	static const uint8_t ids[4] = {VICTIM, 0, 0, 0};

	q.targets = bytes_of(ids, sizeof(ids));
	memset(ret_rep, 0, sizeof(*ret_rep));
	return fx_call_as(f, 0, 0, 0, OP_mds_target_lose, &q, ret_rep);
}

static struct mds_target_lose_rep give_up(struct fx *f, bool accept)
{
	struct mds_target_lose_req start = {.what = LOSE_START, .accept = accept};
	struct mds_target_lose_rep rep;

	assert_int_equal(ask(f, start, &rep), 0);
	while (rep.state == LOSE_RUNNING) {
		fx_sleep_ms(10);
		assert_int_equal(ask(f,
				     (struct mds_target_lose_req){
					     .what = LOSE_SURVEY, .id = rep.id, .max = 10},
				     &rep),
				 0);
	}
	return rep;
}

/* Makes a file with data on all chains. */
static struct ino make_file(struct fx *f)
{
	struct ino dir;
	struct attr a;

	f->session = fx_session(f, 1);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "dir", &dir), 0);
	assert_int_equal(fx_create_file(f, dir, "file", O_RDWR, &a), 0);
	assert_int_equal(a.layout.width, FX_TARGETS);
	assert_int_equal(fx_close(f, a.ino, O_RDWR, 64u << 20), 0);
	return a.ino;
}

static const struct chain *own_chain(struct fx *f)
{
	return cluster_chain(&f->m->cluster, f->m->cluster.targets[VICTIM - 1]->chain);
}

static void assert_given_up(struct fx *f)
{
	assert_int_equal(f->m->cluster.targets[VICTIM - 1]->info.flags,
			 TARGET_REMOVED | TARGET_GIVEN_UP);
	assert_int_equal(target_chains(&f->m->cluster, VICTIM), 0);
	assert_int_equal(say_hello(f, VICTIM - 1), -LE_REMOVED);
}

static void refused(struct fx *f)
{
	struct mds_target_lose_rep rep;
	struct ino ino = make_file(f);
	struct lost_file file = {0};
	struct wire_r r;

	assert_int_equal(ask(f, (struct mds_target_lose_req){.what = LOSE_START}, &rep), -LE_BUSY);
	victim_dies(f);
	rep = give_up(f, false);
	assert_int_equal(rep.state, LOSE_REFUSED);
	assert_int_equal(rep.n_files, 1);
	wire_r_init(&r, rep.files.data, rep.files.len);
	wire_get_lost_file(&r, &file);
	assert_int_equal(r.status, 0);
	assert_true(ino_equal(file.ino, ino));
	assert_int_equal(file.path.len, strlen("/dir/file"));
	assert_memory_equal(file.path.data, "/dir/file", file.path.len);
	/* The refused request has changed nothing. */
	assert_int_equal(own_chain(f)->members[0].target, VICTIM);
	assert_int_equal(say_hello(f, VICTIM - 1), 0);
	assert_int_equal(f->m->cluster.targets[VICTIM - 1]->info.state, TARGET_UP);
}

static void test_refused_with_names(void **state)
{
	struct fx *f = fx_create(1);

	(void)state;
	fx_run(f, refused);
	fx_destroy(f);
}

static void accepted(struct fx *f)
{
	struct ino ino = make_file(f);
	struct layout dir = {0}, l;
	struct mds_target_lose_rep rep;
	struct attr a;

	victim_dies(f);
	rep = give_up(f, true);
	assert_int_equal(rep.state, LOSE_DONE);
	assert_int_equal(rep.n_files, 1);
	assert_given_up(f);
	assert_int_equal(own_chain(f)->flags, CHAIN_LOST);
	assert_int_equal(own_chain(f)->members[0].target, VICTIM);
	assert_int_equal(own_chain(f)->members[0].state, MEMBER_OUT);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(placement_choose(&f->m->cluster, &f->m->params, &dir,
						  (struct ino){100 + i}, &l),
				 0);
		assert_int_equal(l.width, FX_TARGETS - 1);
		assert_false(cluster_layout_lost(&f->m->cluster, &l));
	}
	/* A truncated file would look complete. */
	assert_int_equal(fx_truncate(f, ino, 5), -LE_GIVEN_UP);
	assert_int_equal(fx_truncate(f, ino, 1u << 30), -LE_GIVEN_UP);
	assert_int_equal(fx_open(f, ino, O_RDONLY), 0);
	assert_int_equal(fx_truncate(f, ino, 0), -LE_GIVEN_UP);
	assert_int_equal(fx_close(f, ino, O_RDONLY, 0), 0);
	assert_int_equal(fx_truncate(f, ino, 0), 0);
	a = fx_attr(f, ino);
	assert_int_equal(a.layout.width, FX_TARGETS - 1);
	assert_true(a.layout.gen > 1);
	assert_int_equal(fx_truncate(f, ino, 5), 0);
}

/* The restarted server has the record of the loss. */
static void accepted_still(struct fx *f)
{
	struct mds_target_lose_rep rep = give_up(f, false);

	assert_int_equal(rep.state, LOSE_DONE);
	assert_given_up(f);
	assert_int_equal(own_chain(f)->flags, CHAIN_LOST);
}

static void test_accepted_loss(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, accepted);
	fx_crash(f);
	fx_run(f, accepted_still);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* The intent is on record, and no other step has been done. */
static void only_begun(struct fx *f)
{
	struct mds_target_lose_rep rep;
	struct attr a;

	f->session = fx_session(f, 1);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "empty", O_RDWR, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDWR, 0), 0);
	victim_dies(f);
	assert_int_equal(ask(f, (struct mds_target_lose_req){.what = LOSE_START}, &rep), 0);
	assert_int_equal(rep.state, LOSE_RUNNING);
	assert_true(f->m->cluster.targets[VICTIM - 1]->leaving);
	assert_int_equal(say_hello(f, VICTIM - 1), -LE_LEAVING);
}

/* No file has data on the target: its chain continues with another member. */
static void goes_on(struct fx *f)
{
	struct mds_target_lose_rep rep;

	assert_int_equal(say_hello(f, 0), 0);
	assert_int_equal(say_hello(f, 1), 0);
	assert_int_equal(ask(f, (struct mds_target_lose_req){.what = LOSE_SURVEY, .id = 1}, &rep),
			 -LE_STALE);
	for (int i = 0; i < 1000 && f->m->give_up.state == LOSE_RUNNING; i++)
		fx_sleep_ms(10);
	assert_int_equal(f->m->give_up.state, LOSE_DONE);
	assert_given_up(f);
	assert_int_equal(own_chain(f)->flags, 0);
	assert_int_equal(own_chain(f)->n_members, 1);
	assert_true(own_chain(f)->members[0].target < VICTIM);
	assert_int_equal(own_chain(f)->members[0].state, MEMBER_SYNC);
	assert_int_equal(own_chain(f)->epoch, 2);
}

static void test_next_server_goes_on(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, only_begun);
	fx_crash(f);
	fx_run(f, goes_on);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_with_names),
		cmocka_unit_test(test_accepted_loss),
		cmocka_unit_test(test_next_server_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
