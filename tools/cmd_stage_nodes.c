/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat stage in --nodes, --agent: agents do the work; each makes a copy and hands chunks to the
 * others. This file starts them, follows their progress, and adds up the results. Also `leat stage
 * release --nodes` and `leat stage where`.
 */
#include "tools/cmd_stage_nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hostlist.h"
#include "common/rt/fiber.h"
#include "tools/cluster.h"
#include "tools/left.h"
#include "tools/progress.h"
#include "tools/source.h"
#include "tools/stage_verbs.h"

#define NODES_MAX 4096
#define WIDTH     64
#define POLL_US   200000
#define CALL_MS   5000
/* to start, or to release: sent only once, so a busy machine gets longer */
#define START_MS      15000
#define SILENT_MS     30000 /* an agent that is silent for longer counts as failed */
#define DEFAULT_PORT  "7460"
#define PLAIN_SECONDS 10.0

struct agent_view {
	struct nodes *n;
	char addr[256];
	struct rpc_client *rpc;
	uint64_t job; /* the agent's number of it */
	bool ended;
	int code; /* enum leat_stage_code, after the job has ended */
	int reached;
	uint64_t heard_us;
	uint64_t bytes, total, source, peers, files;
	int dropped;
	char state[16], message[512], path[PATH_MAX], id[LEAT_ID_SIZE];
};

struct nodes {
	struct tool *t;
	struct stage_args *a;
	const char *what;
	struct cluster *c;
	struct agent_view *v;
	uint32_t count;
	char *members;
	struct progress line;
	struct leat_stage_result left; /* files that the nodes have not copied */
	double next_json_s;
	bool cancelled;
};

/* ---- the list ---- */

static int add_node(struct nodes *n, const char *text, size_t len)
{
	struct agent_view *more = realloc(n->v, (n->count + 1) * sizeof(*more));

	if (!more)
		return -LE_NOMEM;
	n->v = more;
	struct agent_view *v = &n->v[n->count];
	memset(v, 0, sizeof(*v));
	bool port = memchr(text, ':', len) != NULL;
	if (len + sizeof(DEFAULT_PORT) + 1 > sizeof(v->addr) || n->count == NODES_MAX)
		return -LE_TOO_BIG;
	snprintf(v->addr, sizeof(v->addr), "%.*s%s", (int)len, text, port ? "" : ":" DEFAULT_PORT);
	n->count++;
	return 0;
}

/* Takes a host list as schedulers write it: n[1-4,7], @FILE; or @ for the nodes of the job that
 * this process belongs to. */
static int take_hostlist(struct nodes *n, const char *text)
{
	struct hostlist l;
	char err[256] = "this process belongs to no job of Slurm, PBS or Grid Engine";
	int rc = strcmp(text, "@") == 0 ? hostlist_of_job(&l, err, sizeof(err))
					: hostlist_read(text, &l, err, sizeof(err));

	if (rc < 0) {
		fprintf(stderr, "leat stage: --nodes: %s\n", err);
		return rc;
	}
	for (uint32_t i = 0; rc == 0 && i < l.n; i++)
		rc = add_node(n, l.names[i], strlen(l.names[i]));
	hostlist_fini(&l);
	return rc;
}

static int take_nodes(struct nodes *n, const char *text)
{
	if (strpbrk(text, "[@/")) {
		TRY(take_hostlist(n, text));
		text = "";
	}
	while (*(text += strspn(text, ", "))) {
		size_t len = strcspn(text, ", ");

		TRY(add_node(n, text, len));
		text += len;
	}
	if (n->count == 0)
		return -LE_INVAL;
	size_t space = n->count * (sizeof(n->v[0].addr) + 1), len = 0;
	n->members = calloc(1, space);
	if (!n->members)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < n->count && n->count > 1; i++) {
		len += (size_t)snprintf(n->members + len, space - len, "%s ", n->v[i].addr);
	}
	return 0;
}

/* ---- one agent ---- */

static void lost(struct agent_view *v, int code, const char *why)
{
	v->ended = true;
	v->code = code;
	snprintf(v->state, sizeof(v->state), "FAILED");
	snprintf(v->message, sizeof(v->message), "%s", why);
}

static int call(struct agent_view *v, uint16_t op, const void *req, void *rep, struct rpc_call *ret)
{
	*ret = (struct rpc_call){.op = op,
				 .req = req,
				 .rep = rep,
				 .deadline_us = loop_deadline_ms(v->job ? CALL_MS : START_MS)};
	return rpc_call(v->rpc, ret);
}

static int connect_agent(struct agent_view *v)
{
	struct rpc_client_options o = {.transport = v->n->c->transport,
				       .addrs = v->addr,
				       .name = "leat",
				       .role = ROLE_TOOL,
				       .key = v->n->c->key,
				       .hosts_known = true};

	return rpc_client_create(&o, &v->rpc);
}

static struct peer_stage_req request(const struct agent_view *v, enum peer_verb verb)
{
	const struct stage_args *a = v->n->a;

	return (struct peer_stage_req){
		.verb = (uint8_t)verb,
		.what = bytes_str(v->n->what),
		.to = bytes_str(a->to ? a->to : ""),
		.catalog = bytes_str(a->catalog ? a->catalog : ""),
		.members = bytes_str(v->n->members),
		.self = (uint32_t)(v - v->n->v),
		.order = bytes_str(a->order ? a->order : ""),
		.window = a->window,
		.lease = bytes_str(a->lease ? a->lease : ""),
		.ttl_s = a->ttl_s,
		.max_rate = a->max_rate,
		.capacity = a->capacity,
		.timeout_ms = a->timeout_s * 1000,
		.expect = a->expect,
		.placement = (uint8_t)a->placement,
		.copies = a->copies,
		.job = v->job,
		.flags = (a->readback ? PEER_READBACK : 0u) | (a->evict ? PEER_MAKE_ROOM : 0u) |
			 (a->unpack ? PEER_UNPACK : 0u),
	};
}

/* Repeats the request while the agent does not know yet whether it may serve this node: the
 * metadata server is slow to answer that. Returns like call. */
static int call_admitted(struct agent_view *v, uint16_t op, const void *req, void *rep,
			 struct rpc_call *ret)
{
	uint64_t until = loop_deadline_ms(START_MS);
	int rc = call(v, op, req, rep, ret);

	while (rc == -LE_AGAIN && loop_now_us() < until && !interrupted() &&
	       fiber_sleep_us(POLL_US) == 0) {
		rpc_call_fini(ret);
		rc = call(v, op, req, rep, ret);
	}
	return rc;
}

static void ask(struct agent_view *v, enum peer_verb verb)
{
	struct peer_stage_req req = request(v, verb);
	struct peer_stage_rep rep = {0};
	struct rpc_call c = {0};
	int rc = connect_agent(v);

	if (rc == 0)
		rc = call_admitted(v, OP_peer_stage, &req, &rep, &c);
	if (rc < 0)
		lost(v, LEAT_STAGE_AGENT,
		     rc == -LE_AGAIN ? "the metadata server does not tell the agent whether it may "
				       "serve this node"
				     : status_text(rc));
	else if (rep.code)
		lost(v, (int)rep.code, "");
	if (rc == 0 && rep.message.len)
		snprintf(v->message, sizeof(v->message), "%.*s", (int)rep.message.len,
			 (const char *)rep.message.data);
	v->job = rep.job;
	rpc_call_fini(&c);
	v->heard_us = loop_now_us();
}

static void start_one(void *arg)
{
	if (interrupted())
		lost(arg, LEAT_STAGE_CANCELLED, "interrupted before the request was sent");
	else
		ask(arg, PEER_START);
}

static void release_one(void *arg)
{
	ask(arg, PEER_RELEASE);
}

static void take_status(struct agent_view *v, json_t *o)
{
	const char *state = "", *message = "", *path = "", *id = "";
	json_int_t bytes = 0, total = 0, source = 0, peers = 0, files = 0;
	int running = 0, code = 0, reached = 0, dropped = 0;

	if (json_unpack(o, "{s:s,s:b,s:i,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:i,s:i}", "state", &state,
			"running", &running, "code", &code, "message", &message, "path", &path,
			"id", &id, "bytes", &bytes, "bytes_total", &total, "source", &source,
			"peers", &peers, "files", &files, "reached", &reached, "dropped",
			&dropped) < 0)
		return;
	v->bytes = (uint64_t)bytes;
	v->total = (uint64_t)total;
	v->source = (uint64_t)source;
	v->peers = (uint64_t)peers;
	v->files = (uint64_t)files;
	v->reached = reached;
	v->dropped = dropped;
	v->ended = !running;
	v->code = code;
	snprintf(v->state, sizeof(v->state), "%s", state);
	snprintf(v->message, sizeof(v->message), "%s", message);
	snprintf(v->path, sizeof(v->path), "%s", path);
	snprintf(v->id, sizeof(v->id), "%s", id);
	if (v->ended && code == 0)
		left_from_json(o, &v->n->left);
}

static void look_at_one(void *arg)
{
	struct agent_view *v = arg;
	struct peer_status_req req = {.what = bytes_str(v->n->what), .job = v->job};
	struct peer_status_rep rep = {0};
	struct rpc_call c;
	int rc;

	if (v->ended)
		return;
	rc = call(v, OP_peer_status, &req, &rep, &c);
	if (rc == 0) {
		json_t *o = json_loadb(rep.json.data, rep.json.len, 0, NULL);

		v->heard_us = loop_now_us();
		if (o)
			take_status(v, o);
		json_decref(o);
	} else if (rc == -LE_NOENT) {
		lost(v, LEAT_STAGE_AGENT, "the agent was restarted and has no such request");
	} else if (loop_now_us() > v->heard_us + SILENT_MS * 1000ULL) {
		lost(v, LEAT_STAGE_AGENT, status_text(rc));
	}
	rpc_call_fini(&c);
}

static void cancel_one(void *arg)
{
	struct agent_view *v = arg;
	struct peer_stage_req req = request(v, PEER_CANCEL);
	struct peer_stage_rep rep = {0};
	struct rpc_call c;

	if (v->ended)
		return;
	int rc = call(v, OP_peer_stage, &req, &rep, &c);
	/* The status of the job reports how it ended, unless other requests want it too. */
	if (rc == 0 && rep.code && rep.code != LEAT_STAGE_SOURCE_GONE)
		lost(v, LEAT_STAGE_CANCELLED, "other requests want this copy: the agent continues");
	rpc_call_fini(&c);
}

/* ---- all of them ---- */

static void for_each(struct nodes *n, const char *name, void (*fn)(void *arg))
{
	fiber_parallel(name, fn, n->v, sizeof(n->v[0]), n->count, WIDTH);
}

struct sums {
	uint64_t bytes, total, source, peers, dataset;
	uint32_t ended, ready;
	const struct agent_view *slowest;
	int dropped;
};

static struct sums sum_up(const struct nodes *n)
{
	struct sums s = {0};

	for (uint32_t i = 0; i < n->count; i++) {
		const struct agent_view *v = &n->v[i];

		s.bytes += v->bytes;
		s.total += v->total;
		s.source += v->source;
		s.peers += v->peers;
		s.dropped += v->dropped;
		s.ended += v->ended;
		s.ready += v->ended && v->code == 0;
		if (v->total > s.dataset)
			s.dataset = v->total;
		if (!v->ended && (!s.slowest || v->bytes < s.slowest->bytes))
			s.slowest = v;
	}
	/* Parts: the sum over all nodes is the data set, times the copies of each file. */
	uint32_t copies = n->a->copies < n->count ? n->a->copies : n->count;
	if ((n->a->placement == 1 || n->a->placement == 2) && copies)
		s.dataset = s.total / copies;
	return s;
}

static double amplification(const struct sums *s)
{
	return s->dataset ? (double)s->source / (double)s->dataset : 0;
}

static void show(struct nodes *n)
{
	struct sums s = sum_up(n);
	char text[512], a[SIZE_TEXT], b[SIZE_TEXT];

	if (n->a->progress == PROGRESS_JSON && now_s() >= n->next_json_s) {
		n->next_json_s = now_s() + 1;
		printf("{\"event\":\"progress\",\"bytes\":%" PRIu64 ",\"bytes_total\":%" PRIu64
		       ",\"source\":%" PRIu64 ",\"peers\":%" PRIu64
		       ",\"amplification\":%.3f,\"nodes\":%u,\"ended\":%u,\"slowest\":\"%s\"}\n",
		       s.bytes, s.total, s.source, s.peers, amplification(&s), n->count, s.ended,
		       s.slowest ? s.slowest->addr : "");
		fflush(stdout);
	}
	if (n->a->progress == PROGRESS_JSON || n->a->progress == PROGRESS_NONE)
		return;
	snprintf(text, sizeof(text), "%u of %u nodes, source %s, peers %s, amplification %.2f%s%s",
		 s.ended, n->count, format_size(s.source, a), format_size(s.peers, b),
		 amplification(&s), s.slowest ? ", slowest " : "",
		 s.slowest ? s.slowest->addr : "");
	progress_update(&n->line, s.bytes, s.total, text);
}

static bool all_are_there(const struct nodes *n)
{
	int want = n->a->wait == WAIT_NONE     ? LEAT_STAGE_RESERVED
		   : n->a->wait == WAIT_WINDOW ? LEAT_STAGE_STREAMABLE
					       : INT32_MAX;

	for (uint32_t i = 0; i < n->count; i++)
		if (!n->v[i].ended && n->v[i].reached < want)
			return false;
	return true;
}

static void open_all(struct nodes *n, struct cluster *c, const char *name, void (*fn)(void *arg))
{
	n->c = c;
	for (uint32_t i = 0; i < n->count; i++)
		n->v[i].n = n;
	for_each(n, name, fn);
}

static void close_all(struct nodes *n)
{
	for (uint32_t i = 0; i < n->count; i++)
		if (n->v[i].rpc)
			rpc_client_destroy(n->v[i].rpc);
}

static int watch(struct cluster *c, void *arg)
{
	struct nodes *n = arg;

	open_all(n, c, "start", start_one);
	while (!all_are_there(n)) {
		if (interrupted() && !n->cancelled) {
			n->cancelled = true;
			for_each(n, "cancel", cancel_one);
		}
		for_each(n, "status", look_at_one);
		show(n);
		int rc = fiber_sleep_us(POLL_US);
		(void)rc;
	}
	close_all(n);
	return 0;
}

static int release(struct cluster *c, void *arg)
{
	open_all(arg, c, "release", release_one);
	close_all(arg);
	return 0;
}

/* ---- the end ---- */

static int worst(const struct nodes *n)
{
	for (uint32_t i = 0; i < n->count; i++)
		if (n->v[i].ended && n->v[i].code)
			return n->v[i].code;
	return EXIT_OK;
}

static void print_failed(const struct nodes *n)
{
	for (uint32_t i = 0; i < n->count; i++)
		if (n->v[i].ended && n->v[i].code) {
			fprintf(stderr, "%s: %s: ", n->v[i].addr,
				leat_stage_code_text(n->v[i].code));
			tool_write_text(stderr, n->v[i].message);
			fputc('\n', stderr);
		}
}

static json_t *summary(const struct nodes *n, const struct sums *s)
{
	json_t *nodes = json_array();

	for (uint32_t i = 0; i < n->count; i++) {
		const struct agent_view *v = &n->v[i];

		json_array_append_new(
			nodes,
			json_pack("{s:s,s:s,s:i,s:o,s:o,s:I,s:I,s:I,s:i}", "node", v->addr, "state",
				  v->state, "code", v->code, "message", tool_json_text(v->message),
				  "path", tool_json_text(v->path), "bytes", (json_int_t)v->bytes,
				  "source", (json_int_t)v->source, "peers", (json_int_t)v->peers,
				  "dropped", v->dropped));
	}
	json_t *o = json_pack("{s:s,s:I,s:I,s:I,s:f,s:i,s:f,s:o}", "id", n->v[0].id, "bytes",
			      (json_int_t)s->dataset, "source", (json_int_t)s->source, "peers",
			      (json_int_t)s->peers, "amplification", amplification(s), "ready",
			      (int)s->ready, "seconds", now_s() - n->line.start_s, "nodes", nodes);
	if (o)
		left_to_json(o, &n->left);
	return o;
}

static int finish(struct nodes *n)
{
	struct sums s = sum_up(n);
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
	int code = n->cancelled ? EXIT_INTERRUPTED : worst(n);

	progress_finish(&n->line, code == EXIT_OK ? s.total : 0);
	memcpy(n->a->id, n->v[0].id, sizeof(n->a->id));
	if (n->t->json && code == EXIT_OK) {
		code = tool_print_json(summary(n, &s));
		return code == EXIT_OK ? left_status(&n->left, n->a->skip) : code;
	}
	print_failed(n);
	if (code != EXIT_OK)
		return tool_error(n->t, code, "Run the same command again to continue.",
				  "%u of %u nodes are ready: %s", s.ready, n->count,
				  leat_stage_code_text(code));
	printf("%s: %u of %u nodes, %s each, %.2f s; source %s, peers %s, amplification %.2f\n",
	       s.ready == n->count ? n->v[0].state : "goes on", s.ready, n->count,
	       format_size(s.dataset, a), now_s() - n->line.start_s, format_size(s.source, b),
	       format_size(s.peers, c), amplification(&s));
	if (n->count == 1 && n->v[0].ended)
		puts(n->v[0].path);
	left_print(&n->left, n->a->skip);
	fflush(stdout);
	return left_status(&n->left, n->a->skip);
}

static int prepare(struct nodes *n)
{
	int rc = take_nodes(n, n->a->nodes ? n->a->nodes : n->a->agent);

	return rc < 0 ? tool_usage(n->t, "--nodes: %s", status_text(rc)) : tool_load_conf(n->t);
}

int stage_cmd_nodes(struct tool *t, struct stage_args *a, const char *what)
{
	static struct nodes n;
	n = (struct nodes){.t = t, .a = a, .what = what};
	int code = prepare(&n);

	if (code == EXIT_OK) {
		catch_interrupts();
		progress_init(&n.line, "staging");
		if (a->progress == PROGRESS_PLAIN)
			n.line.tty = false;
		code = cluster_run(t, UINT32_MAX, watch, &n);
		if (code == EXIT_OK)
			code = finish(&n);
	}
	free(n.members);
	free(n.v);
	return code;
}

/* Ignores nodes that had no lease, unless none had one. */
static int finish_release(struct nodes *n)
{
	uint32_t n_held = 0;

	for (uint32_t i = 0; i < n->count; i++) {
		struct agent_view *v = &n->v[i];

		n_held += v->code == 0;
		if (v->code == LEAT_STAGE_SOURCE_GONE)
			v->code = 0;
	}
	print_failed(n);
	if (worst(n) != EXIT_OK)
		return tool_error(n->t, worst(n), NULL, "job %s: not released on all nodes",
				  n->a->lease);
	return n_held > 0 ? EXIT_OK
			  : tool_error(n->t, EXIT_MISSING, NULL,
				       "job %s has no lease on these copies", n->a->lease);
}

int stage_nodes_release(struct tool *t, struct stage_args *a, const char *what)
{
	struct nodes n = {.t = t, .a = a, .what = what};
	int code = prepare(&n);

	if (code == EXIT_OK)
		code = cluster_run(t, UINT32_MAX, release, &n);
	if (code == EXIT_OK)
		code = finish_release(&n);
	free(n.members);
	free(n.v);
	return code;
}

/* ---- where ---- */

struct where {
	struct tool *t;
	const char *what;
	json_t *nodes;
};

/* Copies the text of another machine, bounded, without control characters that a terminal would
 * execute. */
static json_t *text_json(struct bytes b)
{
	char text[512];
	uint32_t n = b.len < sizeof(text) ? b.len : sizeof(text) - 1;

	memcpy(text, n ? b.data : "", n);
	for (uint32_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 127)
			text[i] = '?';
	text[n] = 0;
	return tool_json_text(text);
}

static int take_rows(struct where *w, struct bytes rows)
{
	struct wire_r r;

	wire_r_init(&r, rows.data, rows.len);
	while (!wire_r_end(&r)) {
		struct residency_node n = {0};

		wire_get_residency_node(&r, &n);
		if (r.status < 0)
			break;
		json_array_append_new(w->nodes,
				      json_pack("{s:o,s:o,s:o,s:o,s:s,s:I,s:I,s:f}", "node",
						text_json(n.node), "addr", text_json(n.addrs), "id",
						text_json(n.id), "name", text_json(n.name), "state",
						leat_stage_state_text(n.state), "bytes",
						(json_int_t)n.bytes, "bytes_verified",
						(json_int_t)n.done, "age", n.age_ms / 1000.0));
	}
	return r.status;
}

static int ask_where(struct cluster *c, void *arg)
{
	struct where *w = arg;
	struct mds_residency_get_req req = {.what = bytes_str(w->what)};
	int rc = 0;

	do {
		struct mds_residency_get_rep rep = {0};
		struct rpc_call rc_call;

		rc = cluster_call(c, OP_mds_residency_get, &req, &rep, &rc_call);
		uint32_t next = rc == 0 ? rep.next : 0;
		if (rc == 0)
			rc = take_rows(w, rep.rows);
		rpc_call_fini(&rc_call);
		req.from = next;
	} while (rc == 0 && req.from != 0);
	return rc;
}

static void print_where(json_t *nodes)
{
	json_t *o;
	size_t i;

	printf("%-20s %-10s %5s  %-24s %s\n", "NODE", "STATE", "DONE", "DATA SET", "ADDRESS");
	json_array_foreach(nodes, i, o)
	{
		double bytes = (double)json_integer_value(json_object_get(o, "bytes"));
		double done = (double)json_integer_value(json_object_get(o, "bytes_verified"));
		const char *name = json_string_value(json_object_get(o, "name"));

		printf("%-20s %-10s %4.0f%%  %-24.24s %s\n",
		       json_string_value(json_object_get(o, "node")),
		       json_string_value(json_object_get(o, "state")),
		       bytes > 0 ? 100 * done / bytes : 100,
		       *name ? name : json_string_value(json_object_get(o, "id")),
		       json_string_value(json_object_get(o, "addr")));
	}
}

int stage_where_count(struct tool *t, const char *what, uint32_t *ret_ready, uint32_t *ret_busy)
{
	struct where w = {.t = t, .what = what, .nodes = json_array()};
	int code = cluster_run(t, 10000, ask_where, &w);
	json_t *o;
	size_t i;

	*ret_ready = *ret_busy = 0;
	json_array_foreach(w.nodes, i, o)
	{
		const char *state = json_string_value(json_object_get(o, "state"));
		bool ready = strcmp(state, "READY") == 0 || strcmp(state, "STALE") == 0;
		*ret_ready += ready;
		*ret_busy += !ready;
	}
	json_decref(w.nodes);
	return code;
}

/* Exit status 0: a node has it READY; 3: none. */
int stage_cmd_where(struct tool *t, struct stage_args *a)
{
	struct where w = {.t = t, .what = a->what ? a->what : "", .nodes = json_array()};
	int code = tool_load_conf(t), ready = 0;
	json_t *o;
	size_t i;

	if (code == EXIT_OK)
		code = cluster_run(t, 10000, ask_where, &w);
	if (code != EXIT_OK) {
		json_decref(w.nodes);
		return code;
	}
	json_array_foreach(w.nodes, i, o)
	{
		const char *state = json_string_value(json_object_get(o, "state"));
		ready += strcmp(state, "READY") == 0;
	}
	if (t->json) {
		tool_print_json(json_pack("{s:o}", "nodes", w.nodes));
	} else {
		print_where(w.nodes);
		json_decref(w.nodes);
	}
	return ready || !a->what ? EXIT_OK : EXIT_NOT_READY;
}
