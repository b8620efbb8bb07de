/* SPDX-License-Identifier: Apache-2.0 */
/* Targets, the map, placement and layouts; permissions as a table. */
#include <fcntl.h>

#include "mds/cluster/placement.h"
#include "tests/unit/mds/fixture.h"

static struct mds_target_register_req known(struct fx *f, uint32_t i)
{
	return (struct mds_target_register_req){.cluster = f->m->store.cluster.cluster,
						.uuid = {{100, (uint8_t)i}},
						.target = i + 1,
						.commits = 10,
						.addrs = bytes_str(f->oss_addr[i]),
						.capacity = 1000,
						.free = 900,
						.incarnation = 5};
}

static int do_register(struct fx *f, const struct mds_target_register_req *q)
{
	struct mds_target_register_rep p;

	return fx_call_as(f, 0, 0, 0, OP_mds_target_register, q, &p);
}

static int beat(struct fx *f, uint32_t i, uint64_t commits, struct mds_target_heartbeat_rep *ret)
{
	struct mds_target_heartbeat_req q = {.target = i + 1,
					     .uuid = {{100, (uint8_t)i}},
					     .commits = commits,
					     .capacity = 2000,
					     .free = 50,
					     .incarnation = 5};

	return fx_call_as(f, 0, 0, 0, OP_mds_target_heartbeat, &q, ret);
}

static void register_body(struct fx *f)
{
	struct mds_target_register_req q = known(f, 0);
	struct mds_target_heartbeat_rep hp;
	uint32_t epoch = f->m->cluster.epoch;

	assert_int_equal(do_register(f, &q), 0);
	assert_int_equal(f->m->cluster.epoch, epoch); /* no change of the map for clients */
	q.commits = 9;
	assert_int_equal(do_register(f, &q), -LE_STORE_OLD);
	q.commits = 10;
	q.cluster.b[0]++;
	assert_int_equal(do_register(f, &q), -LE_WRONG_CLUSTER);
	q.cluster.b[0]--;
	q.target = 2;
	assert_int_equal(do_register(f, &q), -LE_WRONG_CLUSTER);
	q.target = 99;
	q.uuid.b[0] = 1;
	assert_int_equal(do_register(f, &q), -LE_WRONG_CLUSTER);
	q.target = 0;
	q.addrs = bytes_str("elsewhere:1");
	assert_int_equal(do_register(f, &q), 0); /* a new one */
	assert_int_equal(f->m->cluster.n_targets, FX_TARGETS + 1);
	assert_int_equal(f->m->cluster.n_tables, FX_TARGETS + 1);
	assert_true(f->m->cluster.epoch > epoch);
	assert_int_equal(beat(f, 0, 11, &hp), 0);
	/* A heartbeat that a newer one of its process has overtaken: no evidence. */
	assert_int_equal(beat(f, 0, 10, &hp), 0);
	assert_int_equal(f->m->cluster.targets[0]->commits, 11);
	assert_int_equal(beat(f, 77, 10, &hp), -LE_NO_TARGET);
}

/* A target reports how far its clock is ahead, and the bound of the error. The server counts the
 * clocks as apart only if they certainly are. */
static void clock_body(struct fx *f)
{
	struct mds_target_register_req r = known(f, 0);
	struct mds_target_heartbeat_req q = {.target = 1, .uuid = {{100, 0}}, .incarnation = 5};
	struct mds_target_heartbeat_rep p;
	const struct target *t = f->m->cluster.targets[0];
	static const struct {
		int64_t ahead_us;
		uint32_t bound_us;
		bool apart;
	} said[] = {{500000, 1000, false},		 {1500000, 600000, false},
		    {-864000000000, 1000, true}, {-864000000000, 0, true},
		    {0, 2000000, true},		 {-3600000000, 1000, true},
		    {INT64_MIN, UINT32_MAX, true}, {1000, 1000, false}};

	assert_int_equal(do_register(f, &r), 0);
	for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
		q.ahead_us = said[i].ahead_us;
		q.bound_us = said[i].bound_us;
		p.now_ns = 0;
		assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_heartbeat, &q, &p), 0);
		assert_int_equal(p.now_ns, env_wall_ns(f->m->env));
		assert_true(t->clock.watch.apart == said[i].apart);
		if (q.bound_us)
			assert_int_equal(t->clock.ahead_us, q.ahead_us);
	}
}

static void down_body(struct fx *f)
{
	struct mds_target_register_req q = known(f, 1);
	struct mds_target_heartbeat_rep hp;
	uint32_t epoch;

	assert_int_equal(do_register(f, &q), 0);
	f->m->params.lease_ms = 2500;
	f->m->params.lease_margin_ms = 500;
	f->m->cluster.detect_from_us = 0;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(beat(f, 1, 20, &hp), 0);
		assert_int_equal(fiber_sleep_us(500000), 0);
	}
	assert_int_equal(f->m->cluster.targets[1]->info.state, TARGET_UP);
	assert_int_equal(f->m->cluster.targets[0]->info.state, TARGET_DOWN);
	assert_int_equal(f->m->cluster.targets[2]->info.state, TARGET_DOWN);
	epoch = f->m->cluster.epoch;
	assert_int_equal(hp.map_epoch, epoch);
	/* New files avoid targets that are down while others are up: a target that is nearly full
	 * is preferred. */
	struct layout dir = {.width = 1}, l;
	f->m->cluster.targets[1]->info.free = 1900;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(placement_choose(&f->m->cluster, &f->m->params, &dir,
						  (struct ino){100 + i}, &l),
				 0);
		assert_int_equal(layout_chain_index(&l, f->m->cluster.tables[l.table - 1].n, 0), 1);
	}
	q = known(f, 0);
	assert_int_equal(do_register(f, &q), 0);
	assert_int_equal(f->m->cluster.epoch, epoch + 1);
	assert_int_equal(f->m->store.cluster.map_epoch, epoch + 1);
}

static void spread_body(struct fx *f)
{
	struct layout dir = {0}, l;
	uint32_t used[FX_TARGETS] = {0};

	f->m->params.default_width = 1;
	for (uint32_t i = 0; i < 300; i++) {
		assert_int_equal(placement_choose(&f->m->cluster, &f->m->params, &dir,
						  (struct ino){50 + i}, &l),
				 0);
		used[layout_chain_index(&l, f->m->cluster.tables[l.table - 1].n, 0)]++;
	}
	for (uint32_t i = 0; i < FX_TARGETS; i++)
		assert_int_equal(used[i], 100);
	dir.width = 50;
	assert_int_equal(placement_choose(&f->m->cluster, &f->m->params, &dir, (struct ino){1}, &l),
			 0);
	assert_int_equal(l.width, FX_TARGETS);
}

static void layout_body(struct fx *f)
{
	struct mds_layout_set_req q = {.layout = {.width = 2, .chunk_size = 65536}};
	struct mds_layout_set_rep p;
	struct ino dir, sub;
	struct attr a;

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	q.ino = dir;
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), 0);
	assert_int_equal(p.attr.layout.flags, 0);
	assert_int_equal(fx_mkdir(f, dir, "sub", &sub), 0);
	assert_int_equal(fx_getattr(f, sub, &a), 0);
	assert_int_equal(a.layout.flags, LAYOUT_F_INHERITED);
	assert_int_equal(fx_create_file(f, sub, "f", O_WRONLY, &a), 0);
	assert_int_equal(a.layout.width, 2);
	assert_int_equal(a.layout.chunk_size, 65536);
	assert_int_equal(a.layout.table, FX_TARGETS);
	q.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), -LE_BUSY); /* open for writing */
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, UINT64_MAX), 0);
	q.layout.chunk_size = 1 << 20;
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), 0);
	assert_int_equal(p.attr.layout.chunk_size, 1 << 20);
	q.layout.chunk_size = 100000;
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), -LE_INVAL);
	f->cred.uid = 5;
	q.cred = f->cred;
	q.layout.chunk_size = 65536;
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), -LE_PERM);
}

static void map_body(struct fx *f)
{
	struct mds_map_get_req q = {0};
	struct mds_map_get_rep p;
	struct target_info t;
	struct table_info ti;
	struct wire_r r;
	uint32_t n = 0;

	assert_int_equal(fx_call(f, OP_mds_map_get, &q, &p), 0);
	assert_int_equal(p.epoch, f->m->cluster.epoch);
	for (wire_r_init(&r, p.targets.data, p.targets.len); !wire_r_end(&r); n++) {
		wire_get_target_info(&r, &t);
		assert_int_equal(t.id, n + 1);
		assert_true(bytes_equal(t.addrs, bytes_str(f->oss_addr[n])));
	}
	assert_int_equal(n, FX_TARGETS);
	n = 0;
	for (wire_r_init(&r, p.tables.data, p.tables.len); !wire_r_end(&r); n++) {
		wire_get_table_info(&r, &ti);
		assert_int_equal(ti.version, n + 1);
		assert_int_equal(ti.replicas, 1);
		assert_int_equal(ti.n, n + 1);
	}
	assert_int_equal(n, FX_TARGETS);
	q.have_epoch = p.epoch;
	assert_int_equal(fx_call(f, OP_mds_map_get, &q, &p), 0);
	assert_int_equal(p.targets.len, 0);
}

/* ---- permissions ---- */

static const struct {
	uint32_t uid, gid, group, mode, mask;
	int want;
} accesses[] = {
	{0, 0, 0, 0000, 6, 0},
	{0, 0, 0, 0644, 1, -LE_ACCES}, /* root */
	{0, 0, 0, 0100, 1, 0},
	{10, 99, 0, 0700, 7, 0},         /* owner */
	{10, 20, 0, 0077, 4, -LE_ACCES}, /* the owner's bits count, not the others' */
	{11, 20, 0, 0070, 7, 0},
	{11, 99, 20, 0070, 7, 0}, /* group, supplementary group */
	{11, 99, 20, 0707, 4, -LE_ACCES},
	{11, 99, 98, 0707, 7, 0},
	{11, 99, 98, 0770, 4, -LE_ACCES},
};

static struct cred cred_of(uint32_t uid, uint32_t gid, const uint32_t *group)
{
	return (struct cred){.uid = uid, .gid = gid, .groups = bytes_of(group, 4)};
}

static void test_access(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(accesses); i++) {
		struct inode_rec a = {
			.attr = {.mode = S_IFREG | accesses[i].mode, .uid = 10, .gid = 20}};
		struct cred c = cred_of(accesses[i].uid, accesses[i].gid, &accesses[i].group);

		assert_int_equal(perm_access(&c, &a, accesses[i].mask), accesses[i].want);
		c.flags = CRED_CHECKED;
		assert_int_equal(perm_access(&c, &a, accesses[i].mask), 0);
	}
}

static void test_rules(void **state)
{
	const uint32_t group = 30;
	struct cred owner = cred_of(10, 20, &group), other = cred_of(11, 20, &group);
	struct attr dir = {.mode = S_IFDIR | 01777, .uid = 1};
	struct inode_rec a = {.attr = {.mode = S_IFREG | 0666, .uid = 10, .gid = 20}};
	struct attr new = {0};
	uint32_t mode = S_IFREG | 02755, gid;

	(void)state;
	assert_int_equal(perm_remove(&owner, &dir, &a.attr), 0);
	assert_int_equal(perm_remove(&other, &dir, &a.attr), -LE_PERM);
	dir.mode &= ~01000u;
	assert_int_equal(perm_remove(&other, &dir, &a.attr), 0);
	new.uid = 11;
	assert_int_equal(perm_setattr(&owner, &a, SET_UID, &new, false), -LE_PERM);
	new.gid = 30;
	assert_int_equal(perm_setattr(&owner, &a, SET_GID, &new, false), 0);
	assert_int_equal(perm_setattr(&other, &a, SET_GID, &new, false), -LE_PERM);
	new.gid = 31;
	assert_int_equal(perm_setattr(&owner, &a, SET_GID, &new, false), -LE_PERM);
	assert_int_equal(perm_setattr(&other, &a, SET_MODE, &new, false), -LE_PERM);
	assert_int_equal(perm_setattr(&other, &a, SET_MTIME, &new, false), -LE_PERM);
	assert_int_equal(perm_setattr(&other, &a, SET_MTIME_NOW, &new, false), 0); /* may write */
	a.attr.mode = S_IFREG | 0644;
	assert_int_equal(perm_setattr(&other, &a, SET_MTIME_NOW, &new, false), -LE_ACCES);
	assert_int_equal(perm_setattr(&other, &a, SET_SIZE, &new, false), -LE_ACCES);
	/* Clearing what a write clears needs the right to write; a request that changes nothing is
	 * refused too. */
	assert_int_equal(perm_setattr(&other, &a, SET_KILL_SUID, &new, false), -LE_ACCES);
	assert_int_equal(perm_setattr(&other, &a, SET_KILL_CAPS, &new, false), -LE_ACCES);
	assert_int_equal(perm_setattr(&other, &a, 0, &new, false), -LE_ACCES);
	assert_int_equal(perm_setattr(&other, &a, SET_KILL_SUID, &new, true), 0);
	assert_int_equal(perm_setattr(&owner, &a, SET_KILL_SUID, &new, false), 0);
	/* With an open descriptor of the session, only the owner: an owner could open the file
	 * again. */
	a.attr.mode = S_IFREG | 0444;
	assert_int_equal(perm_setattr(&other, &a, SET_SIZE, &new, true), -LE_ACCES);
	assert_int_equal(perm_setattr(&owner, &a, SET_SIZE, &new, false), -LE_ACCES);
	assert_int_equal(perm_setattr(&owner, &a, SET_SIZE, &new, true), 0);
	a.attr.flags = ATTR_IMMUTABLE;
	assert_int_equal(perm_setattr(&owner, &a, SET_SIZE, &new, true), -LE_PERM);
	a.attr.flags = 0;
	dir.mode |= S_ISGID;
	dir.gid = 77;
	perm_new(&owner, &dir, &mode, &gid);
	assert_int_equal(gid, 77);
	assert_int_equal(mode & S_ISGID, 0); /* the user is not in that group: S_ISGID is dropped */
	mode = S_IFDIR | 0755;
	perm_new(&owner, &dir, &mode, &gid);
	assert_int_equal(mode & S_ISGID, S_ISGID);
	assert_int_equal(perm_kill_suid(06755), 0755);
	assert_int_equal(perm_kill_suid(02644), 02644); /* mandatory locking: not executable */
}

TEST(test_register, register_body)
TEST(test_clocks, clock_body)
TEST(test_down, down_body)
TEST(test_spread, spread_body)
TEST(test_layout, layout_body)
TEST(test_map, map_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_register), cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_down),
		cmocka_unit_test(test_spread),   cmocka_unit_test(test_layout),
		cmocka_unit_test(test_map),      cmocka_unit_test(test_access),
		cmocka_unit_test(test_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
