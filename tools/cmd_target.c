/* leat target: targets come and go: what is on them moves first, online, and may be interrupted. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/loop.h"
#include "tools/cluster.h"

#define POLL_US 300000u
#define CALL_MS 10000u
#define GONE_S  60.0 /* a metadata server that is away so long will not come back by itself */
#define QUIET_S 30.0

struct target_options {
	uint32_t what; /* enum target_admin, 0: list */
	uint32_t id;
	bool wait;
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

	TRY(cluster_fetch(c, FETCH_MDS_STATUS));
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

/* What `leat target` refuses, in words that help: 0 when the status is not one of these. */
static int refused(struct cluster *c, const struct target_options *o, int status)
{
	const struct tool *t = c->tool;

	switch (status) {
	case -LE_NO_TARGET:
		return tool_error(t, EXIT_MISSING, "`leat target list` shows them.",
				  "there is no target %u, or it was removed", o->id);
	case -LE_BUSY:
		return tool_error(t, EXIT_FAILED, "First `leat target drain` it.",
				  "target %u still has copies", o->id);
	case -LE_NODEV:
		return tool_error(t, EXIT_FAILED,
				  "Copies lie on different hosts: add a target, or bring back "
				  "those that are down (`leat target list`).",
				  "without target %u there are too few for the copies", o->id);
	case -LE_NOSPC:
		return tool_error(t, EXIT_NO_SPACE, "Add a target, or remove data.",
				  "what is on target %u has no room on the others", o->id);
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

/* The metadata server may be restarted meanwhile: it goes on where it was. */
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
		 quiet_s > QUIET_S ? "; nothing has moved for long: are enough targets up, with "
				     "room? (leat status)"
				   : "");
	progress_note(p, total - left, total, text);
}

/* Asks until nothing is left; who stops asking ends a rebalance, not a drain. */
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
						     ? "It goes on without this command; `leat "
						       "target undrain` ends it."
						     : "The same command goes on where it stopped.",
					     "interrupted, %u copies of chains left", left);
			return 0;
		}
		TRY(fiber_sleep_us(POLL_US));
	}
	progress_finish(&p, 0);
	return 0;
}

static int change(struct cluster *c, void *arg)
{
	struct target_options *o = arg;
	uint32_t left = 0;

	if (o->what == 0)
		return list(c, o);
	TRY(o->wait ? follow(c, o, &left) : ask(c, o, &left));
	if (o->code != EXIT_OK)
		return 0;
	if (c->tool->json)
		o->code = tool_print_json(json_pack("{s:i}", "left", (int)left));
	else if (o->wait)
		puts(o->what == TARGET_ADMIN_DRAIN ? "drained: nothing is left on it" : "balanced");
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
};

static int run(struct tool *t, int argc, char **argv)
{
	struct target_options o = {0};
	uint64_t id = 0;
	size_t v = 0;
	int code;

	while (argc > 1 && v < ARRAY_SIZE(verbs) && strcmp(argv[1], verbs[v].name) != 0)
		v++;
	if (argc < 2 || v == ARRAY_SIZE(verbs))
		return tool_usage(t, "list, drain, undrain, remove, add or rebalance?");
	if (argc != (verbs[v].needs_id ? 3 : 2))
		return tool_usage(t, "%s: %s", verbs[v].name,
				  verbs[v].needs_id ? "which target?" : "too many arguments");
	if (verbs[v].needs_id && !parse_number_arg(t, "target", argv[2], TARGETS_MAX, &id))
		return EXIT_USAGE;
	o = (struct target_options){verbs[v].what, (uint32_t)id, verbs[v].wait, EXIT_OK};
	code = tool_load_conf(t);
	if (o.wait)
		catch_interrupts();
	if (code == EXIT_OK)
		code = cluster_run(t, CALL_MS, change, &o);
	return code == EXIT_OK ? o.code : code;
}

const struct command command_target = {
	.name = "target",
	.summary = "targets: list, drain, remove, rebalance",
	.usage =
		"usage: leat target list\n"
		"       leat target drain|undrain|remove|add ID\n"
		"       leat target rebalance\n"
		"A target joins by itself when its leat-ossd is started, and leaves in two steps:\n"
		"  drain      moves its copies to others, which takes a while and stops nothing;\n"
		"             interrupted it goes on by itself, undrain ends it\n"
		"  remove     ends its membership: when it is in no chain any more\n"
		"  add        takes a removed one back, empty\n"
		"  rebalance  moves copies to targets that have few; interrupted it ends\n"
		"Examples:\n"
		"  leat target drain 3 && leat target remove 3\n"
		"  leat target list --json\n",
	.run = run,
};
