/* SPDX-License-Identifier: Apache-2.0 */
/* Exports: the most specific row counts, the table survives a restart, and every operation that
 * changes something is refused to a read-only network. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "mds/access/exports.h"
#include "mds/access/exports_policy.h"
#include "tests/unit/mds/fixture.h"

static struct export_row row(const char *net, uint32_t flags)
{
	struct export_row r = {.flags = flags, .anon_uid = 7, .anon_gid = 8};
	struct network n;

	assert_int_equal(network_parse(net, &n), 0);
	r.net_hi = n.addr.hi;
	r.net_lo = n.addr.lo;
	r.bits = n.bits;
	return r;
}

static void add(struct exports *e, const char *net, uint32_t flags)
{
	struct export_row r = row(net, flags);

	assert_int_equal(exports_put(e, &r), 0);
}

static uint32_t flags_of(const struct exports *e, const char *peer)
{
	return exports_rule(e, peer).flags;
}

static void test_the_most_specific_row_counts(void **state)
{
	struct exports *e = calloc(1, sizeof(*e));
	struct network n;

	(void)state;
	assert_int_equal(flags_of(e, "tcp 10.1.2.3:1"), 0);
	assert_int_equal(flags_of(e, "nobody knows"), 0);
	add(e, "10.1.0.0/16", EXPORT_READ_ONLY);
	add(e, "10.1.2.3", 0);
	add(e, "10.0.0.0/8", EXPORT_SQUASH_ROOT);
	add(e, "::/0", EXPORT_SQUASH_ALL);
	add(e, "10.1.2.0/24", EXPORT_SQUASH_ROOT | EXPORT_READ_ONLY);
	assert_int_equal(flags_of(e, "tcp 10.1.2.3:1"), 0);
	assert_int_equal(flags_of(e, "tcp [::ffff:10.1.2.3]:1"), 0);
	assert_int_equal(flags_of(e, "tcp 10.1.2.4:1"), EXPORT_SQUASH_ROOT | EXPORT_READ_ONLY);
	assert_int_equal(flags_of(e, "tcp 10.1.3.4:1"), EXPORT_READ_ONLY);
	assert_int_equal(flags_of(e, "tcp 10.2.3.4:1"), EXPORT_SQUASH_ROOT);
	assert_int_equal(flags_of(e, "tcp 11.2.3.4:1"), EXPORT_SQUASH_ALL);
	assert_int_equal(flags_of(e, "tcp [fd00::1]:1"), EXPORT_SQUASH_ALL);
	/* A client with an unparsable address gets no rights. */
	assert_int_equal(flags_of(e, "nobody knows"), EXPORT_READ_ONLY | EXPORT_SQUASH_ALL);
	/* A row for an existing network replaces that row. */
	add(e, "10.1.2.0/24", EXPORT_SQUASH_ALL);
	assert_int_equal(e->n, 5);
	assert_int_equal(flags_of(e, "tcp 10.1.2.4:1"), EXPORT_SQUASH_ALL);
	assert_int_equal(network_parse("10.1.2.0/24", &n), 0);
	assert_int_equal(exports_remove(e, &n), 0);
	assert_int_equal(exports_remove(e, &n), -LE_NOENT);
	assert_int_equal(flags_of(e, "tcp 10.1.2.4:1"), EXPORT_READ_ONLY);
	free(e);
}

static void test_wrong_rows_are_refused(void **state)
{
	struct exports *e = calloc(1, sizeof(*e));
	struct export_row r = row("10.1.0.0/16", 8);

	(void)state;
	assert_int_equal(exports_put(e, &r), -LE_INVAL);
	r = row("10.1.0.0/16", EXPORT_SQUASH_ROOT);
	r.anon_uid = 0;
	assert_int_equal(exports_put(e, &r), -LE_INVAL);
	r = row("10.1.0.0/16", 0);
	r.net_lo++;
	assert_int_equal(exports_put(e, &r), -LE_INVAL);
	r.bits = 200;
	assert_int_equal(exports_put(e, &r), -LE_INVAL);
	for (uint32_t i = 0; i < EXPORTS_MAX; i++) {
		r = row("10.0.0.0", 0);
		r.net_lo += i;
		assert_int_equal(exports_put(e, &r), 0);
	}
	r.net_lo++;
	assert_int_equal(exports_put(e, &r), -LE_NOSPC);
	r.net_lo--;
	assert_int_equal(exports_put(e, &r), 0);
	free(e);
}

/* ---- in the server ---- */

static int set(struct fx *f, uint32_t what, const char *net, uint32_t flags)
{
	struct mds_export_set_req in = {.what = what, .row = row(net, flags)};
	struct mds_export_set_rep out;

	return fx_call(f, OP_mds_export_set, &in, &out);
}

static void stored(struct fx *f)
{
	fx_session(f, 1);
	assert_int_equal(set(f, EXPORT_ADD, "10.0.0.0/8", EXPORT_READ_ONLY), 0);
	assert_int_equal(set(f, EXPORT_ADD, "10.1.0.0/16", EXPORT_SQUASH_ALL), 0);
	assert_int_equal(set(f, EXPORT_ADD, "fd00::/16", 0), 0);
	assert_int_equal(set(f, EXPORT_REMOVE, "fd00::/16", 0), 0);
	assert_int_equal(set(f, EXPORT_REMOVE, "fd00::/16", 0), -LE_NOENT);
	assert_int_equal(set(f, 9, "fd00::/16", 0), -LE_INVAL);
}

static void still_there(struct fx *f)
{
	assert_int_equal(f->m->exports.n, 2);
	assert_int_equal(flags_of(&f->m->exports, "tcp 10.1.0.1:5"), EXPORT_SQUASH_ALL);
	assert_int_equal(flags_of(&f->m->exports, "tcp 10.2.0.1:5"), EXPORT_READ_ONLY);
}

static void test_the_table_is_durable(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, stored);
	fx_crash(f);
	fx_run(f, still_there);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* Operations that change nothing by themselves, or have a rule of their own (open, access, close).
 * Readers may lock. */
static bool may_read_only(uint16_t op)
{
	static const uint16_t may[] = {OP_mds_open, OP_mds_close, OP_mds_lock};

	for (size_t i = 0; i < ARRAY_SIZE(may); i++)
		if (may[i] == op)
			return true;
	return false;
}

static void gated(struct fx *f)
{
	static const struct {
		uint16_t op;
		const char *kind;
	} all[] = {
#define ROW(num, name, kind) {num, #kind},
		MDS_OPS(ROW)};
	struct rpc_peer peer = {.role = ROLE_CLIENT, .addr = "tcp 10.2.0.1:5"};
	struct rpc_req r = {.peer = &peer};
	uint32_t n = 0;

	stored(f);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct op_desc d = {.op = all[i].op, .kind = OP_READ};
		static uint64_t in[256]; /* zeros are a valid request of every kind here */
		struct op op;
		int rc;

		if (all[i].kind[0] == 'W')
			d.kind = OP_FLOW;
		op_init(&op, f->m);
		op.r = &r;
		memset(in, 0, sizeof(in));
		rc = export_gate(&op, &d, in);
		if (all[i].kind[0] == 'W' && !may_read_only(d.op)) {
			assert_int_equal(rc, -LE_ROFS);
			n++;
		}
		if (all[i].kind[0] == 'R' || may_read_only(d.op))
			assert_int_equal(rc, 0);
		op_fini(&op);
	}
	assert_true(n > 15);
}

static void test_what_changes_something_is_refused(void **state)
{
	struct fx *f = fx_create(2);

	(void)state;
	fx_run(f, gated);
	fx_destroy(f);
}

static void squashed(struct fx *f)
{
	struct rpc_peer peer = {.role = ROLE_CLIENT, .addr = "tcp 10.3.0.1:5"};
	static uint8_t groups[] = {5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0};
	struct mds_getattr_req in = {
		.cred = {
			.uid = 0, .gid = 0, .flags = CRED_CHECKED, .groups = bytes_of(groups, 12)}};
	struct op_desc d = {.op = OP_mds_getattr, .kind = OP_READ};
	struct rpc_req r = {.peer = &peer};
	struct op op;

	fx_session(f, 1);
	assert_int_equal(set(f, EXPORT_ADD, "10.3.0.0/16", EXPORT_SQUASH_ROOT), 0);
	op_init(&op, f->m);
	op.r = &r;
	assert_int_equal(export_gate(&op, &d, &in), 0);
	assert_int_equal(in.cred.uid, 7);
	assert_int_equal(in.cred.gid, 8);
	assert_int_equal(in.cred.flags, 0);
	assert_int_equal(in.cred.groups.len, 0);
	/* Other users keep all groups but root's. A check by the client's kernel does not count. */
	in.cred = (struct cred){.uid = 100, .gid = 100, .flags = CRED_CHECKED};
	in.cred.groups = bytes_of(groups, 12);
	assert_int_equal(export_gate(&op, &d, &in), 0);
	assert_int_equal(in.cred.uid, 100);
	assert_int_equal(in.cred.flags, 0);
	assert_int_equal(in.cred.groups.len, 8);
	assert_true(cred_in_group(&in.cred, 5) && cred_in_group(&in.cred, 256));
	assert_false(cred_in_group(&in.cred, 0));
	in.cred.gid = 0;
	assert_int_equal(export_gate(&op, &d, &in), 0);
	assert_int_equal(in.cred.gid, 8);
	in.cred.groups.len = 7;
	assert_int_equal(export_gate(&op, &d, &in), -LE_INVAL);
	/* Clients of that network may not administer the cluster. */
	d.op = OP_mds_target_admin;
	assert_int_equal(export_gate(&op, &d, &in), -LE_PERM);
	peer.role = ROLE_OSSD;
	assert_int_equal(export_gate(&op, &d, &in), -LE_PERM);
	op_fini(&op);
}

static void test_credentials_are_squashed(void **state)
{
	struct fx *f = fx_create(3);

	(void)state;
	fx_run(f, squashed);
	fx_destroy(f);
}

/* In a restricted network no peer is accepted as a server, nor as the agent of a node. */
static void claimed(struct fx *f)
{
	static const uint16_t theirs[] = {
		OP_mds_target_register, OP_mds_target_heartbeat, OP_mds_chain_synced,
		OP_mds_target_bad,      OP_mds_session_list,     OP_mds_residency_set,
		OP_mds_fsck_page,       OP_mds_fsck_repair,      OP_mds_export_set,
		OP_mds_target_admin,    OP_mds_target_lose};
	static const char *restricted[] = {"tcp 10.1.0.1:5", "tcp 10.2.0.1:5"};
	struct rpc_peer peer = {0};
	struct rpc_req r = {.peer = &peer};
	static uint64_t in[256];
	struct op op;

	stored(f);
	op_init(&op, f->m);
	op.r = &r;
	for (uint32_t i = 0; i < 2; i++) {
		snprintf(peer.addr, sizeof(peer.addr), "%s", restricted[i]);
		for (uint8_t role = ROLE_CLIENT; role <= ROLE_TOOL; role++) {
			bool server = role == ROLE_OSSD || role == ROLE_MDS;
			struct op_desc ping = {.op = OP_mds_ping, .kind = OP_CTRL};

			peer.role = role;
			assert_int_equal(export_gate(&op, &ping, in), server ? -LE_PERM : 0);
			for (uint32_t k = 0; k < ARRAY_SIZE(theirs); k++) {
				struct op_desc d = {.op = theirs[k], .kind = OP_CTRL};

				assert_int_equal(export_gate(&op, &d, in), -LE_PERM);
			}
		}
	}
	snprintf(peer.addr, sizeof(peer.addr), "tcp 11.0.0.1:5");
	peer.role = ROLE_OSSD;
	for (uint32_t k = 0; k < ARRAY_SIZE(theirs); k++) {
		struct op_desc d = {.op = theirs[k], .kind = OP_CTRL};

		assert_int_equal(export_gate(&op, &d, in), 0);
	}
	op_fini(&op);
}

static void test_servers_are_not_believed_everywhere(void **state)
{
	struct fx *f = fx_create(5);

	(void)state;
	fx_run(f, claimed);
	fx_destroy(f);
}

/* A row that would silence an object server is refused. */
static void silenced(struct fx *f)
{
	struct mds_export_set_req in = {.what = EXPORT_ADD, .row = row("10.0.0.0/8", 1)};
	struct target *t = f->m->cluster.targets[0];
	struct mds_export_set_rep out = {0};

	fx_session(f, 1);
	assert_int_equal(fx_call(f, OP_mds_export_set, &in, &out), 0);
	assert_int_equal(out.target, 0);
	assert_int_equal(set(f, EXPORT_REMOVE, "10.0.0.0/8", 0), 0);
	snprintf(t->from, sizeof(t->from), "tcp 10.9.9.9:5");
	assert_int_equal(fx_call(f, OP_mds_export_set, &in, &out), 0);
	assert_int_equal(out.target, t->info.id);
	assert_int_equal(f->m->exports.n, 0);
	/* With a row for the server's own network it is accepted; that row cannot be removed while
	 * it is needed. */
	assert_int_equal(set(f, EXPORT_ADD, "10.9.0.0/16", 0), 0);
	memset(&out, 0, sizeof(out));
	assert_int_equal(fx_call(f, OP_mds_export_set, &in, &out), 0);
	assert_int_equal(out.target, 0);
	assert_int_equal(f->m->exports.n, 2);
	in = (struct mds_export_set_req){.what = EXPORT_REMOVE, .row = row("10.9.0.0/16", 0)};
	assert_int_equal(fx_call(f, OP_mds_export_set, &in, &out), 0);
	assert_int_equal(out.target, t->info.id);
	assert_int_equal(f->m->exports.n, 2);
}

static void test_no_row_silences_an_object_server(void **state)
{
	struct fx *f = fx_create(6);

	(void)state;
	fx_run(f, silenced);
	fx_destroy(f);
}

/* ---- sessions that end ---- */

#define N_WRITERS 6

static void comes_from(struct fx *f, uint64_t session, const char *addr)
{
	struct session *se = session_find(&f->m->sessions, session);

	snprintf(se->addr, sizeof(se->addr), "%s", addr);
}

static void writers(struct fx *f)
{
	const uint64_t first = f->session;
	char name[8];

	for (uint8_t i = 0; i < N_WRITERS; i++) {
		f->session = fx_session(f, 10 + i);
		comes_from(f, f->session, "10.1.2.3:700");
		f->slot = 1 + i % 7;
		snprintf(name, sizeof(name), "w%u", i);
		assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, name, O_WRONLY, NULL), 0);
	}
	f->session = first;
}

/* The end of each session waits for the targets. The request's deadline is earlier; all sessions
 * end nevertheless. */
static void ended_in_time(struct fx *f)
{
	writers(f);
	/* The targets are silent, but have confirmed the first rows. */
	for (uint32_t i = 0; i < f->m->cluster.n_targets; i++) {
		f->m->cluster.targets[i]->sessions_gen = f->m->sessions.gen;
		f->m->cluster.targets[i]->read_ms = 1;
	}
	assert_int_equal(f->m->opens.n_opens, N_WRITERS);
	/* A session without a connection loses only rights that a row takes from its last
	 * address. */
	assert_int_equal(set(f, EXPORT_ADD, "10.2.0.0/16", EXPORT_READ_ONLY), 0);
	assert_int_equal(set(f, EXPORT_ADD, "10.1.0.0/16", 0), 0);
	assert_int_equal(set(f, EXPORT_REMOVE, "10.1.0.0/16", 0), 0);
	assert_int_equal(f->m->opens.n_opens, N_WRITERS);
	assert_int_equal(f->m->sessions.n, N_WRITERS + 1);
	fiber_set_deadline(loop_deadline_ms(700));
	assert_int_equal(set(f, EXPORT_ADD, "10.0.0.0/8", EXPORT_READ_ONLY), 0);
	fiber_set_deadline(NO_DEADLINE);
	assert_int_equal(f->m->opens.n_opens, 0);
	assert_int_equal(f->m->sessions.n, 1); /* a session without an address */
}

static void test_sessions_end_whoever_waits(void **state)
{
	struct fx *f = fx_create(4);

	(void)state;
	fx_run(f, ended_in_time);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* The targets are in contact, and do not confirm that they refuse ended sessions. */
static void hear_targets(struct fx *f)
{
	for (uint32_t i = 0; i < f->m->cluster.n_targets; i++)
		f->m->cluster.targets[i]->last_contact_us = loop_now_us();
}

/* The sessions expire one after the other; only the last one has to wait. */
static void last_session_ends(struct fx *f)
{
	while (f->m->sessions.n > 0) {
		if (f->m->sessions.n == 1)
			hear_targets(f);
		fiber_sleep_us(50); /* two may end within a millisecond */
	}
}

/* The server stops while a session is being ended. */
static void ending(struct fx *f)
{
	writers(f);
	last_session_ends(f);
	assert_true(f->m->opens.n_opens > 0);
}

/* Targets that apply and report the read_ms of the last reply; one may be cut off. */
struct beats {
	struct fx *f, own; /* own: for calls of the beat fiber */
	uint32_t read_ms[FX_TARGETS];
	uint32_t cut_off; /* number of the target; 0: none */
	bool stop;
};

static void beat(void *arg)
{
	struct beats *b = arg;
	struct fx *f = b->f;

	while (!b->stop) {
		for (uint32_t i = 0; i < f->m->cluster.n_targets; i++) {
			struct mds_target_heartbeat_req q = {.target = i + 1,
							     .uuid = {{100, (uint8_t)i}},
							     .commits = 1,
							     .sessions_gen = f->m->sessions.gen,
							     .read_ms = b->read_ms[i]};
			struct mds_target_heartbeat_rep p = {0};

			if (i + 1 == b->cut_off)
				continue;
			assert_int_equal(
				fx_call_as(&b->own, 0, 0, 0, OP_mds_target_heartbeat, &q, &p), 0);
			b->read_ms[i] = p.read_ms;
		}
		fiber_sleep_us(f->params.heartbeat_ms * 1000ull);
	}
	op_fini(&b->own.op);
	b->f = NULL;
}

/* Adds a row. Returns the target that has not confirmed it, 0: none. Asserts that the request takes
 * at most in_ms. */
static uint32_t add_row(struct fx *f, uint32_t in_ms)
{
	struct mds_export_set_req in = {.what = EXPORT_ADD, .row = row("10.0.0.0/8", 1)};
	struct mds_export_set_rep out = {0};
	uint64_t began = loop_now_us();
	uint32_t id = 0;
	struct wire_r r;

	assert_int_equal(fx_call(f, OP_mds_export_set, &in, &out), 0);
	assert_in_range(loop_now_us() - began, 0, in_ms * 1000ull);
	assert_true(out.unheard.len == 0 || out.unheard.len == 4);
	wire_r_init(&r, out.unheard.data, out.unheard.len);
	if (out.unheard.len)
		wire_get_u32(&r, &id);
	return id;
}

static void unheard(struct fx *f)
{
	const uint32_t beat_ms = f->params.heartbeat_ms;
	const uint32_t down_ms = f->params.lease_ms + f->params.lease_margin_ms + 2 * beat_ms;
	struct beats *b = calloc(1, sizeof(*b));

	*b = (struct beats){.f = f, .own.m = f->m, .cut_off = 2};
	op_init(&b->own.op, f->m);
	fx_session(f, 1);
	assert_int_equal(fiber_spawn("beats", beat, b), 0);
	/* The request waits for targets that are up; it names one out of contact once that counts
	 * as down. */
	assert_int_equal(add_row(f, down_ms), 2);
	assert_int_equal(b->read_ms[0], f->params.lease_ms);
	assert_int_equal(add_row(f, beat_ms), 2);
	b->cut_off = 0;
	fiber_sleep_us(beat_ms * 3000ull);
	assert_int_equal(add_row(f, 1), 0);
	/* A target that has confirmed the row stops reads by itself when it is out of contact. */
	b->cut_off = 3;
	fiber_sleep_us(down_ms * 1000ull);
	assert_int_equal(add_row(f, beat_ms), 0);
	b->cut_off = 0;
	/* The last reply that the target got counts, whether the target has confirmed it or not. */
	fiber_sleep_us(beat_ms * 3000ull);
	assert_int_equal(set(f, EXPORT_REMOVE, "10.0.0.0/8", 0), 0);
	while (b->read_ms[2] > 0)
		fiber_sleep_us(1000);
	b->cut_off = 3;
	assert_int_equal(add_row(f, down_ms), 3);
	/* No process listens on the target's address. */
	memcpy(strchr(f->m->cluster.targets[2]->addrs, ':'), ":1", 3);
	assert_int_equal(add_row(f, beat_ms), 0);
	b->stop = true;
	while (b->f)
		fiber_sleep_us(1000);
	free(b);
}

TEST(test_servers_that_have_not_heard_are_named, unheard)

/* No other session gets the rights of an ended session until every target refuses that session, or
 * may not serve it any longer. */
static void fenced(struct fx *f)
{
	const uint32_t n = f->m->cluster.n_targets;
	uint64_t began;

	writers(f);
	last_session_ends(f);
	began = loop_now_us();
	f->m->cluster.targets[0]->gone = true; /* but it sends heartbeats */
	for (uint32_t i = 0; i < n; i++) {
		struct mds_target_heartbeat_req q = {.target = i + 1,
						     .uuid = {{100, (uint8_t)i}},
						     .commits = 1,
						     .sessions_gen =
							     i == 0 ? 0 : f->m->sessions.gen};
		struct mds_target_heartbeat_rep p;

		assert_int_equal(fx_call_as(f, 0, 0, 0, OP_mds_target_heartbeat, &q, &p), 0);
		assert_int_equal(p.fence_ms, f->params.client_lease_ms);
	}
	/* One target has not confirmed the end of the session. */
	fiber_sleep_us(f->params.client_lease_ms * 900ull);
	assert_int_equal(f->m->opens.n_opens, 1);
	while (f->m->opens.n_opens > 0)
		fiber_sleep_us(1000);
	assert_in_range(loop_now_us() - began, f->params.client_lease_ms * 1000ull,
			f->params.client_lease_ms * 1500ull);
}

static void test_sessions_are_fenced(void **state)
{
	struct fx *f = fx_create(6);

	(void)state;
	fx_run(f, fenced);
	fx_destroy(f);
}

static void test_a_stop_while_sessions_end(void **state)
{
	struct fx *f = fx_create(5);

	(void)state;
	fx_run(f, ending);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_most_specific_row_counts),
		cmocka_unit_test(test_wrong_rows_are_refused),
		cmocka_unit_test(test_the_table_is_durable),
		cmocka_unit_test(test_what_changes_something_is_refused),
		cmocka_unit_test(test_credentials_are_squashed),
		cmocka_unit_test(test_servers_are_not_believed_everywhere),
		cmocka_unit_test(test_no_row_silences_an_object_server),
		cmocka_unit_test(test_sessions_end_whoever_waits),
		cmocka_unit_test(test_servers_that_have_not_heard_are_named),
		cmocka_unit_test(test_a_stop_while_sessions_end),
		cmocka_unit_test(test_sessions_are_fenced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
