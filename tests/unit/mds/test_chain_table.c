/* SPDX-License-Identifier: Apache-2.0 */
/* How chains are built: members on different hosts, load and pairs even, growth beside existing
 * chains. */
#include "mds/cluster/chain_table.h"
#include "tests/unit/mds/fixture.h"

#define TARGETS_MAX 64u

static uint32_t want_targets, hosts, racks;

static void add_target(struct fx *f, uint32_t i)
{
	char host[16], rack[16], addr[16];
	struct mds_target_register_req q = {.uuid = {{100, (uint8_t)i}},
					    .commits = 1,
					    .capacity = 1 << 30,
					    .free = 1 << 29};
	struct mds_target_register_rep p;

	snprintf(addr, sizeof(addr), "none:%u", i + 1);
	snprintf(host, sizeof(host), "h%u", i % hosts);
	snprintf(rack, sizeof(rack), "r%u", i % racks);
	q.addrs = i < FX_TARGETS ? bytes_str(f->oss_addr[i]) : bytes_str(addr);
	q.host = bytes_str(host);
	q.rack = racks > 1 ? bytes_str(rack) : (struct bytes){NULL, 0};
	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_register, &q, &p), 0);
	assert_int_equal(p.target, i + 1);
}

struct figures {
	uint32_t heads[TARGETS_MAX], members[TARGETS_MAX], pairs[TARGETS_MAX][TARGETS_MAX];
	uint32_t led[TARGETS_MAX][TARGETS_MAX], same_rack;
};

static void look(const struct cluster *c, uint32_t replicas, struct figures *g)
{
	const struct chain_class *cl = &c->classes[replicas];

	memset(g, 0, sizeof(*g));
	for (uint32_t i = 0; i < cl->n; i++) {
		const struct chain *ch = cl->chains[i];

		assert_int_equal(ch->n_members, replicas);
		g->heads[ch->members[0].target - 1]++;
		for (uint32_t k = 0; k < replicas; k++) {
			uint32_t a = ch->members[k].target - 1;

			assert_int_equal(ch->members[k].state, MEMBER_SYNC);
			g->members[a]++;
			for (uint32_t l = 0; l < replicas; l++) {
				uint32_t b = ch->members[l].target - 1;

				if (k == l)
					continue;
				assert_true(targets_apart(c->targets[a], c->targets[b]));
				g->pairs[a][b]++;
				g->led[a][b] += k == 0;
				g->same_rack += racks > 1 && a % racks == b % racks;
			}
		}
	}
}

static uint32_t most(const uint32_t *v, uint32_t n)
{
	uint32_t max = 0;

	for (uint32_t i = 0; i < n; i++)
		max = v[i] > max ? v[i] : max;
	return max;
}

static uint32_t least(const uint32_t *v, uint32_t n)
{
	uint32_t min = UINT32_MAX;

	for (uint32_t i = 0; i < n; i++)
		min = v[i] < min ? v[i] : min;
	return min;
}

static void even_body(struct fx *f)
{
	struct cluster *c = &f->m->cluster;
	uint32_t n = want_targets;
	struct figures g;

	for (uint32_t i = 0; i < n; i++)
		add_target(f, i);
	for (uint32_t k = 2; k <= LEAT_REPLICAS_MAX; k++) {
		assert_int_equal(chain_table_want(c, k), 0);
		look(c, k, &g);
		assert_int_equal(least(g.heads, n), n <= 9 ? n - 1 : 8);
		assert_int_equal(most(g.heads, n), n <= 9 ? n - 1 : 8);
		assert_true(most(g.members, n) - least(g.members, n) <= (k == 2 ? 1 : 3));
		/* The load of a lost target is spread over many others, in about equal parts. */
		for (uint32_t a = 0; a < n; a++) {
			uint32_t partners = 0;

			for (uint32_t b = 0; b < n; b++) {
				partners += g.pairs[a][b] > 0;
				if (n <= 9 && k == 2 && a != b)
					assert_int_equal(g.led[a][b], 1);
			}
			assert_true(partners >= (n <= 9 ? n - 1 : 8));
			assert_true(most(g.pairs[a], n) <= g.heads[0] * k * (k - 1) / (n - 1) + 2);
		}
	}
}

static void run(uint32_t n, uint32_t n_hosts, uint32_t n_racks, void (*body)(struct fx *f))
{
	struct fx *f = fx_create(n);

	want_targets = n;
	hosts = n_hosts;
	racks = n_racks;
	fx_run(f, body);
	fx_destroy(f);
}

static void test_even(void **state)
{
	static const uint32_t sizes[] = {3, 4, 5, 8, 9, 10, 16, 33, 64};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		run(sizes[i], sizes[i], 1, even_body);
}

/* Two targets on each of four hosts; the hosts in two racks. */
static void domains_body(struct fx *f)
{
	struct cluster *c = &f->m->cluster;
	struct figures g;

	for (uint32_t i = 0; i < 8; i++)
		add_target(f, i);
	assert_int_equal(chain_table_want(c, 2), 0);
	look(c, 2, &g);
	assert_int_equal(g.same_rack, 0);
	assert_true(most(g.members, 8) - least(g.members, 8) <= 1);
	assert_int_equal(chain_table_want(c, 3), 0);
	look(c, 3, &g);
	assert_true(g.same_rack > 0); /* three members in two racks */
	assert_true(most(g.members, 8) - least(g.members, 8) <= 4);
}

static void test_domains(void **state)
{
	(void)state;
	run(8, 4, 2, domains_body);
}

static void refused_body(struct fx *f)
{
	struct mds_layout_set_req q = {.ino = LEAT_ROOT_INO, .layout = {.replicas = 3}};
	struct mds_layout_set_rep p;
	struct attr a;

	for (uint32_t i = 0; i < 6; i++)
		add_target(f, i);
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), -LE_NODEV);
	q.layout.replicas = 4;
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), -LE_INVAL);
	q.layout.replicas = 2;
	assert_int_equal(fx_call(f, OP_mds_layout_set, &q, &p), 0);
	assert_int_equal(p.attr.layout.replicas, 2);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), 0);
	assert_int_equal(a.layout.replicas, 2);
	assert_int_equal(f->m->cluster.tables[a.layout.table - 1].replicas, 2);
	assert_non_null(cluster_layout_chain(&f->m->cluster, &a.layout, 5));
	assert_int_equal(cluster_layout_chain(&f->m->cluster, &a.layout, 5)->n_members, 2);
}

static void test_refused(void **state)
{
	(void)state;
	run(6, 2, 1, refused_body);
}

/* Existing classes grow with each target; old versions of their tables do not change. */
static void growth_body(struct fx *f)
{
	struct cluster *c = &f->m->cluster;
	struct chain before[12];
	struct figures g;
	uint32_t version;

	for (uint32_t i = 0; i < 4; i++)
		add_target(f, i);
	assert_int_equal(chain_table_want(c, 2), 0);
	version = c->classes[2].table;
	assert_int_equal(c->classes[2].n, 12);
	for (uint32_t i = 0; i < 12; i++)
		before[i] = *c->classes[2].chains[i];
	for (uint32_t i = 4; i < 9; i++) {
		add_target(f, i);
		look(c, 2, &g);
		assert_int_equal(c->classes[2].n, (i + 1) * i);
		assert_int_equal(least(g.members, i + 1), 2 * i);
	}
	assert_int_equal(c->tables[version - 1].n, 12);
	for (uint32_t i = 0; i < 12; i++)
		assert_memory_equal(&before[i], c->classes[2].chains[i], sizeof(before[i]));
	assert_true(c->classes[2].table > version);
}

static void test_growth(void **state)
{
	(void)state;
	run(9, 9, 1, growth_body);
}

/* Formatted for two replicas: creating a file fails until there are two hosts; afterwards files get
 * two replicas. */
static void formatted_body(struct fx *f)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), -LE_NOT_READY);
	hosts = 1;
	for (uint32_t i = 0; i < 2; i++) {
		add_target(f, i);
		assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), -LE_FEW_HOSTS);
	}
	hosts = 3;
	add_target(f, 2);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), 0);
	assert_int_equal(a.layout.replicas, 2);
	assert_int_equal(cluster_layout_chain(&f->m->cluster, &a.layout, 0)->n_members, 2);
	assert_int_equal(f->m->cluster.classes[3].table, 0);
}

static void formatted(void (*body)(struct fx *f))
{
	struct fx *f = fx_create(1);

	racks = 1;
	hosts = 3;
	f->params.default_replicas = 2;
	f->no_targets = true;
	fx_run(f, body);
	fx_destroy(f);
}

static void test_formatted(void **state)
{
	(void)state;
	formatted(formatted_body);
}

/* The first target is away when the second one registers, and returns as the same process. */
static void formatted_away_body(struct fx *f)
{
	struct mds_target_heartbeat_req q = {.target = 1,
					     .uuid = {{100, 0}},
					     .commits = 1,
					     .capacity = 1 << 30,
					     .free = 1 << 29};
	struct mds_target_heartbeat_rep p;
	struct attr a;

	add_target(f, 0);
	f->m->cluster.targets[0]->info.state = TARGET_DOWN;
	add_target(f, 1);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), -LE_FEW_HOSTS);
	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_heartbeat, &q, &p), 0);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), 0);
	assert_int_equal(a.layout.replicas, 2);
}

static void test_formatted_away(void **state)
{
	(void)state;
	formatted(formatted_away_body);
}

/* The first target is draining when the second one registers, and is undrained. */
static void formatted_drained_body(struct fx *f)
{
	struct mds_target_admin_req q = {.target = 1, .what = TARGET_ADMIN_UNDRAIN};
	struct mds_target_admin_rep p;
	struct attr a;

	add_target(f, 0);
	f->m->cluster.targets[0]->info.flags = TARGET_DRAINING;
	add_target(f, 1);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), -LE_FEW_HOSTS);
	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_admin, &q, &p), 0);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "f", 1, &a), 0);
	assert_int_equal(a.layout.replicas, 2);
}

static void test_formatted_drained(void **state)
{
	(void)state;
	formatted(formatted_drained_body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_domains),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_formatted),
		cmocka_unit_test(test_formatted_away),
		cmocka_unit_test(test_formatted_drained),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
