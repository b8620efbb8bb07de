/* SPDX-License-Identifier: Apache-2.0 */
/* leat target: adds and removes targets online. Data are moved from a target before it is removed;
 * the command may be interrupted. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/loop.h"
#include "tools/cluster.h"
#include "tools/progress.h"
#include "tools/target_lost.h"

#define POLL_US 300000u
#define CALL_MS 10000u
#define GONE_S  60.0 /* how long the command waits for a metadata server that does not answer */
#define QUIET_S 30.0

struct target_options {
	uint32_t what; /* enum target_admin, 0: list */
	uint32_t id;
	bool wait;
	bool all; /* list: also those that were removed */
	bool lost; /* remove: the targets of `lose` */
	struct lose_options lose;
	int code;
};

static const json_t *status_of(const struct cluster *c, uint32_t id)
{
	const json_t *all = json_object_get(c->mds_status, "targets");
	const json_t *t = NULL;
	size_t i;

	json_array_foreach(all, i,
			   t) if (json_integer_value(json_object_get(t, "id")) == id) return t;
	return NULL;
}

static void print_target(const struct target_view *v, const char *service, json_int_t chains)
{
	printf("%-7u %-7s %-9s %6" JSON_INTEGER_FORMAT "  %-21s %s\n", v->id,
	       target_state_name(v->state), service, chains, v->addrs, v->host);
}

static int list(struct cluster *c, struct target_options *o)
{
	json_t *all = json_array();

	TRY(cluster_fetch(c, FETCH_MDS_STATUS | (o->all ? FETCH_REMOVED : 0)));
	if (!c->tool->json)
		printf("TARGET  STATE   SERVICE   CHAINS  %-21s HOST\n", "ADDRESS");
	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target_view *v = &c->targets[i];
		const json_t *t = status_of(c, v->id);
		json_int_t chains = json_integer_value(json_object_get(t, "chains"));

		json_array_append_new(all,
				      json_pack("{s:i,s:s,s:s,s:I,s:s,s:s}", "id", (int)v->id,
						"state", target_state_name(v->state), "service",
						target_service_name(v->flags), "chains", chains,
						"addrs", v->addrs, "host", v->host));
		if (!c->tool->json)
			print_target(v, target_service_name(v->flags), chains);
	}
	if (c->tool->json)
		o->code = tool_print_json(json_pack("{s:O}", "targets", all));
	json_decref(all);
	return 0;
}

/* Prints what `leat target` refuses, with the next step. Returns 0 if the status is none of
 * these. */
static int refused(struct cluster *c, const struct target_options *o, int status)
{
	const struct tool *t = c->tool;

	switch (status) {
	case -LE_NO_TARGET:
		return tool_error(t, EXIT_MISSING, "`leat target list` shows the targets.",
				  "target %u does not exist, or was removed", o->id);
	case -LE_BUSY:
		return tool_error(t, EXIT_FAILED,
				  "Run `leat target drain` first; if the target is down and will "
				  "not come back, `leat target remove --lost`.",
				  "target %u still has copies", o->id);
	case -LE_REMOVED:
		return tool_error(t, EXIT_FAILED,
				  "`leat target recover` takes the target back with its data; a "
				  "newly formatted store joins under another number.",
				  "target %u was given up as lost", o->id);
	case -LE_STALE:
		return tool_error(t, EXIT_FAILED,
				  "Truncated data would reappear in files. Format a new store "
				  "(leat-ossd format), which joins under another number.",
				  "target %u cannot be taken back: a file was truncated meanwhile",
				  o->id);
	case -LE_EXIST:
		return tool_error(t, EXIT_FAILED,
				  "`leat target list --all` shows the lost targets; `leat target "
				  "add` takes back a removed one.",
				  "target %u was not given up as lost", o->id);
	case -LE_NODEV:
		return tool_error(t, EXIT_FAILED,
				  "Copies lie on different hosts: add a target, or start those "
				  "that are down (`leat target list`).",
				  "too few targets remain for the copies without target %u", o->id);
	case -LE_NOSPC:
		return tool_error(t, EXIT_NO_SPACE, "Add a target, or remove data.",
				  "the data of target %u does not fit on the other targets", o->id);
	default:
		return 0;
	}
}

static int ask(struct cluster *c, struct target_options *o, uint32_t *ret_left)
{
	struct mds_target_admin_req req = {o->what, o->id};
	struct mds_target_admin_rep rep = {0};
	struct rpc_call call;
	int status;

	c->deadline_us = loop_deadline_ms(CALL_MS);
	status = cluster_call(c, OP_mds_target_admin, &req, &rep, &call);
	*ret_left = rep.left;
	rpc_call_fini(&call);
	o->code = status < 0 ? refused(c, o, status) : EXIT_OK;
	return o->code != EXIT_OK ? 0 : status;
}

/* Repeats the request, since the metadata server may be restarted meanwhile. It continues where it
 * was. */
static int ask_on(struct cluster *c, struct target_options *o, uint32_t *ret_left)
{
	double began = now_s();
	int rc;

	do {
		rc = ask(c, o, ret_left);
	} while (rc < 0 && status_retry(rc) != RETRY_NEVER && !interrupted() &&
		 now_s() - began < GONE_S && fiber_sleep_us(POLL_US) == 0);
	return rc;
}

static void show(struct progress *p, uint32_t left, uint32_t total, double quiet_s)
{
	char text[160];

	snprintf(text, sizeof(text), "%u of %u copies of chains left%s", left, total,
		 quiet_s > QUIET_S ? "; no progress for a long time: are enough targets up, with "
				     "free space? (leat status)"
				   : "");
	progress_note(p, total - left, total, text);
}

/* Repeats the request until no copy is left. A rebalance ends when the requests end, a drain
 * does not. */
static int follow(struct cluster *c, struct target_options *o, uint32_t *ret_left)
{
	uint32_t left, total = 0, last = UINT32_MAX;
	double moved_s = now_s();
	struct progress p;

	progress_init(&p, o->what == TARGET_ADMIN_DRAIN ? "draining" : "rebalancing");
	for (;;) {
		TRY(ask_on(c, o, &left));
		*ret_left = left;
		if (left == 0 || o->code != EXIT_OK)
			break;
		total = left > total ? left : total;
		if (left != last)
			moved_s = now_s();
		last = left;
		if (!c->tool->json)
			show(&p, left, total, now_s() - moved_s);
		if (interrupted()) {
			progress_finish(&p, 0);
			o->code = tool_error(c->tool, EXIT_INTERRUPTED,
					     o->what == TARGET_ADMIN_DRAIN
						     ? "The drain continues without this command; "
						       "`leat target undrain` ends it."
						     : "Run the same command again to continue.",
					     "interrupted, %u copies of chains left", left);
			return 0;
		}
		TRY(fiber_sleep_us(POLL_US));
	}
	progress_finish(&p, 0);
	return 0;
}

/* True if the target never held data, like one that was started by mistake. It must be up to report
 * that. */
static bool holds_nothing(const struct cluster *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (c->targets[i].id == id)
			return c->targets[i].state == TARGET_UP && c->targets[i].used == 0;
	return false;
}

static bool is_down(const struct cluster *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (c->targets[i].id == id)
			return c->targets[i].state == TARGET_DOWN;
	return false;
}

/* A target without data is drained first, which is quick: its copies are empty. A target that is
 * down cannot report its data: it is given up if no file has data on any of its chains. */
static int remove_target(struct cluster *c, struct target_options *o, uint32_t *ret_left)
{
	struct target_options drain = *o;

	TRY(cluster_fetch(c, FETCH_MDS_STATUS));
	if (is_down(c, o->id) &&
	    json_integer_value(json_object_get(status_of(c, o->id), "chains")) > 0) {
		o->lose = (struct lose_options){.ids = {o->id}, .n = 1, .accept = LOSE_NO_COPY};
		TRY(target_lose(c, &o->lose));
		o->code = o->lose.code;
		o->lost = true;
		return 0;
	}
	if (holds_nothing(c, o->id) &&
	    json_integer_value(json_object_get(status_of(c, o->id), "chains")) > 0) {
		drain.what = TARGET_ADMIN_DRAIN;
		TRY(follow(c, &drain, ret_left));
		o->code = drain.code;
		if (o->code != EXIT_OK)
			return 0;
	}
	return ask(c, o, ret_left);
}

static int change_once(struct cluster *c, struct target_options *o, uint32_t *ret_left)
{
	if (o->what == TARGET_ADMIN_REMOVE)
		return remove_target(c, o, ret_left);
	return o->wait ? follow(c, o, ret_left) : ask(c, o, ret_left);
}

static int change(struct cluster *c, void *arg)
{
	struct target_options *o = arg;
	uint32_t left = 0;

	if (o->what == 0)
		return list(c, o);
	TRY(change_once(c, o, &left));
	if (o->code != EXIT_OK || o->lost)
		return 0;
	if (c->tool->json)
		o->code = tool_print_json(json_pack("{s:i}", "left", (int)left));
	else if (o->what == TARGET_ADMIN_RECOVER)
		printf("target %u is taken back with the only copies in %u chains; start its "
		       "server, and then run `leat fsck`\n",
		       o->id, left);
	else if (o->wait)
		puts(o->what == TARGET_ADMIN_DRAIN ? "drained: no copy is left on the target"
						   : "balanced");
	return 0;
}

static const struct {
	const char *name;
	uint32_t what;
	bool needs_id, wait;
} verbs[] = {
	{"list", 0, false, false},
	{"drain", TARGET_ADMIN_DRAIN, true, true},
	{"undrain", TARGET_ADMIN_UNDRAIN, true, false},
	{"remove", TARGET_ADMIN_REMOVE, true, false},
	{"add", TARGET_ADMIN_ADD, true, false},
	{"rebalance", TARGET_ADMIN_REBALANCE, false, true},
	{"recover", TARGET_ADMIN_RECOVER, true, false},
};

static int compare_ids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Parses several targets, which are given up together. */
static int parse_lost(struct tool *t, char **argv, struct lose_options *l)
{
	uint64_t id;

	for (; *argv; argv++) {
		if (l->n == LOSE_TARGETS_MAX)
			return tool_usage(t, "more than %u targets", LOSE_TARGETS_MAX);
		if (!parse_number_arg(t, "target", *argv, TARGETS_MAX, &id))
			return EXIT_USAGE;
		l->ids[l->n++] = (uint32_t)id;
	}
	if (l->n == 0)
		return tool_usage(t, "remove --lost: ID is missing");
	qsort(l->ids, l->n, sizeof(l->ids[0]), compare_ids);
	for (uint32_t i = 1; i < l->n; i++)
		if (l->ids[i] == l->ids[i - 1])
			return tool_usage(t, "target %u is named twice", l->ids[i]);
	return EXIT_OK;
}

static int parse_options(struct tool *t, int argc, char **argv, struct target_options *o)
{
	static const struct option longs[] = {{"all", no_argument, NULL, 'a'},
					      {"lost", no_argument, NULL, 'l'},
					      {"accept-loss", no_argument, NULL, 'y'},
					      {"list", required_argument, NULL, 'f'},
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'a')
			o->all = true;
		else if (c == 'l')
			o->lost = true;
		else if (c == 'y')
			o->lose.accept = LOSE_ANY_DATA;
		else if (c == 'f')
			o->lose.list = optarg;
		else
			return tool_usage(t, "wrong options");
	}
	if (!o->lost && (o->lose.accept || o->lose.list))
		return tool_usage(t, "--accept-loss and --list are allowed only with --lost");
	return EXIT_OK;
}

static int parse(struct tool *t, int argc, char **argv, struct target_options *o)
{
	uint64_t id = 0;
	size_t v = 0;

	if (parse_options(t, argc, argv, o) != EXIT_OK)
		return EXIT_USAGE;
	argc -= optind;
	argv += optind;
	while (argc > 0 && v < ARRAY_SIZE(verbs) && strcmp(argv[0], verbs[v].name) != 0)
		v++;
	if (argc < 1 || v == ARRAY_SIZE(verbs))
		return tool_usage(t, "give a verb: list, drain, undrain, remove, add, recover or "
				     "rebalance");
	if (o->all && verbs[v].what != 0)
		return tool_usage(t, "%s: --all is allowed only with list", verbs[v].name);
	if (o->lost && verbs[v].what != TARGET_ADMIN_REMOVE)
		return tool_usage(t, "%s: --lost is allowed only with remove", verbs[v].name);
	o->what = verbs[v].what;
	o->wait = verbs[v].wait;
	if (o->lost)
		return parse_lost(t, argv + 1, &o->lose);
	if (argc != (verbs[v].needs_id ? 2 : 1))
		return tool_usage(t, "%s: %s", verbs[v].name,
				  argc < 2 ? "ID is missing" : "too many arguments");
	if (verbs[v].needs_id && !parse_number_arg(t, "target", argv[1], TARGETS_MAX, &id))
		return EXIT_USAGE;
	o->id = (uint32_t)id;
	return EXIT_OK;
}

static int run(struct tool *t, int argc, char **argv)
{
	struct target_options o = {.code = EXIT_OK};
	int code = parse(t, argc, argv, &o);

	if (code == EXIT_OK)
		code = tool_load_conf(t);
	if (code != EXIT_OK)
		return code;
	if (o.wait || o.what == TARGET_ADMIN_REMOVE)
		catch_interrupts();
	if (o.lost)
		code = cluster_run(t, CALL_MS, target_lose, &o.lose);
	else
		code = cluster_run(t, CALL_MS, change, &o);
	return code != EXIT_OK ? code : o.lost ? o.lose.code : o.code;
}

const struct command command_target = {
	.name = "target",
	.summary = "targets: list, drain, remove, recover, rebalance",
	.usage =
		"usage: leat target list [--all]\n"
		"       leat target drain|undrain|remove|add|recover ID\n"
		"       leat target remove --lost [--accept-loss] [--list FILE] ID [ID...]\n"
		"       leat target rebalance\n"
		"A target joins when its leat-ossd starts for the first time, and leaves in two "
		"steps:\n"
		"  drain      moves its copies to other targets, which takes a while and stops\n"
		"             nothing; a drain continues when the command ends, undrain ends it\n"
		"  remove     ends the membership of a target that is in no chain, or that\n"
		"             holds no data; afterwards only `list --all` shows it\n"
		"  add        takes a removed target back, empty\n"
		"  rebalance  moves copies to targets that have few, until the command ends\n"
		"  remove --lost  gives up targets that are down and will not come back, all of\n"
		"             them together. Data with copies on other targets is copied again\n"
		"             immediately. If files would lose data, the command names them and\n"
		"             changes nothing, unless --accept-loss is given: reading lost data\n"
		"             is an error then. --list: a file for the names of all. Continues\n"
		"             when the command ends\n"
		"  recover    takes back a target that was given up, when its disk has returned:\n"
		"             lost files can be read again. The target drops data that has other\n"
		"             copies or was removed meanwhile. A file that was being written "
		"when\n"
		"             the target was lost may end in zeros\n"
		"Examples:\n"
		"  leat target drain 3 && leat target remove 3\n"
		"  leat target remove --lost 4 7\n"
		"  leat target list --json\n",
	.run = run,
};
