/*
 * Where a client connects, and when it moves. One fiber per lane, the manager: it connects to the
 * best candidate that answers, waits until that connection ends, backs off and begins again. While
 * a better candidate is known than the one in use, it is tried every few seconds, and when it
 * answers the lane moves there:
 *
 *   without a session: new calls go to the new connection, the old one ends when its last
 *   call has (at most DRAIN_MS later).
 *   with one (it moves by the connected hook, and the server ends the old connection): new calls
 *   wait until the old connection is idle, at most QUIET_MS; what is still under way then is
 *   repeated by its caller, as after any reconnect.
 *
 * A candidate that failed, or whose connection broke soon, is avoided for a while: longer each
 * time. A handshake that works proves little where larger messages do not (MTU).
 *
 * Rails: candidates over verbs differ in rank by how near their device is; equal ones are rotated,
 * differently in each client. Lane 0 takes the first that answers, tcp included. Lane i > 0 runs
 * while lane 0 is on verbs, and uses rail i only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/client_impl.h"
#include "common/rt/env.h"

#define BACKOFF_FIRST_US 1000u
/* A connection that lived so long lets the back-off begin anew. */
#define PROVEN_US 1000000u
/* … and its candidate counts as sound. */
#define SOUND_US 10000000u
/* For how long a candidate that failed is avoided, in longest back-offs: 2 s to 15 s. */
#define AVOID_FIRST 4u
#define AVOID_MAX 30u
/* For a candidate when another one is left to try. */
#define QUICK_MS 1000u
#define DRAIN_MS 15000u
#define QUIET_MS 500u
#define LOG_AGAIN_US 60000000u

/* ---- candidates ---- */

static int rank_of(const struct rpc_client *c, const char *addr)
{
	struct transport *t = c->opts.transport;

	return t->ops->rank != NULL ? t->ops->rank(t, addr) : 0;
}

static struct candidate *find(struct rpc_client *c, const char *addr)
{
	for (uint32_t i = 0; i < c->n_candidates; i++)
		if (strcmp(c->candidates[i].addr, addr) == 0)
			return &c->candidates[i];
	return NULL;
}

static void add(struct rpc_client *c, const char *addr, bool told)
{
	int rank = rank_of(c, addr);

	if (rank < 0 || c->n_candidates == CANDIDATES_MAX || find(c, addr) != NULL)
		return;
	struct candidate *k = &c->candidates[c->n_candidates++];
	*k = (struct candidate){ .rank = rank, .told = told };
	snprintf(k->addr, sizeof(k->addr), "%s", addr);
}

static int add_configured(struct rpc_client *c, const char *addr)
{
	struct transport *t = c->opts.transport;
	char list[2 * ADDR_TEXT_SIZE + 2], *save = NULL;

	if (strlen(addr) >= ADDR_TEXT_SIZE)
		return -LE_INVAL;
	if (t->ops->expand == NULL) {
		add(c, addr, false);
		return 0;
	}
	TRY(t->ops->expand(t, addr, ADDR_CONNECT, list, sizeof(list)));
	for (char *a = strtok_r(list, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save))
		add(c, a, false);
	return 0;
}

int lanes_init(struct rpc_client *c, const char *addrs)
{
	char *copy = strdup(addrs), *save = NULL;
	int rc = 0;

	if (copy == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < LANES_MAX; i++) {
		c->lanes[i] = (struct lane){ .c = c, .i = i };
		waitq_init(&c->lanes[i].news);
	}
	for (char *a = strtok_r(copy, " ,\t", &save); a != NULL && rc == 0;
	     a = strtok_r(NULL, " ,\t", &save))
		rc = add_configured(c, a);
	free(copy);
	return rc;
}

/* What it no longer tells goes, unless that is in use. */
static void drop_untold(struct rpc_client *c, const char *addrs, const char *at)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_candidates; i++) {
		const struct candidate *k = &c->candidates[i];
		if (!k->told || strstr(addrs, k->addr) != NULL || strcmp(k->addr, at) == 0)
			c->candidates[n++] = *k;
	}
	c->n_candidates = n;
}

void lanes_told(struct rpc_client *c, const char *addrs, const char *at)
{
	char full[ADDR_LIST_SIZE + CANDIDATES_MAX] = "", copy[ADDR_LIST_SIZE];
	char *save = NULL, one[ADDR_TEXT_SIZE];

	/* Only a transport with addresses of several kinds has a use for them. */
	if (c->opts.transport->ops->rank == NULL)
		return;
	snprintf(copy, sizeof(copy), "%s", addrs);
	for (char *a = strtok_r(copy, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save))
		if (strlen(a) < ADDR_TEXT_SIZE && addr_fill_host(a, at, one) == 0)
			(void)addr_list_add(full, sizeof(full), one);
	drop_untold(c, full, at);
	save = NULL;
	for (char *a = strtok_r(full, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save))
		add(c, a, true);
}

static void failed(const struct rpc_client *c, struct candidate *k)
{
	uint64_t avoid = AVOID_FIRST;

	if (k == NULL)
		return;
	for (uint32_t i = 0; i < k->n_fails && avoid < AVOID_MAX; i++)
		avoid *= 2;
	k->n_fails++;
	if (avoid > AVOID_MAX)
		avoid = AVOID_MAX;
	k->retry_us = loop_deadline_ms(avoid * c->opts.backoff_max_ms);
}

/* ---- the order of preference ---- */

struct order {
	uint32_t n;
	char addrs[CANDIDATES_MAX][ADDR_TEXT_SIZE]; /* a copy: the list changes while we connect */
};

struct sort_key {
	int rank;
	uint32_t turn, i;
};

static int compare_keys(const void *a, const void *b)
{
	const struct sort_key *x = a, *y = b;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/* By rank; the rails of one rank in this client's own rotation, other addresses from the one that
 * worked last. */
static void order_all(const struct lane *lane, struct order *o)
{
	const struct rpc_client *c = lane->c;
	struct sort_key keys[CANDIDATES_MAX];
	uint32_t last = 0;

	o->n = c->n_candidates;
	for (uint32_t i = 0; i < o->n; i++)
		if (strcmp(c->candidates[i].addr, lane->last) == 0)
			last = i;
	for (uint32_t i = 0; i < o->n; i++) {
		bool verbs = addr_is_verbs(c->candidates[i].addr);
		uint32_t same = 0, before = 0;
		for (uint32_t j = 0; j < o->n; j++) {
			same += c->candidates[j].rank == c->candidates[i].rank;
			before += j < i && c->candidates[j].rank == c->candidates[i].rank;
		}
		uint32_t turn = verbs ? (before + c->spread) % same : (i + o->n - last) % o->n;
		keys[i] = (struct sort_key){ c->candidates[i].rank, turn, i };
	}
	qsort(keys, o->n, sizeof(keys[0]), compare_keys);
	for (uint32_t i = 0; i < o->n; i++)
		memcpy(o->addrs[i], c->candidates[keys[i].i].addr, ADDR_TEXT_SIZE);
}

static uint32_t n_rails(const struct rpc_client *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_candidates; i++)
		n += addr_is_verbs(c->candidates[i].addr);
	return n;
}

/* What this lane may use, the best first. */
static void order_of(const struct lane *lane, struct order *o)
{
	order_all(lane, o);
	if (lane->i == 0)
		return;
	if (lane->i < o->n && addr_is_verbs(o->addrs[lane->i])) {
		memcpy(o->addrs[0], o->addrs[lane->i], ADDR_TEXT_SIZE);
		o->n = 1;
	} else {
		o->n = 0;
	}
}

/* How many of the order are better than where the lane is. */
static uint32_t n_better(const struct lane *lane, const struct order *o)
{
	const struct client_conn *cc = lane->conn;
	uint32_t n = 0;

	if (cc == NULL || lane->i > 0 || cc->state == CONN_LEFT)
		return 0;
	while (n < o->n && strcmp(o->addrs[n], cc->addr) != 0) {
		const struct candidate *k = find(lane->c, o->addrs[n]);
		/* Among equals one is as good as another, but rails are shared out. */
		if (k == NULL || (k->rank == cc->rank && !addr_is_verbs(k->addr)))
			break;
		n++;
	}
	return n;
}

/* ---- connecting ---- */

static void log_failure(struct rpc_client *c, const char *addr, int rc)
{
	uint64_t now = loop_now_us();

	/* Two addresses of unknown hosts take turns. */
	if ((!is_hard(rc) && !is_unnamed(rc)) ||
	    ((rc == c->logged_error || is_unnamed(rc)) && now - c->logged_us < LOG_AGAIN_US &&
	     c->logged_error < 0))
		return;
	c->logged_error = rc;
	c->logged_us = now;
	log_warn("cannot use server %s: %s (%s)", addr, status_text(rc), status_name(rc));
}

static int try_one(struct lane *lane, const char *addr, bool last, struct client_conn **ret_cc)
{
	struct rpc_client *c = lane->c;
	struct candidate *k = find(c, addr);
	uint32_t timeout_ms = c->opts.connect_timeout_ms;

	if (k == NULL)
		return -LE_CONNREFUSED;
	if (!last && timeout_ms > QUICK_MS)
		timeout_ms = QUICK_MS;
	lane->trying = true;
	int rc = client_conn_open(lane, k, timeout_ms, ret_cc);
	lane->trying = false;
	if (rc < 0 && rc != -LE_INTR)
		failed(c, find(c, addr));
	if (rc < 0) {
		log_debug("rpc: %s does not answer: %s", addr, status_name(rc));
		log_failure(c, addr, rc);
	}
	if (rc < 0 && lane->i > 0 && !lane->fell && c->lanes[0].conn != NULL) {
		lane->fell = true;
		log_warn("rail %s does not answer: %s", addr, status_text(rc));
	}
	return rc;
}

/* Callers hear of it at once, if it is all there is. */
static bool is_final(const struct rpc_client *c, int rc)
{
	return is_hard(rc) || (rc == -LE_NO_HOST && c->opts.hosts_known && c->stats.connects == 0);
}

/* Those that did not fail lately first, then the others. */
static int connect_any(struct lane *lane, struct client_conn **ret_cc)
{
	struct rpc_client *c = lane->c;
	int rc = -LE_CONFIG, hard = 0;
	uint32_t n_tried = 0, n_final = 0;
	uint64_t now = loop_now_us();
	struct order o;

	order_of(lane, &o);
	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < o.n && !c->closing; i++) {
			const struct candidate *k = find(c, o.addrs[i]);
			if (k == NULL || (k->retry_us > now) != (pass == 1))
				continue;
			rc = try_one(lane, o.addrs[i], ++n_tried == o.n, ret_cc);
			if (rc == 0)
				return 0;
			n_final += is_final(c, rc);
			hard = is_hard(rc) ? rc : hard;
			/* It was just tried: not again in the second pass. */
			o.addrs[i][0] = '\0';
		}
	}
	if (lane->i > 0)
		return rc;
	/* The clearest of what was heard. */
	c->last_error = hard < 0 ? hard : rc;
	c->hard_error = n_final == n_tried && n_tried > 0 ? c->last_error
			: o.n == 0			  ? -LE_CONFIG
							  : 0;
	snprintf(c->stats.peer, sizeof(c->stats.peer), "not connected: %s",
		 o.n == 0 ? "no address for this transport" : status_text(c->last_error));
	if (c->hard_error < 0)
		waitq_wake_all(&c->ready);
	return c->last_error;
}

/* Half of it fixed, half random, so that a thousand clients do not come at once. */
static void back_off(struct lane *lane, uint64_t *backoff_us)
{
	struct rpc_client *c = lane->c;
	uint64_t max = c->opts.backoff_max_ms * 1000ull * (lane->i > 0 ? AVOID_MAX : 1);
	uint64_t us =
		*backoff_us / 2 + env_random_u64(loop_env(loop_self())) % (*backoff_us / 2 + 1);

	*backoff_us = *backoff_us * 2 < max ? *backoff_us * 2 : max;
	if (!c->closing)
		(void)fiber_sleep_us(us);
}

/* ---- a connection is there ---- */

/* Once per fall and once per return; the first move, from where the configuration points to what
 * the server tells, is nothing worth a line. */
static void log_move(struct lane *lane, const struct client_conn *cc, int why)
{
	const char *name = cc->peer.name;

	if (lane->i > 0 && lane->fell) {
		lane->fell = false;
		log_info("%s: rail %s is back", name, cc->addr);
	}
	if (lane->last[0] == '\0' || strcmp(lane->last, cc->addr) == 0)
		return;
	if (cc->rank > lane->last_rank) {
		lane->fell = true;
		log_warn("%s: connected over %s now, %s is lost%s%s", name, cc->addr, lane->last,
			 why < 0 ? ": " : "", why < 0 ? status_text(why) : "");
	} else if (lane->fell && cc->rank < lane->last_rank) {
		lane->fell = false;
		log_info("%s: back on %s, was on %s", name, cc->addr, lane->last);
	} else {
		log_debug("%s: moved to %s from %s", name, cc->addr, lane->last);
	}
}

static void start_lanes(struct rpc_client *c)
{
	uint32_t n = n_rails(c);

	if (n > c->opts.rails_max)
		n = c->opts.rails_max;
	for (uint32_t i = 1; i < n && i < LANES_MAX; i++)
		if (!c->lanes[i].running && !c->closing && lane_start(&c->lanes[i]) < 0)
			return; /* the next connection of lane 0 tries again */
}

/* The lane's connection from now on. */
static int adopt(struct lane *lane, struct client_conn *cc)
{
	struct rpc_client *c = lane->c;

	if (c->closing)
		return -LE_SHUTDOWN;
	log_move(lane, cc, c->last_error);
	memcpy(lane->last, cc->addr, sizeof(lane->last));
	lane->last_rank = cc->rank;
	lane->conn = cc;
	if (lane->i == 0) {
		c->last_error = c->hard_error = 0;
		cc->conn.k->ops->peer_name(cc->conn.k, c->stats.peer, sizeof(c->stats.peer));
	}
	log_debug("rpc: connected to %s (%s)", cc->addr, cc->peer.name);
	int rc = client_conn_start(cc);
	if (rc < 0)
		lane->conn = NULL;
	else if (addr_is_verbs(cc->addr))
		start_lanes(c);
	return rc;
}

void lane_lost(struct lane *lane, struct client_conn *cc)
{
	struct rpc_client *c = lane->c;
	struct candidate *k = find(c, cc->addr);
	uint64_t age = loop_now_us() - cc->since_us;
	bool ours = lane->conn == cc;

	if (k != NULL && !cc->moved && !c->closing) {
		if (age > SOUND_US && cc->conn.why != -LE_TIMEDOUT)
			k->n_fails = 0;
		else if (cc->state != CONN_LEFT)
			failed(c, k);
	}
	if (ours) {
		lane->conn = NULL;
		if (lane->i == 0) {
			snprintf(c->stats.peer, sizeof(c->stats.peer), "not connected: %s",
				 status_text(cc->conn.why));
			if (c->last_error == 0)
				c->last_error = cc->conn.why;
		}
		if (lane->trying)
			fiber_interrupt(lane->manager);
	}
	waitq_wake_all(&lane->news);
}

/* ---- moving ---- */

static void wait_idle(struct lane *lane, struct client_conn *old)
{
	uint64_t until = loop_deadline_ms(QUIET_MS);

	while (old->conn.in_flight > 0 && !old->conn.dead && !lane->c->closing)
		if (waitq_wait(&lane->news, until) < 0)
			break;
}

static int move_to(struct lane *lane, struct client_conn *cc)
{
	struct client_conn *old = lane->conn;

	if (old == NULL)
		return adopt(lane, cc);
	conn_ref(&old->conn);
	old->state = CONN_LEFT;
	old->moved = true;
	if (client_has_session(lane->c))
		wait_idle(lane, old);
	lane->c->stats.moves++;
	int rc = adopt(lane, cc);
	if (rc == 0 && cc->setting_up)
		while (cc->setting_up)
			(void)!waitq_wait(&cc->setup_done, NO_DEADLINE);
	if (old->conn.in_flight == 0)
		client_conn_retire(old);
	else
		conn_watch(&old->conn, DRAIN_MS);
	conn_unref(&old->conn);
	return rc;
}

/* When one that is better may be tried: NO_DEADLINE when there is none. */
static uint64_t better_at(const struct lane *lane)
{
	uint64_t at = NO_DEADLINE;
	struct order o;

	if (lane->conn == NULL || lane->conn->setting_up || lane->c->n_candidates < 2)
		return at;
	order_of(lane, &o);
	for (uint32_t i = 0, n = n_better(lane, &o); i < n; i++) {
		const struct candidate *k = find(lane->c, o.addrs[i]);
		if (k != NULL && k->retry_us < at)
			at = k->retry_us;
	}
	return at;
}

static void try_better(struct lane *lane)
{
	struct client_conn *cc;
	struct order o;

	order_of(lane, &o);
	for (uint32_t i = 0, n = n_better(lane, &o); i < n && !lane->c->closing; i++) {
		const struct candidate *k = find(lane->c, o.addrs[i]);
		if (k == NULL || k->retry_us > loop_now_us())
			continue;
		/* Nobody waits for it: it may take its time, to register memory for one. */
		if (try_one(lane, o.addrs[i], true, &cc) < 0) {
			if (lane->conn == NULL)
				return;
			continue;
		}
		(void)!move_to(lane, cc);
		conn_unref(&cc->conn);
		return;
	}
}

/* Until the lane has lost its connection. */
static void stay(struct lane *lane)
{
	struct rpc_client *c = lane->c;

	while (lane->conn != NULL && !c->closing) {
		uint64_t at = better_at(lane);

		if (at <= loop_now_us())
			try_better(lane);
		else
			(void)!waitq_wait(&lane->news, at);
	}
}

static void manager_main(void *arg)
{
	struct lane *lane = arg;
	struct rpc_client *c = lane->c;
	uint64_t backoff_us = BACKOFF_FIRST_US;

	lane->manager = fiber_self();
	while (!c->closing) {
		struct client_conn *cc = NULL;

		if (connect_any(lane, &cc) == 0) {
			uint64_t since = loop_now_us();
			if (adopt(lane, cc) == 0)
				stay(lane);
			conn_unref(&cc->conn);
			if (loop_now_us() - since > PROVEN_US)
				backoff_us = BACKOFF_FIRST_US;
		}
		back_off(lane, &backoff_us);
	}
	lane->manager = NULL;
	lane->running = false;
	client_leave(c);
}

int lane_start(struct lane *lane)
{
	TRY(fiber_spawn_on(loop_self(), "rpc-lane", manager_main, lane));
	lane->running = true;
	lane->c->n_users++;
	return 0;
}
