/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/mds/target_rig.h"

#include "mds/cluster/chain_table.h"
#include "mds/cluster/failure_detector.h"
#include "mds/cluster/membership.h"

#define N FX_TARGETS

struct tg_world tg;

/* An epoch in a message may be older than the target's, which ignores it, because messages overtake
 * each other. An epoch in a reply is never older: every epoch that was sent is durable before. */
static void take(uint32_t target, struct bytes chains, bool answer)
{
	struct wire_r r;

	for (wire_r_init(&r, chains.data, chains.len); !wire_r_end(&r);) {
		struct chain_info info;

		wire_get_chain_info(&r, &info);
		assert_int_equal(r.status, 0);
		assert_true(info.id < TG_CHAINS_MAX);
		assert_true(!answer || info.epoch >= tg.epoch[target - 1][info.id]);
		if (info.epoch > tg.epoch[target - 1][info.id])
			tg.epoch[target - 1][info.id] = info.epoch;
	}
}

int tg_send(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
	    uint64_t deadline_us)
{
	(void)arg, (void)targets, (void)deadline_us;
	fiber_sleep_us(50);
	tg.n_sent++;
	if (!tg.alive[target - 1] || tg.lose[target - 1])
		return -LE_TARGET_DOWN;
	take(target, chains, false);
	return 0;
}

static int probe_fake(void *arg, const struct target *t)
{
	(void)arg;
	fiber_sleep_us(50);
	return tg.alive[t->info.id - 1] ? -LE_EXIST : 0;
}

struct cluster *tg_cluster(struct fx *f)
{
	struct cluster *c = &f->m->cluster;

	c->send = tg_send;
	c->probe = probe_fake;
	return c;
}

int tg_enroll(struct fx *f, uint32_t i)
{
	struct mds_target_register_req q = {.uuid = {{100, (uint8_t)i}},
					    .commits = 1,
					    .addrs = bytes_str(f->oss_addr[i]),
					    .capacity = 1 << 30,
					    .free = 1 << 29,
					    .incarnation = tg.process[i]};
	struct mds_target_register_rep p;

	TRY(fx_call_as(f, 0, 0, 0, OP_mds_target_register, &q, &p));
	take(i + 1, p.chains, true);
	return 0;
}

int tg_beat(struct fx *f, uint32_t i)
{
	struct mds_target_heartbeat_req q = {.target = i + 1,
					     .uuid = {{100, (uint8_t)i}},
					     .commits = 1,
					     .capacity = 1 << 30,
					     .free = 1 << 29,
					     .incarnation = tg.process[i]};
	struct mds_target_heartbeat_rep p;

	TRY(fx_call_as(f, 0, 0, 0, OP_mds_target_heartbeat, &q, &p));
	take(i + 1, p.chains, true);
	return 0;
}

struct cluster *tg_begin(struct fx *f)
{
	struct cluster *c = tg_cluster(f);

	memset(&tg, 0, sizeof(tg));
	for (uint32_t i = 0; i < N; i++) {
		tg.alive[i] = true;
		assert_int_equal(tg_enroll(f, i), 0);
	}
	assert_int_equal(chain_table_want(c, 2), 0);
	assert_int_equal(c->classes[2].n, N * (N - 1));
	return c;
}

enum member_state tg_state(const struct chain *ch, uint32_t target)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == target)
			return ch->members[i].state;
	fail_msg("not a member");
	return MEMBER_OUT;
}

bool tg_has(const struct chain *ch, uint32_t target)
{
	return ch->members[0].target == target || ch->members[1].target == target;
}

struct chain *tg_chain(const struct cluster *c, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < c->classes[2].n; i++)
		if (tg_has(c->classes[2].chains[i], a) && tg_has(c->classes[2].chains[i], b))
			return c->classes[2].chains[i];
	return NULL;
}

void tg_die(struct cluster *c, uint32_t target)
{
	tg.alive[target - 1] = false;
	c->targets[target - 1]->ended = true;
}

int tg_come_back(struct fx *f, uint32_t target)
{
	tg.alive[target - 1] = true;
	tg.process[target - 1]++;
	f->m->cluster.targets[target - 1]->ended = false;
	return tg_enroll(f, target - 1);
}

void tg_look(struct cluster *c)
{
	failure_detector_poll(c, loop_now_us());
	assert_int_equal(fiber_sleep_us(5000), 0); /* members that stay are notified */
}

int tg_sync_all(struct cluster *c, uint32_t target)
{
	for (uint32_t i = 0; i < c->classes[2].n; i++) {
		const struct chain *ch = c->classes[2].chains[i];
		struct mds_chain_synced_req q = {ch->id, ch->epoch, target};
		struct mds_chain_synced_rep p;

		if (tg_has(ch, target) && tg_state(ch, target) == MEMBER_SYNCING)
			TRY(membership_synced(c, &q, &p));
	}
	return 0;
}
