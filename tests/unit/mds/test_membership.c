/* Epochs, failures, returns: with targets that are made up, under the simulator's clock. */
#include "mds/chain_table.h"
#include "mds/detect.h"
#include "mds/membership.h"
#include "mds/replace.h"
#include "mds/targets.h"
#include "tests/unit/mds/fixture.h"

#define N        FX_TARGETS
#define HOLD_MAX 64u

/* What a target has been told, which survives the metadata server. */
static struct world {
	bool alive[N], lose[N]; /* lose: messages are answered by nobody */
	uint64_t process[N];
	uint32_t epoch[N][HOLD_MAX]; /* of chains, by id */
	uint32_t n_sent;
} w;

/* Messages overtake each other, and the older one is ignored; but what is on record is never
 * behind of what anybody was told: answers are as new. */
static void take(uint32_t target, struct bytes chains, bool answer)
{
	struct wire_r r;

	for (wire_r_init(&r, chains.data, chains.len); !wire_r_end(&r);) {
		struct chain_info info;

		wire_get_chain_info(&r, &info);
		assert_int_equal(r.status, 0);
		assert_true(info.id < HOLD_MAX);
		assert_true(!answer || info.epoch >= w.epoch[target - 1][info.id]);
		if (info.epoch > w.epoch[target - 1][info.id])
			w.epoch[target - 1][info.id] = info.epoch;
	}
}

static int send_fake(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
		     uint64_t deadline_us)
{
	(void)arg, (void)targets, (void)deadline_us;
	fiber_sleep_us(50);
	w.n_sent++;
	if (!w.alive[target - 1] || w.lose[target - 1])
		return -LE_TARGET_DOWN;
	take(target, chains, false);
	return 0;
}

static int probe_fake(void *arg, const struct target *t)
{
	(void)arg;
	fiber_sleep_us(50);
	return w.alive[t->info.id - 1] ? -LE_EXIST : 0;
}

/* The server is young: its own fiber looks at the targets by these functions from now on. */
static struct cluster *cluster_of(struct fx *f)
{
	struct cluster *c = &f->m->cluster;

	c->send = send_fake;
	c->probe = probe_fake;
	return c;
}

static int enroll(struct fx *f, uint32_t i)
{
	struct mds_target_register_req q = {.uuid = {{100, (uint8_t)i}},
					    .commits = 1,
					    .addrs = bytes_str(f->oss_addr[i]),
					    .capacity = 1 << 30,
					    .free = 1 << 29,
					    .incarnation = w.process[i]};
	struct mds_target_register_rep p;

	TRY(fx_call_as(f, 0, 0, 0, OP_mds_target_register, &q, &p));
	take(i + 1, p.chains, true);
	return 0;
}

static int beat(struct fx *f, uint32_t i)
{
	struct mds_target_heartbeat_req q = {.target = i + 1,
					     .uuid = {{100, (uint8_t)i}},
					     .commits = 1,
					     .capacity = 1 << 30,
					     .free = 1 << 29,
					     .incarnation = w.process[i]};
	struct mds_target_heartbeat_rep p;

	TRY(fx_call_as(f, 0, 0, 0, OP_mds_target_heartbeat, &q, &p));
	take(i + 1, p.chains, true);
	return 0;
}

static struct cluster *begin(struct fx *f)
{
	struct cluster *c = cluster_of(f);

	memset(&w, 0, sizeof(w));
	for (uint32_t i = 0; i < N; i++) {
		w.alive[i] = true;
		assert_int_equal(enroll(f, i), 0);
	}
	assert_int_equal(chain_table_want(c, 2), 0);
	assert_int_equal(c->classes[2].n, N * (N - 1));
	return c;
}

static enum member_state state_of(const struct chain *ch, uint32_t target)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == target)
			return ch->members[i].state;
	fail_msg("not a member");
	return MEMBER_OUT;
}

static bool has(const struct chain *ch, uint32_t target)
{
	return ch->members[0].target == target || ch->members[1].target == target;
}

/* The chain whose first members these were when it was made: the first with both. */
static struct chain *chain_with(const struct cluster *c, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < c->classes[2].n; i++)
		if (has(c->classes[2].chains[i], a) && has(c->classes[2].chains[i], b))
			return c->classes[2].chains[i];
	return NULL;
}

static void die(struct cluster *c, uint32_t target)
{
	w.alive[target - 1] = false;
	c->targets[target - 1]->ended = true;
}

static int come_back(struct fx *f, uint32_t target)
{
	w.alive[target - 1] = true;
	w.process[target - 1]++;
	f->m->cluster.targets[target - 1]->ended = false;
	return enroll(f, target - 1);
}

static void look(struct cluster *c)
{
	detect_look(c, loop_now_us());
	assert_int_equal(fiber_sleep_us(5000), 0); /* who stays is told */
}

static int sync_all(struct cluster *c, uint32_t target)
{
	for (uint32_t i = 0; i < c->classes[2].n; i++) {
		const struct chain *ch = c->classes[2].chains[i];
		struct mds_chain_synced_req q = {ch->id, ch->epoch, target};
		struct mds_chain_synced_rep p;

		if (has(ch, target) && state_of(ch, target) == MEMBER_SYNCING)
			TRY(membership_synced(c, &q, &p));
	}
	return 0;
}

/* ---- one after the other ---- */

static void death_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *ch = chain_with(c, 1, 2);
	struct mds_chain_synced_req q = {ch->id, 1, 1};
	struct mds_chain_synced_rep p;
	uint32_t heads = 0;

	die(c, 1);
	look(c);
	for (uint32_t i = 0; i < c->classes[2].n; i++) {
		const struct chain *each = c->classes[2].chains[i];

		if (!has(each, 1)) {
			assert_int_equal(each->epoch, 1);
			continue;
		}
		assert_int_equal(each->epoch, 2);
		assert_int_equal(each->members[1].target, 1);
		assert_int_equal(each->members[1].state, MEMBER_OUT);
		assert_int_equal(w.epoch[each->members[0].target - 1][each->id], 2);
	}
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	assert_int_not_equal(c->targets[0]->down_ns, 0);
	look(c);
	assert_int_equal(ch->epoch, 2); /* nothing more to be done */

	assert_int_equal(come_back(f, 1), 0);
	look(c);
	assert_int_equal(ch->epoch, 3);
	assert_int_equal(state_of(ch, 1), MEMBER_SYNCING);
	assert_int_equal(w.epoch[0][ch->id], 3);
	q.epoch = 2;
	assert_int_equal(membership_synced(c, &q, &p), -LE_STALE_EPOCH);
	q.epoch = 3;
	q.target = 2;
	assert_int_equal(membership_synced(c, &q, &p), 0); /* it is already */
	assert_int_equal(sync_all(c, 1), 0);
	q.target = 1;
	assert_int_equal(membership_synced(c, &q, &p), 0); /* the answer was lost */
	assert_int_equal(state_of(ch, 1), MEMBER_SYNC);
	assert_int_equal(ch->members[1].target, 1); /* not the head at once */

	assert_int_equal(membership_even_heads(c), 0);
	for (uint32_t i = 0; i < c->classes[2].n; i++)
		heads += c->classes[2].chains[i]->members[0].target == 1;
	assert_int_equal(heads, N - 1);
}

/* Members that fail together: whoever is back first leads, no one is taken out for nothing. */
static void together_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *both = chain_with(c, 1, 2), *one = chain_with(c, 2, 3);
	struct chain_health h;

	die(c, 1);
	die(c, 2);
	look(c);
	assert_int_equal(both->epoch, 1);
	assert_int_equal(state_of(both, 1), MEMBER_SYNC);
	assert_int_equal(state_of(both, 2), MEMBER_SYNC);
	assert_int_equal(state_of(one, 2), MEMBER_OUT);
	membership_health(c, &h);
	assert_int_equal(h.down, 2 + 2); /* both ways, and those of one member */
	assert_int_equal(h.degraded, 4);
	assert_int_equal(come_back(f, 2), 0);
	assert_int_equal(both->members[0].target, 2);
	assert_int_equal(state_of(both, 1), MEMBER_OUT);
	assert_int_equal(both->epoch, 2);
	assert_int_equal(come_back(f, 1), 0);
	look(c);
	assert_int_equal(state_of(both, 1), MEMBER_SYNCING);
	assert_int_equal(state_of(both, 2), MEMBER_SYNC);
}

/* One is taken out, then the last one dies: it has to return, the other is not complete. */
static void last_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *ch = chain_with(c, 1, 2);

	die(c, 1);
	look(c);
	die(c, 2);
	look(c);
	assert_int_equal(state_of(ch, 2), MEMBER_SYNC);
	assert_int_equal(come_back(f, 1), 0);
	look(c);
	assert_int_equal(state_of(ch, 1), MEMBER_OUT);
	assert_int_equal(ch->epoch, 2);
	assert_int_equal(come_back(f, 2), 0);
	look(c);
	assert_int_equal(ch->members[0].target, 2);
	assert_int_equal(state_of(ch, 1), MEMBER_SYNCING);
}

/* Back before anybody noticed: never in sync by itself, while another one is. */
static void restart_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *ch = chain_with(c, 1, 2);

	assert_int_equal(come_back(f, 1), 0);
	assert_int_equal(ch->members[0].target, 2);
	assert_int_equal(state_of(ch, 1), MEMBER_SYNCING);
	assert_int_equal(ch->epoch, 2);
	assert_int_equal(enroll(f, 0), 0); /* it only connected anew */
	assert_int_equal(ch->epoch, 2);
	assert_int_equal(sync_all(c, 1), 0);
	/* The other one does not answer and is not known to be dead: this one waits, and is not
	 * told of its chains, so it serves nothing. */
	w.lose[1] = true;
	assert_int_equal(come_back(f, 1), -LE_NOT_READY);
	assert_int_equal(ch->epoch, 3);
	assert_int_equal(state_of(ch, 1), MEMBER_SYNC);
	assert_int_equal(state_of(ch, 2), MEMBER_SYNC);
	die(c, 2);
	look(c);
	assert_int_equal(enroll(f, 0), 0);
	assert_int_equal(ch->members[0].target, 1);
	assert_int_equal(state_of(ch, 2), MEMBER_OUT);
}

/* The only one that is complete restarts, so fast that nobody notices: what it had under way is not
 * what the member that it fills has heard of it, so they go on in another epoch. */
static void lone_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *ch = chain_with(c, 1, 2);
	uint32_t epoch;

	assert_int_equal(come_back(f, 1), 0);
	assert_int_equal(state_of(ch, 1), MEMBER_SYNCING);
	epoch = ch->epoch;
	assert_int_equal(come_back(f, 2), 0);
	assert_int_equal(ch->members[0].target, 2);
	assert_int_equal(state_of(ch, 2), MEMBER_SYNC);
	assert_int_equal(state_of(ch, 1), MEMBER_SYNCING);
	assert_int_equal(ch->epoch, epoch + 1);
	look(c);
	assert_int_equal(ch->epoch, epoch + 1);
}

/* This server dies between a registration and its decision: the next one still has to decide. */
static void undecided_body(struct fx *f)
{
	struct cluster *c = begin(f);
	uint64_t judged = c->targets[0]->judged;

	w.lose[1] = w.lose[2] = true;
	assert_int_equal(come_back(f, 1), -LE_NOT_READY);
	assert_int_equal(c->targets[0]->judged, judged);
	assert_true(c->targets[0]->restarted);
	memset(w.lose, 0, sizeof(w.lose));
	assert_int_equal(enroll(f, 0), 0);
	assert_int_equal(c->targets[0]->judged, w.process[0]);
	assert_int_equal(c->targets[0]->judged, c->targets[0]->incarnation);
}

/* Two that wait for a third one's answer do not keep each other busy. */
struct enrolling {
	struct fx *f;
	uint32_t target;
	int rc;
};

static void enroll_fiber(void *arg)
{
	struct enrolling *e = arg;

	e->rc = come_back(e->f, e->target);
}

static void waiting_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *both = chain_with(c, 1, 2);
	struct enrolling e[2] = {{f, 1, 0}, {f, 2, 0}};
	uint32_t sent = w.n_sent;

	w.lose[2] = true;
	fiber_parallel("enroll", enroll_fiber, e, sizeof(e[0]), 2, 2);
	assert_int_equal(e[0].rc, -LE_NOT_READY);
	assert_int_equal(e[1].rc, -LE_NOT_READY);
	assert_in_range(both->epoch, 1, 4);
	assert_in_range(w.n_sent - sent, 1, 400);
}

/* ---- by the clock ---- */

static void silence_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *ch = chain_with(c, 1, 2);

	c->params = &f->m->params;
	f->m->params.lease_ms = 1000;
	f->m->params.lease_margin_ms = 500;
	c->judge_from_us = 0;
	for (int i = 0; i < 14; i++) {
		assert_int_equal(beat(f, 1) + beat(f, 2), 0);
		assert_int_equal(fiber_sleep_us(100000), 0);
	}
	assert_int_equal(c->targets[0]->info.state, TARGET_UP);
	w.alive[0] = false;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(beat(f, 1) + beat(f, 2), 0);
		assert_int_equal(fiber_sleep_us(100000), 0);
	}
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	assert_int_equal(state_of(ch, 1), MEMBER_OUT);
	/* The same process is heard again: told, then filled up. */
	w.alive[0] = true;
	assert_int_equal(beat(f, 0), 0);
	assert_int_equal(fiber_sleep_us(20000), 0);
	assert_int_equal(state_of(ch, 1), MEMBER_SYNCING);
	assert_int_equal(w.epoch[0][ch->id], ch->epoch);
	/* This server stood still for long: it knows nothing of the others. */
	detect_look(c, loop_now_us() - 1000000);
	for (uint32_t i = 0; i < N; i++)
		c->targets[i]->heard_us = 0;
	detect_look(c, loop_now_us());
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(c->targets[i]->info.state, TARGET_UP);
	assert_int_equal(fiber_sleep_us(1400000), 0);
	assert_int_equal(c->targets[1]->info.state, TARGET_UP);
	assert_int_equal(fiber_sleep_us(500000), 0);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(c->targets[i]->info.state, TARGET_DOWN);
}

/* ---- whether a process is there ---- */

static const struct transport_ops *net_ops;

/* As for a server without verbs. */
static int connect_some(struct transport *t, const char *addr, uint64_t deadline_us,
			struct link **ret_link)
{
	if (strncmp(addr, "verbs:", 6) == 0)
		return -LE_CONFIG;
	return net_ops->connect(t, addr, deadline_us, ret_link);
}

static int probe(struct fx *f, const char *addrs)
{
	char text[128];
	struct target t = {.addrs = text};

	snprintf(text, sizeof(text), "%s", addrs);
	return f->m->cluster.probe(f->m, &t);
}

static void probe_body(struct fx *f)
{
	struct transport_ops ops = *f->net->ops;

	net_ops = f->net->ops;
	ops.connect = connect_some;
	f->net->ops = &ops;
	assert_int_equal(probe(f, f->oss_addr[0]), -LE_EXIST);
	assert_int_equal(probe(f, "oss:1"), 0);
	/* An address that this server cannot use says nothing, neither by itself nor of others. */
	assert_int_equal(probe(f, "verbs:oss:1 oss:1"), 0);
	assert_int_equal(probe(f, "oss:1 verbs:oss:1"), 0);
	assert_int_equal(probe(f, "verbs:oss:1"), -LE_NODATA);
	assert_int_equal(probe(f, "verbs:oss:1 oss:9000"), -LE_EXIST);
	f->net->ops = net_ops;
}

/* ---- a start that takes long ---- */

#define LISTENS_LATE_US 3000000u

static uint64_t listened_us;

/* As where names of addresses take long to look up. */
static int listen_late(struct transport *t, struct loop *l, const char *addr,
		       struct listener **ret_listener, char *ret_addr)
{
	assert_int_equal(fiber_sleep_us(LISTENS_LATE_US), 0);
	listened_us = loop_now_us();
	return net_ops->listen(t, l, addr, ret_listener, ret_addr);
}

/* Targets may have leases that they had a moment before this server listened: none is taken for
 * silent, and none for one that has stopped, before those are over. */
static void late_body(struct fx *f)
{
	struct cluster *c = begin(f);

	assert_true(c->judge_from_us >= listened_us + 600500 * 1000ull);
	f->m->params.lease_ms = 1000;
	f->m->params.lease_margin_ms = 500;
	c->judge_from_us = UINT64_MAX;
	assert_int_equal(fiber_sleep_us(LISTENS_LATE_US), 0);
	c->judge_from_us = 0;
	assert_int_equal(membership_start(c), 0);
	look(c);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(c->targets[i]->info.state, TARGET_UP);
}

static void test_listens_late(void **state)
{
	struct fx *f = fx_create(1);
	struct transport_ops ops = *f->net->ops;

	(void)state;
	net_ops = f->net->ops;
	ops.listen = listen_late;
	f->net->ops = &ops;
	fx_run(f, late_body);
	f->net->ops = net_ops;
	fx_destroy(f);
}

/* ---- members move ---- */

static uint32_t add_spare(struct fx *f)
{
	struct mds_target_register_req q = {.uuid = {{100, N}},
					    .commits = 1,
					    .addrs = bytes_str("spare:1"),
					    .capacity = 1 << 30,
					    .free = 1 << 29};
	struct mds_target_register_rep p;

	assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_register, &q, &p), 0);
	return p.target;
}

static int send_any(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
		    uint64_t deadline_us)
{
	if (target <= N)
		return send_fake(arg, target, chains, targets, deadline_us);
	return 0;
}

/* As the sources of the resyncs would. */
static void fill_all(struct cluster *c)
{
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];

		for (uint32_t k = 0; k < ch->n_members; k++) {
			struct mds_chain_synced_req q = {ch->id, ch->epoch, ch->members[k].target};
			struct mds_chain_synced_rep p;

			if (ch->members[k].state == MEMBER_SYNCING)
				assert_int_equal(membership_synced(c, &q, &p), 0);
		}
	}
}

/* What has been away for replace_after_ms has others in its place. */
static void replace_lost(struct fx *f)
{
	struct cluster *c = &f->m->cluster;

	f->m->params.replace_after_ms = 1000;
	assert_int_equal(fiber_sleep_us(1500000), 0);
	for (uint32_t i = 0; i < 20; i++) {
		assert_int_equal(replace_pass(c), 0);
		fill_all(c);
	}
}

static void never_fewer(const struct cluster *c, uint32_t dead)
{
	for (uint32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = c->chains[i];
		uint32_t sync = 0;

		for (uint32_t k = 0; k < ch->n_members; k++)
			sync += ch->members[k].state == MEMBER_SYNC &&
				ch->members[k].target != dead;
		assert_true(sync + (dead != 0) >= ch->replicas);
	}
}

static uint32_t admin(struct cluster *c, uint32_t what, uint32_t target, int want)
{
	struct mds_target_admin_req q = {what, target};
	struct mds_target_admin_rep p = {0};

	assert_int_equal(target_admin(c, &q, &p), want);
	return p.left;
}

static void move_until_done(struct cluster *c, uint32_t target, uint32_t dead)
{
	for (uint32_t i = 0; target_chains(c, target) > 0 && i < 50; i++) {
		assert_int_equal(replace_pass(c), 0);
		never_fewer(c, dead);
		fill_all(c);
		never_fewer(c, dead);
	}
	assert_int_equal(target_chains(c, target), 0);
}

static void drain_body(struct fx *f)
{
	struct cluster *c = begin(f);
	uint32_t spare, load[N + 1];

	c->send = send_any;
	spare = add_spare(f);
	c->judge_from_us = UINT64_MAX;
	f->m->params.replace_parallel = 2;
	assert_int_equal(admin(c, TARGET_ADMIN_REMOVE, 1, -LE_BUSY), 0);
	assert_true(admin(c, TARGET_ADMIN_DRAIN, 1, 0) > 0);
	assert_int_equal(replace_pass(c), 0);
	assert_int_equal(admin(c, TARGET_ADMIN_UNDRAIN, 1, 0), target_chains(c, 1));
	for (uint32_t i = 0; i < 5; i++) { /* what was begun ends, and nothing is lost */
		fill_all(c);
		assert_int_equal(replace_pass(c), 0);
		never_fewer(c, 0);
	}
	admin(c, TARGET_ADMIN_DRAIN, 1, 0);
	move_until_done(c, 1, 0);
	assert_int_equal(admin(c, TARGET_ADMIN_REMOVE, 1, 0), 0);
	assert_int_equal(enroll(f, 0), -LE_REMOVED);
	admin(c, TARGET_ADMIN_ADD, 1, 0);
	assert_int_equal(enroll(f, 0), 0);
	/* It is empty: others give it some of theirs. */
	for (uint32_t i = 0; admin(c, TARGET_ADMIN_REBALANCE, 0, 0) > 0 && i < 100; i++) {
		assert_int_equal(replace_pass(c), 0);
		never_fewer(c, 0);
		fill_all(c);
	}
	assert_int_equal(admin(c, TARGET_ADMIN_REBALANCE, 0, 0), 0);
	for (uint32_t i = 0; i <= N; i++)
		load[i] = target_chains(c, i + 1);
	for (uint32_t i = 0; i <= N; i++)
		assert_in_range(load[i], load[spare - 1] - 2, load[spare - 1] + 2);
}

static void absent_body(struct fx *f)
{
	struct cluster *c = begin(f);
	uint32_t spare;

	c->send = send_any;
	spare = add_spare(f);
	die(c, 1);
	look(c);
	c->judge_from_us = UINT64_MAX;
	assert_int_equal(replace_pass(c), 0);
	assert_int_equal(target_chains(c, 1), 1 + 2 * N); /* not yet */
	replace_lost(f);
	/* All but the one of class 1, which has no other copy. */
	assert_int_equal(target_chains(c, 1), 1);
	assert_true(target_chains(c, spare) > N);
	for (uint32_t i = 0; i < c->classes[2].n; i++) {
		assert_int_equal(c->classes[2].chains[i]->n_members, 2);
		assert_int_not_equal(c->classes[2].chains[i]->lead, 1);
	}
}

/* Members that are back and are never filled up, for want of room say, do not keep others from
 * being replaced. */
static void unfilled_body(struct fx *f)
{
	struct cluster *c = begin(f);
	uint32_t more = 0;

	c->send = send_any;
	add_spare(f);
	c->judge_from_us = UINT64_MAX;
	f->m->params.replace_parallel = 1;
	assert_int_equal(come_back(f, 2), 0);
	assert_int_equal(state_of(chain_with(c, 2, 3), 2), MEMBER_SYNCING);
	admin(c, TARGET_ADMIN_DRAIN, 1, 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(replace_pass(c), 0);
	for (uint32_t i = 0; i < c->n_chains; i++)
		more += c->chains[i]->n_members > c->chains[i]->replicas;
	assert_int_equal(more, 1); /* at a time */
}

struct meanwhile {
	struct cluster *c;
	bool dies;
};

static void meanwhile_one(void *arg)
{
	struct meanwhile *a = arg;
	struct cluster *c = a->c;
	struct moves m = {.c = c};

	if (a->dies) {
		assert_true(c->lock.held);
		die(c, 1);
		c->targets[0]->dead = true;
		return;
	}
	fmutex_lock(&c->lock);
	assert_non_null(moves_chain(&m, chain_with(c, 2, 3)));
	assert_int_equal(moves_commit(&m), 0);
	fmutex_unlock(&c->lock);
}

/* Judged while another change was being made durable: since when it is away is on record all the
 * same, so that it is replaced. */
static void meanwhile_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct meanwhile both[2] = {{c, false}, {c, true}};

	c->send = send_any;
	add_spare(f);
	fiber_parallel("meanwhile", meanwhile_one, both, sizeof(both[0]), 2, 2);
	look(c);
	assert_int_equal(c->targets[0]->info.state, TARGET_DOWN);
	assert_int_not_equal(c->targets[0]->down_ns, 0);
	c->judge_from_us = UINT64_MAX;
	replace_lost(f);
	assert_int_equal(target_chains(c, 1), 1);
}

/* ---- the metadata server dies between any two steps ---- */

static uint32_t seed;

static void work_body(struct fx *f)
{
	struct cluster *c = cluster_of(f);

	c->judge_from_us = UINT64_MAX;
	if (w.n_sent == 0)
		assert_int_equal(chain_table_want(c, 2), 0);
	for (uint32_t i = 0; i < N; i++) {
		c->targets[i]->ended = !w.alive[i];
		if (w.alive[i] && enroll(f, i) < 0)
			c->targets[i]->restarted = true;
	}
	for (uint32_t step = 0; step < 20; step++) {
		uint32_t t = (uint32_t)sim_random_below(f->sim, N) + 1;

		if (w.alive[t - 1] && sim_random_below(f->sim, 3) == 0) {
			die(c, t);
			detect_kick(c);
		} else if (!w.alive[t - 1]) {
			int rc = come_back(f, t);

			assert_true(rc == 0 || rc == -LE_NOT_READY);
		} else if (sync_all(c, t) < 0) {
			continue;
		}
		w.lose[t - 1] = sim_random_below(f->sim, 4) == 0;
		fiber_sleep_us(sim_random_below(f->sim, 2000));
		for (uint32_t i = 0; i < c->n_chains; i++)
			assert_int_equal(c->chains[i]->members[0].state, MEMBER_SYNC);
	}
}

struct until {
	uint64_t us;
	struct fx *f;
};

static bool until_done(void *arg)
{
	struct until *u = arg;

	return sim_now_us(u->f->sim) >= u->us;
}

static void all_up_body(struct fx *f)
{
	struct cluster *c = cluster_of(f);

	memset(w.lose, 0, sizeof(w.lose));
	for (uint32_t i = 0; i < N; i++)
		c->targets[i]->ended = !w.alive[i];
	look(c);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(w.alive[i] ? enroll(f, i) : come_back(f, i + 1), 0);
	for (uint32_t i = 0; i < 3; i++) {
		look(c);
		for (uint32_t t = 1; t <= N; t++)
			assert_int_equal(sync_all(c, t), 0);
	}
	assert_int_equal(c->classes[2].n, N * (N - 1)); /* no more for all that */
	for (uint32_t i = 0; i < c->classes[2].n; i++)
		for (uint32_t k = 0; k < 2; k++)
			assert_int_equal(c->classes[2].chains[i]->members[k].state, MEMBER_SYNC);
}

static void test_crashes(void **state)
{
	(void)state;
	for (seed = 1; seed <= 30; seed++) {
		struct fx *f = fx_create_to_crash(seed);

		memset(&w, 0, sizeof(w));
		for (uint32_t i = 0; i < N; i++)
			w.alive[i] = true;
		for (uint32_t round = 0; round < 6; round++) {
			struct until u = {
				sim_now_us(f->sim) + 5000 + sim_random_below(f->sim, 40000), f};

			fx_start(f, work_body);
			assert_int_equal(sim_run(f->sim, until_done, &u, UINT64_MAX), 0);
			fx_crash(f); /* whatever it was doing: epochs told must not go back */
		}
		fx_run(f, all_up_body);
		assert_int_equal(fx_check(f, false), 0);
		fx_destroy(f);
	}
}

/* Until its lease has run out nobody hears, in whatever way, of what is to go on without the one
 * that cannot be told; and it gets no other lease. */
static void held_back(struct fx *f, const struct chain *ch, uint32_t before)
{
	for (int i = 0; i < 14; i++) {
		for (uint32_t t = 0; t < N; t++)
			assert_int_equal(beat(f, t), -LE_NOT_READY);
		assert_int_equal(w.epoch[0][ch->id], before);
		assert_int_equal(w.epoch[1][ch->id], before);
		assert_int_equal(fiber_sleep_us(100000), 0);
	}
	assert_int_equal(fiber_sleep_us(200000), 0);
	for (uint32_t t = 0; t < N; t++)
		assert_int_equal(beat(f, t), 0);
	assert_int_equal(w.epoch[0][ch->id], ch->epoch);
	assert_int_equal(w.epoch[1][ch->id], ch->epoch);
}

static void stops_first_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *ch = chain_with(c, 1, 2);
	struct moves m = {.c = c};
	uint32_t epoch = ch->epoch;

	f->m->params.lease_ms = 1000;
	f->m->params.lease_margin_ms = 500;
	for (uint32_t t = 0; t < N; t++)
		assert_int_equal(beat(f, t), 0);
	w.lose[0] = true;
	assert_int_equal(membership_bad(c, c->targets[0]), 0);
	assert_int_equal(state_of(ch, 1), MEMBER_OUT);
	assert_int_equal(ch->epoch, epoch + 1);
	/* Another change does not overtake it. */
	fmutex_lock(&c->lock);
	assert_non_null(moves_chain(&m, ch));
	assert_int_equal(moves_commit(&m), 0);
	fmutex_unlock(&c->lock);
	held_back(f, ch, epoch);
	/* The next server does not know who has been told of what. */
	epoch = ch->epoch;
	assert_int_equal(membership_start(c), 0);
	held_back(f, ch, epoch);
	/* Who answers holds nobody up, and neither does who has ended. */
	w.lose[0] = false;
	assert_int_equal(membership_start(c), 0);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(beat(f, 1), 0);
	w.alive[0] = false;
	assert_int_equal(membership_start(c), 0);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(beat(f, 1), 0);
}

static void move_member(struct cluster *c, struct chain *ch, uint32_t target, int state)
{
	struct moves m = {.c = c};
	struct chain *next;

	fmutex_lock(&c->lock);
	next = moves_chain(&m, ch);
	assert_non_null(next);
	member_move(next, target, state);
	assert_int_equal(moves_commit(&m), 0);
	fmutex_unlock(&c->lock);
	assert_int_equal(fiber_sleep_us(5000), 0); /* it is told */
}

/* A chain of one member that has moved; the server dies before the target that had it hears of it.
 * The next one stops that too. */
static void stops_lone_body(struct fx *f)
{
	struct cluster *c = begin(f);
	struct chain *ch = cluster_chain(c, c->targets[0]->chain);

	move_member(c, ch, 2, MEMBER_SYNCING);
	move_member(c, ch, 2, MEMBER_SYNC);
	move_member(c, ch, 1, MEMBER_NONE);
	assert_int_equal(ch->n_members, 1);
	w.epoch[0][ch->id] = ch->epoch - 1;
	assert_int_equal(membership_start(c), 0);
	assert_int_equal(fiber_sleep_us(5000), 0);
	assert_int_equal(w.epoch[0][ch->id], ch->epoch);
}

TEST(test_stops_first, stops_first_body)
TEST(test_stops_lone, stops_lone_body)
TEST(test_death_and_return, death_body)
TEST(test_fail_together, together_body)
TEST(test_last_member_stays, last_body)
TEST(test_restart_unnoticed, restart_body)
TEST(test_lone_restart, lone_body)
TEST(test_undecided, undecided_body)
TEST(test_waiting, waiting_body)
TEST(test_silence, silence_body)
TEST(test_probe, probe_body)
TEST(test_drain, drain_body)
TEST(test_absent, absent_body)
TEST(test_unfilled, unfilled_body)
TEST(test_judged_meanwhile, meanwhile_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_death_and_return),
		cmocka_unit_test(test_fail_together),
		cmocka_unit_test(test_last_member_stays),
		cmocka_unit_test(test_restart_unnoticed),
		cmocka_unit_test(test_lone_restart),     cmocka_unit_test(test_undecided),
		cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_listens_late),
		cmocka_unit_test(test_crashes),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_absent),
		cmocka_unit_test(test_unfilled),
		cmocka_unit_test(test_judged_meanwhile),
		cmocka_unit_test(test_stops_first),
		cmocka_unit_test(test_stops_lone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
