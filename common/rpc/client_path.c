/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a client connects, and when it moves. One fiber per path, the manager, connects to the best
 * candidate that accepts, waits until that connection ends, backs off and starts again. While there
 * is a better candidate than the one in use, the manager tries it every few seconds, and moves the
 * path there once it accepts:
 *
 *    without a session: new calls use the new connection, the old one ends with its last call
 *    (at most DRAIN_MS later).
 *    with one (the connected hook transfers it, and the server ends the old connection): new calls
 *    wait until the old connection is idle, at most QUIET_MS; calls still in flight then are
 *    repeated by their callers, as after any reconnect.
 *
 * A candidate that failed, or whose connection broke soon, is avoided for a time that doubles with
 * each failure. A completed handshake proves little where larger messages fail (MTU).
 *
 * Rails: the rank of a verbs candidate follows from the distance of its device; candidates of equal
 * rank are rotated, differently in each client. Path 0 takes the first that accepts, tcp included.
 * Path i > 0 runs while path 0 is on verbs, and uses rail i only.
 */
#include "common/rpc/client_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/client_conn.h"
#include "common/rt/env.h"

#define BACKOFF_FIRST_US 1000u
/* A connection that lived so long resets the back-off. */
#define PROVEN_US 1000000u
/* A connection that lived so long clears the failures of its candidate. */
#define SOUND_US 10000000u
/* How long a failed candidate is avoided, in units of backoff_max_ms: 2 s to 15 s by default. */
#define AVOID_FIRST 4u
#define AVOID_MAX 30u
/* Timeout for a candidate if others are left to try. */
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

static void add(struct rpc_client *c, const char *addr, bool announced)
{
	int rank = rank_of(c, addr);

	if (rank < 0 || c->n_candidates == CANDIDATES_MAX || find(c, addr) != NULL)
		return;
	struct candidate *k = &c->candidates[c->n_candidates++];
	*k = (struct candidate){ .rank = rank, .announced = announced };
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

/* Removes the candidates that the server no longer sends, except the one in use. */
static void drop_unannounced(struct rpc_client *c, const char *addrs, const char *at)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_candidates; i++) {
		const struct candidate *k = &c->candidates[i];
		if (!k->announced || addr_list_has(addrs, k->addr) || strcmp(k->addr, at) == 0)
			c->candidates[n++] = *k;
	}
	c->n_candidates = n;
}

static void paths_reported(struct rpc_client *c, const char *addrs, const char *at)
{
	char full[ADDR_LIST_SIZE + CANDIDATES_MAX] = "", copy[ADDR_LIST_SIZE];
	char *save = NULL, one[ADDR_TEXT_SIZE];

	/* Only a transport that ranks addresses can use them. */
	if (c->opts.transport->ops->rank == NULL)
		return;
	snprintf(copy, sizeof(copy), "%s", addrs);
	for (char *a = strtok_r(copy, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save))
		if (strlen(a) < ADDR_TEXT_SIZE && addr_fill_host(a, at, one) == 0)
			(void)addr_list_add(full, sizeof(full), one);
	drop_unannounced(c, full, at);
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
	char addrs[CANDIDATES_MAX][ADDR_TEXT_SIZE]; /* a copy: candidates change during connects */
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

/* Sorts by rank. Rails of one rank come in this client's rotation, other addresses from the one
 * used last. */
static void order_all(const struct path *path, struct order *o)
{
	const struct rpc_client *c = path->c;
	struct sort_key keys[CANDIDATES_MAX];
	uint32_t last = 0;

	o->n = c->n_candidates;
	for (uint32_t i = 0; i < o->n; i++)
		if (strcmp(c->candidates[i].addr, path->last) == 0)
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

/* The candidates that this path may use, best first. */
static void order_of(const struct path *path, struct order *o)
{
	order_all(path, o);
	if (path->i == 0)
		return;
	if (path->i < o->n && addr_is_verbs(o->addrs[path->i])) {
		memcpy(o->addrs[0], o->addrs[path->i], ADDR_TEXT_SIZE);
		o->n = 1;
	} else {
		o->n = 0;
	}
}

/* How many of the order are better than the present connection. */
static uint32_t n_better(const struct path *path, const struct order *o)
{
	const struct client_conn *cc = path->conn;
	uint32_t n = 0;

	if (cc == NULL || path->i > 0 || cc->state == CONN_LEFT)
		return 0;
	while (n < o->n && strcmp(o->addrs[n], cc->addr) != 0) {
		const struct candidate *k = find(path->c, o->addrs[n]);
		/* Addresses of equal rank are equally good, except rails, which clients share
		 * evenly. */
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

	if (is_unnamed(rc) && c->away.server != NULL)
		return; /* client_unreachable.c logs it */
	/* Rate-limits all unknown hosts together: two such addresses would alternate. */
	if ((!is_hard(rc) && !is_unnamed(rc)) ||
	    ((rc == c->logged_error || is_unnamed(rc)) && now - c->logged_us < LOG_AGAIN_US &&
	     c->logged_error < 0))
		return;
	c->logged_error = rc;
	c->logged_us = now;
	log_warn("cannot use server %s: %s (%s)", addr, status_text(rc), status_name(rc));
}

static int try_one(struct path *path, const char *addr, bool last, struct client_conn **ret_cc)
{
	struct rpc_client *c = path->c;
	struct candidate *k = find(c, addr);
	uint32_t timeout_ms = c->opts.connect_timeout_ms;

	if (k == NULL)
		return -LE_CONNREFUSED;
	if (!last && timeout_ms > QUICK_MS)
		timeout_ms = QUICK_MS;
	path->trying = true;
	int rc = client_conn_open(path, k, timeout_ms, ret_cc);
	path->trying = false;
	if (rc < 0 && rc != -LE_INTR)
		failed(c, find(c, addr));
	if (rc < 0) {
		log_debug("rpc: %s does not answer: %s", addr, status_name(rc));
		log_failure(c, addr, rc);
	}
	if (rc < 0 && path->i > 0 && !path->fell && c->paths[0].conn != NULL) {
		path->fell = true;
		log_warn("rail %s does not answer: %s", addr, status_text(rc));
	}
	return rc;
}

/* True for an error that callers get immediately, provided that every candidate ends with one. */
static bool is_final(const struct rpc_client *c, int rc)
{
	return is_hard(rc) || (rc == -LE_NO_HOST && c->opts.hosts_known && c->stats.connects == 0);
}

/* Tries candidates that did not fail recently first, then the others. */
static int connect_any(struct path *path, struct client_conn **ret_cc)
{
	struct rpc_client *c = path->c;
	int rc = -LE_CONFIG, hard = 0;
	uint32_t n_tried = 0, n_final = 0;
	uint64_t now = loop_now_us();
	struct order o;

	order_of(path, &o);
	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < o.n && !c->closing; i++) {
			const struct candidate *k = find(c, o.addrs[i]);
			if (k == NULL || (k->retry_us > now) != (pass == 1))
				continue;
			rc = try_one(path, o.addrs[i], ++n_tried == o.n, ret_cc);
			if (rc == 0)
				return 0;
			n_final += is_final(c, rc);
			hard = is_hard(rc) ? rc : hard;
			/* It was just tried: skip it in the second pass. */
			o.addrs[i][0] = '\0';
		}
	}
	if (path->i > 0)
		return rc;
	/* An error that needs a change of configuration is the most useful one. */
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

/* Sleeps half of the back-off plus a random part of the other half, to spread the reconnects of a
 * thousand clients. */
static void back_off(struct path *path, uint64_t *backoff_us)
{
	struct rpc_client *c = path->c;
	uint64_t max = c->opts.backoff_max_ms * 1000ull * (path->i > 0 ? AVOID_MAX : 1);
	uint64_t us =
		*backoff_us / 2 + env_random_u64(loop_env(loop_self())) % (*backoff_us / 2 + 1);

	*backoff_us = *backoff_us * 2 < max ? *backoff_us * 2 : max;
	if (!c->closing)
		(void)fiber_sleep_us(us);
}

/* ---- adopting a connection ---- */

/* One line per loss of rank and one per return. The first move, from the configured address to one
 * that the server sent, is only a debug line. */
static void log_move(struct path *path, const struct client_conn *cc, int why)
{
	const char *name = cc->peer.name;

	if (path->i > 0 && path->fell) {
		path->fell = false;
		log_info("%s: rail %s is back", name, cc->addr);
	}
	if (path->last[0] == '\0' || strcmp(path->last, cc->addr) == 0)
		return;
	if (cc->rank > path->last_rank) {
		path->fell = true;
		log_warn("%s: connected over %s now, %s is lost%s%s", name, cc->addr, path->last,
			 why < 0 ? ": " : "", why < 0 ? status_text(why) : "");
	} else if (path->fell && cc->rank < path->last_rank) {
		path->fell = false;
		log_info("%s: back on %s, was on %s", name, cc->addr, path->last);
	} else {
		log_debug("%s: moved to %s from %s", name, cc->addr, path->last);
	}
}

static void start_paths(struct rpc_client *c)
{
	uint32_t n = n_rails(c);

	if (n > c->opts.rails_max)
		n = c->opts.rails_max;
	for (uint32_t i = 1; i < n && i < RPC_PATHS_MAX; i++)
		if (!c->paths[i].running && !c->closing && path_start(&c->paths[i]) < 0)
			return; /* the next connection of path 0 tries again */
}

/* Makes cc the connection of the path. */
static int adopt(struct path *path, struct client_conn *cc)
{
	struct rpc_client *c = path->c;

	if (c->closing)
		return -LE_SHUTDOWN;
	log_move(path, cc, c->last_error);
	memcpy(path->last, cc->addr, sizeof(path->last));
	path->last_rank = cc->rank;
	path->conn = cc;
	if (path->i == 0) {
		c->last_error = c->hard_error = 0;
		cc->conn.k->ops->peer_name(cc->conn.k, c->stats.peer, sizeof(c->stats.peer));
	}
	log_debug("rpc: connected to %s (%s)", cc->addr, cc->peer.name);
	int rc = client_conn_start(cc);
	if (rc < 0)
		path->conn = NULL;
	else if (addr_is_verbs(cc->addr))
		start_paths(c);
	return rc;
}

static void path_lost(struct path *path, struct client_conn *cc)
{
	struct rpc_client *c = path->c;
	struct candidate *k = find(c, cc->addr);
	uint64_t age = loop_now_us() - cc->since_us;
	bool ours = path->conn == cc;

	if (k != NULL && !cc->moved && !c->closing) {
		if (age > SOUND_US && cc->conn.why != -LE_TIMEDOUT)
			k->n_fails = 0;
		else if (cc->state != CONN_LEFT)
			failed(c, k);
	}
	if (ours) {
		path->conn = NULL;
		if (path->i == 0) {
			snprintf(c->stats.peer, sizeof(c->stats.peer), "not connected: %s",
				 status_text(cc->conn.why));
			if (c->last_error == 0)
				c->last_error = cc->conn.why;
		}
		if (path->trying)
			fiber_interrupt(path->manager);
	}
	waitq_wake_all(&path->news);
}

/* ---- moving ---- */

static void wait_idle(struct path *path, struct client_conn *old)
{
	uint64_t until = loop_deadline_ms(QUIET_MS);

	while (old->conn.in_flight > 0 && !old->conn.dead && !path->c->closing)
		if (waitq_wait(&path->news, until) < 0)
			break;
}

static int move_to(struct path *path, struct client_conn *cc)
{
	struct client_conn *old = path->conn;

	if (old == NULL)
		return adopt(path, cc);
	conn_ref(&old->conn);
	old->state = CONN_LEFT;
	old->moved = true;
	if (client_has_session(path->c))
		wait_idle(path, old);
	path->c->stats.moves++;
	int rc = adopt(path, cc);
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

/* When the next better candidate may be tried; NO_DEADLINE: there is none. */
static uint64_t better_at(const struct path *path)
{
	uint64_t at = NO_DEADLINE;
	struct order o;

	if (path->conn == NULL || path->conn->setting_up || path->c->n_candidates < 2)
		return at;
	order_of(path, &o);
	for (uint32_t i = 0, n = n_better(path, &o); i < n; i++) {
		const struct candidate *k = find(path->c, o.addrs[i]);
		if (k != NULL && k->retry_us < at)
			at = k->retry_us;
	}
	return at;
}

static void try_better(struct path *path)
{
	struct client_conn *cc;
	struct order o;

	order_of(path, &o);
	for (uint32_t i = 0, n = n_better(path, &o); i < n && !path->c->closing; i++) {
		const struct candidate *k = find(path->c, o.addrs[i]);
		if (k == NULL || k->retry_us > loop_now_us())
			continue;
		/* No call waits for it, so it gets the full timeout (it may have to register
		 * memory). */
		if (try_one(path, o.addrs[i], true, &cc) < 0) {
			if (path->conn == NULL)
				return;
			continue;
		}
		(void)!move_to(path, cc);
		conn_unref(&cc->conn);
		return;
	}
}

/* Returns when the path has lost its connection. */
static void stay(struct path *path)
{
	struct rpc_client *c = path->c;

	while (path->conn != NULL && !c->closing) {
		uint64_t at = better_at(path);

		if (at <= loop_now_us())
			try_better(path);
		else
			(void)!waitq_wait(&path->news, at);
	}
}

static void manager_main(void *arg)
{
	struct path *path = arg;
	struct rpc_client *c = path->c;
	uint64_t backoff_us = BACKOFF_FIRST_US;

	path->manager = fiber_self();
	while (!c->closing) {
		struct client_conn *cc = NULL;

		if (connect_any(path, &cc) == 0) {
			uint64_t since = loop_now_us();
			if (adopt(path, cc) == 0)
				stay(path);
			conn_unref(&cc->conn);
			if (loop_now_us() - since > PROVEN_US)
				backoff_us = BACKOFF_FIRST_US;
		}
		back_off(path, &backoff_us);
	}
	path->manager = NULL;
	path->running = false;
	client_leave(c);
}

int path_start(struct path *path)
{
	TRY(fiber_spawn_on(loop_self(), "rpc-lane", manager_main, path));
	path->running = true;
	path->c->n_users++;
	return 0;
}

static const struct path_ops path_ops = {.announced = paths_reported, .lost = path_lost};

int paths_init(struct rpc_client *c, const char *addrs)
{
	char *copy = strdup(addrs), *save = NULL;
	int rc = 0;

	if (copy == NULL)
		return -LE_NOMEM;
	c->path_ops = &path_ops;
	for (uint32_t i = 0; i < RPC_PATHS_MAX; i++) {
		c->paths[i] = (struct path){ .c = c, .i = i };
		waitq_init(&c->paths[i].news);
	}
	for (char *a = strtok_r(copy, " ,\t", &save); a != NULL && rc == 0;
	     a = strtok_r(NULL, " ,\t", &save))
		rc = add_configured(c, a);
	free(copy);
	return rc;
}
