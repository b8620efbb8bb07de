/* SPDX-License-Identifier: Apache-2.0 */
/* leat status: the cluster map, and the status of each server. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/clocks_view.h"
#include "tools/cluster.h"
#include "tools/memory_view.h"
#include "tools/mounts.h"
#include "tools/net_view.h"

struct status_options {
	const char *path; /* a mount, or NULL */
	bool check, net, memory;
	const char *agent; /* address of one, or NULL */
	uint64_t timeout_ms;
	json_t *mount, *mount_net, *agent_status;
	int code; /* of --check */
};

/* A server reports "durability": "none" if it acknowledges data that are not on stable storage. */
static bool is_durable(const json_t *status)
{
	const json_t *store = json_object_get(status, "store");
	const char *word = json_string_value(json_object_get(store ? store : status, "durability"));

	return !word || strcmp(word, "none") != 0;
}

static const char *durability(const struct cluster *c)
{
	bool durable = is_durable(c->mds_status);

	for (uint32_t i = 0; i < c->n_targets; i++)
		durable = durable && is_durable(c->targets[i].status);
	return durable ? "full" : "none";
}

static json_t *target_json(const struct target_view *v)
{
	char uuid[UUID_TEXT_SIZE];
	json_t *o;

	uuid_format(&v->uuid, uuid);
	o = json_pack("{s:i,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:i,s:i,s:s}", "id", (int)v->id, "state",
		      target_state_name(v->state), "service", target_service_name(v->flags), "addr",
		      v->addrs, "host", v->host, "capacity", (json_int_t)v->capacity, "used",
		      (json_int_t)v->used, "free", (json_int_t)v->free, "loop", (int)v->loop,
		      "epoch", (int)v->epoch, "uuid", uuid);
	if (v->status)
		json_object_set(o, "server", v->status);
	else if (v->error)
		json_object_set_new(o, "error", json_string(status_text(v->error)));
	return o;
}

/* Returns the transports that this program can use. */
static json_t *own_transport(const struct cluster *c)
{
	char text[512] = "{}";

	if (c->transport->ops->describe)
		c->transport->ops->describe(c->transport, text, sizeof(text));
	return json_loads(text, 0, NULL);
}

static json_t *view_json(const struct cluster *c, const struct status_options *o)
{
	char uuid[UUID_TEXT_SIZE];
	json_t *targets = json_array(), *mds, *all;

	uuid_format(&c->uuid, uuid);
	for (uint32_t i = 0; i < c->n_targets; i++) {
		json_t *target = target_json(&c->targets[i]);

		clocks_add(c->mds_status, c->targets[i].id, target);
		json_array_append_new(targets, target);
	}
	mds = json_pack("{s:s,s:s}", "state", "up", "addr", c->mds_addr);
	json_object_update_missing(mds, c->mds_status);
	all = json_pack("{s:{s:s,s:s,s:i,s:s,s:i,s:i,s:i,s:I,s:I,s:I},s:o,s:o}", "cluster", "name",
			c->tool->cluster.name, "uuid", uuid, "map_epoch", (int)c->epoch,
			"durability", durability(c), "targets", (int)c->n_targets, "targets_up",
			(int)c->n_targets_up, "chains", (int)c->n_chains, "capacity",
			(json_int_t)c->capacity, "used", (json_int_t)c->used, "free",
			(json_int_t)c->free, "mds", mds, "targets", targets);
	json_object_set_new(all, "transport", own_transport(c));
	if (o->mount)
		json_object_set(all, "mount", o->mount);
	if (o->agent_status)
		json_object_set(all, "agent", o->agent_status);
	if (o->mount && o->mount_net)
		json_object_set(o->mount, "net", o->mount_net);
	return all;
}

/* Prints those members of an object that exist: pairs of key and words, NULL at the end. */
static void print_members(const json_t *object, const char *const words[][2])
{
	char size[SIZE_TEXT];
	const char *separator = "           ";

	for (; (*words)[0]; words++) {
		const json_t *v = json_object_get(object, (*words)[0]);

		if (!v)
			continue;
		fputs(separator, stdout);
		separator = ",";
		if (strstr((*words)[0], "bytes"))
			printf(" %s %s", format_size((uint64_t)json_integer_value(v), size),
			       (*words)[1]);
		else
			printf(" %" JSON_INTEGER_FORMAT " %s", json_integer_value(v), (*words)[1]);
	}
	putchar('\n');
}

static const char *const mds_words[][2] = {
	{"n_sessions", "sessions"},
	{"inodes", "inodes"},
	{"opens", "open files"},
	{"requests", "requests"},
	{"mutations", "mutations"},
	{"removals_waiting", "removals waiting"},
	{NULL, NULL},
};
static const char *const mount_words[][2] = {
	{"read_bytes", "read"},
	{"written_bytes", "written"},
	{"dirty_bytes", "dirty"},
	{"open", "open files"},
	{"checksum_errors", "checksum errors"},
	{"retries", "retries"},
	{"restarts", "restarts"},
	{"upgrades", "upgrades"},
	{"upgrades_failed", "failed ones"},
	{NULL, NULL},
};

static const char *const staged_words[][2] = {
	{"staged_copies", "staged copies"},
	{"staged_refused", "not usable"},
	{"staged_opens_passed", "opens given to the kernel"},
	{"staged_opens_daemon", "served by the mount"},
	{"staged_bytes_daemon", "read by it"},
	{NULL, NULL},
};

static void print_passthrough(const json_t *mount)
{
	const char *state = json_string_value(json_object_get(mount, "passthrough"));
	const char *lacking = json_string_value(json_object_get(mount, "lacking"));

	if (lacking && *lacking)
		printf("lacking     %s\n", lacking);
	if (!state)
		return;
	printf("passthrough %s\n", state);
	if (json_integer_value(json_object_get(mount, "staged_copies")) > 0 ||
	    json_integer_value(json_object_get(mount, "staged_refused")) > 0)
		print_members(mount, staged_words);
}

static void print_target(const struct target_view *v)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], used[16] = "-";
	const char *service = v->flags ? target_service_name(v->flags) : "";
	const char *page = json_string_value(json_object_get(v->status, "metrics"));

	if (v->capacity)
		snprintf(used, sizeof(used), "%.0f%%",
			 100.0 * (double)v->used / (double)v->capacity);
	printf("%-7u %-7s %10s %10s %5s  %-21s %-15s %s%s%s%s%s\n", v->id,
	       target_state_name(v->state), format_size(v->capacity, a), format_size(v->free, b),
	       used, v->addrs, v->host, page && *page ? page : "-", v->flags ? "  " : "", service,
	       v->error ? "  " : "", v->error ? status_text(v->error) : "");
}

/* Prints the connections of the mount or the agent, if one is given; else those of every server. */
static void print_net(const struct cluster *c, const struct status_options *o)
{
	char whose[64];

	if (o->mount) {
		net_print("mount", o->mount_net);
		return;
	}
	if (o->agent) {
		net_print("agent", json_object_get(o->agent_status, "net"));
		return;
	}
	net_print("mds", json_object_get(c->mds_status, "net"));
	for (uint32_t i = 0; i < c->n_targets; i++) {
		snprintf(whose, sizeof(whose), "target %u", c->targets[i].id);
		net_print(whose, json_object_get(c->targets[i].status, "net"));
	}
}

static void print_chains(const struct cluster *c)
{
	const json_t *h = json_object_get(c->mds_status, "chains");
	json_int_t degraded = json_integer_value(json_object_get(h, "degraded"));
	json_int_t down = json_integer_value(json_object_get(h, "down"));
	json_int_t moving = json_integer_value(json_object_get(h, "moving"));
	json_int_t lost = json_integer_value(json_object_get(h, "lost"));

	if (!h)
		return;
	printf("chains      ");
	if (degraded == 0 && down == 0)
		fputs("all whole", stdout);
	else
		printf("%" JSON_INTEGER_FORMAT " without all copies, %" JSON_INTEGER_FORMAT
		       " being filled; %" JSON_INTEGER_FORMAT " down",
		       degraded, json_integer_value(json_object_get(h, "syncing")), down);
	if (moving)
		printf("; %" JSON_INTEGER_FORMAT " to move", moving);
	if (lost)
		printf("; %" JSON_INTEGER_FORMAT " lost (leat fsck names the files)", lost);
	puts(json_is_true(json_object_get(h, "rebalancing")) ? " (rebalance)" : "");
}

/* Prints what new files and directories inherit from the root directory. */
static void print_new_files(const struct cluster *c)
{
	const json_t *v = json_object_get(c->mds_status, "new_files");
	json_int_t n = json_integer_value(json_object_get(v, "replicas"));

	if (!v)
		return;
	printf("new files   %" JSON_INTEGER_FORMAT " %s unless their directory says otherwise%s\n",
	       n, n == 1 ? "copy" : "copies",
	       n == 1 || json_is_true(json_object_get(v, "possible"))
		       ? ""
		       : "; NONE can be created: copies lie on different hosts, and there are "
			 "too few of them");
}

/* Nothing can be created: the metadata server's disk is all but full. */
static bool mds_is_full(const struct cluster *c)
{
	const json_t *store = json_object_get(c->mds_status, "store");

	return json_is_true(json_object_get(store, "short_of_room"));
}

static void print_mds_disk(const struct cluster *c)
{
	const json_t *store = json_object_get(c->mds_status, "store");
	json_int_t free = json_integer_value(json_object_get(store, "disk_free")),
		   size = json_integer_value(json_object_get(store, "disk_size"));
	char a[SIZE_TEXT], b[SIZE_TEXT];

	if (mds_is_full(c))
		printf("mds disk    FULL: %s free of %s; nothing can be created until space is "
		       "freed\n",
		       format_size((uint64_t)free, a), format_size((uint64_t)size, b));
}

/* Prints the damage that object servers have found since they started. */
static void print_damage(const struct cluster *c)
{
	json_int_t found = 0, repaired = 0;

	for (uint32_t i = 0; i < c->n_targets; i++) {
		const json_t *totals = json_object_get(c->targets[i].status, "totals");

		found += json_integer_value(json_object_get(totals, "corrupt"));
		repaired += json_integer_value(json_object_get(totals, "repaired"));
	}
	if (found || repaired)
		printf("damage      met %" JSON_INTEGER_FORMAT " times, %" JSON_INTEGER_FORMAT
		       " blocks repaired from other copies\n",
		       found, repaired);
}

static void print_conversions(const struct cluster *c)
{
	const json_t *v;
	char size[SIZE_TEXT];
	size_t i;

	json_array_foreach(json_object_get(c->mds_status, "conversions"), i, v)
	{
		const char *error = json_string_value(json_object_get(v, "error"));

		printf("converting  inode %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT
		       " copies: %" JSON_INTEGER_FORMAT
		       " files, %s converted, %" JSON_INTEGER_FORMAT
		       " in use or just written%s%s\n",
		       json_integer_value(json_object_get(v, "inode")),
		       json_integer_value(json_object_get(v, "replicas")),
		       json_integer_value(json_object_get(v, "converted")),
		       format_size((uint64_t)json_integer_value(json_object_get(v, "bytes")), size),
		       json_integer_value(json_object_get(v, "waiting")),
		       error && *error ? "; " : "", error ? error : "");
	}
}

static void print_view(const struct cluster *c, const struct status_options *o)
{
	char uuid[UUID_TEXT_SIZE], a[SIZE_TEXT], b[SIZE_TEXT];
	bool full = strcmp(durability(c), "full") == 0;

	uuid_format(&c->uuid, uuid);
	printf("cluster     %s  %s  map epoch %u, %u chains\n", c->tool->cluster.name, uuid,
	       c->epoch, c->n_chains);
	printf("durability  %s\n", full ? "full: acknowledged data is on stable storage"
					: "NONE: a crash loses acknowledged data (sync = no)");
	printf("mds         up at %s\n", c->mds_addr);
	print_members(c->mds_status, mds_words);
	print_mds_disk(c);
	print_chains(c);
	print_new_files(c);
	print_damage(c);
	clocks_print(c->mds_status);
	print_conversions(c);
	if (o->mount) {
		printf("mount       %s\n",
		       json_string_value(json_object_get(o->mount, "mountpoint")));
		print_members(o->mount, mount_words);
		print_passthrough(o->mount);
	}
	json_t *own = own_transport(c);
	net_print_transport(o->mount_net ? json_object_get(o->mount_net, "transport") : own);
	json_decref(own);
	printf("\nTARGET  STATE         SIZE       FREE  USED  %-21s %-15s METRICS\n", "ADDRESS",
	       "HOST");
	for (uint32_t i = 0; i < c->n_targets; i++)
		print_target(&c->targets[i]);
	printf("\n%u of %u targets up, %s free of %s\n", c->n_targets_up, c->n_targets,
	       format_size(c->free, a), format_size(c->capacity, b));
	if (o->net)
		print_net(c, o);
	if (o->memory)
		memory_print(c, o->mount);
}

static int ask_agent(struct cluster *c, struct status_options *o)
{
	struct rpc_client_options opts = {.transport = c->transport,
					  .addrs = o->agent,
					  .name = "leat",
					  .role = ROLE_TOOL,
					  .cluster = c->uuid,
					  .key = c->key,
					  .hosts_known = true};
	struct peer_status_req req = {0};
	struct peer_status_rep rep = {0};
	struct rpc_call call = {.op = OP_peer_status,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms((uint32_t)o->timeout_ms)};
	struct rpc_client *rpc;

	TRY(rpc_client_create(&opts, &rpc));
	int rc = rpc_call(rpc, &call);
	if (rc == 0)
		o->agent_status = json_loadb(rep.json.data, rep.json.len, 0, NULL);
	if (rc == 0 && !o->agent_status)
		rc = -LE_BAD_MESSAGE;
	rpc_call_fini(&call);
	rpc_client_destroy(rpc);
	if (rc < 0)
		o->code = tool_error(c->tool, EXIT_FAILED, NULL, "agent %s: %s", o->agent,
				     status_text(rc));
	return rc;
}

static int run_status(struct cluster *c, void *arg)
{
	struct status_options *o = arg;

	c->status_flags = o->memory ? STATUS_MEMORY : 0;
	TRY(cluster_fetch(c, FETCH_MDS_STATUS | FETCH_TARGET_STATUS));
	if (o->agent && ask_agent(c, o) < 0)
		return 0;
	if (c->tool->json)
		o->code = tool_print_json(view_json(c, o));
	else
		print_view(c, o);
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (o->check && (c->targets[i].state != TARGET_UP || c->targets[i].error))
			o->code = EXIT_NOT_READY;
	if (o->check &&
	    (c->n_targets == 0 || mds_is_full(c) || clocks_apart(c->mds_status)))
		o->code = EXIT_NOT_READY;
	return 0;
}

/* Gets the status of the mount, and the servers' addresses if it was mounted by address. */
static int ask_mount(struct tool *t, struct status_options *o)
{
	struct leat_mount m;
	char *text;

	if (!mount_of_path(o->path, &m))
		return tool_error(t, EXIT_MISSING,
				  "`findmnt -t fuse.leat` lists the mounts of this machine.",
				  "%s is not on a Leat mount", o->path);
	text = mount_status(o->path);
	if (!text)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", o->path);
	o->mount = json_loads(text, 0, NULL);
	free(text);
	if (!o->mount)
		return tool_error(t, EXIT_FAILED, NULL, "%s: the mount's answer is not understood",
				  o->path);
	o->mount_net = net_of_mount(o->path);
	text = o->memory ? virtual_attribute(o->path, "leat.memory") : NULL;
	if (text)
		json_object_set_new(o->mount, "memory", json_loads(text, 0, NULL));
	free(text);
	json_object_set_new(o->mount, "mountpoint", tool_json_text(m.mountpoint));
	json_object_set_new(o->mount, "source", tool_json_text(m.source));
	mount_take_cluster(&m, t);
	return EXIT_OK;
}

static int parse(struct tool *t, int argc, char **argv, struct status_options *o)
{
	static const struct option longs[] = {
		{"check", no_argument, NULL, 'k'},
		{"net", no_argument, NULL, 'n'},
		{"memory", no_argument, NULL, 'm'},
		{"agent", required_argument, NULL, 'a'},
		{"timeout", required_argument, NULL, 't'},
		{NULL, 0, NULL, 0},
	};
	uint64_t seconds;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'k') {
			o->check = true;
		} else if (c == 'n') {
			o->net = true;
		} else if (c == 'm') {
			o->memory = true;
		} else if (c == 'a') {
			o->agent = optarg;
		} else if (c == 't') {
			if (!parse_number_arg(t, "--timeout", optarg, 3600, &seconds))
				return EXIT_USAGE;
			o->timeout_ms = seconds * 1000;
		} else {
			return tool_usage(t, "wrong options");
		}
	}
	if (argc - optind > 1)
		return tool_usage(t, "too many arguments");
	o->path = argv[optind];
	return EXIT_OK;
}

static int run(struct tool *t, int argc, char **argv)
{
	struct status_options o = {.timeout_ms = 5000};
	int code = parse(t, argc, argv, &o);

	if (code == EXIT_OK)
		code = tool_load_conf(t);
	if (code == EXIT_OK && o.path)
		code = ask_mount(t, &o);
	if (code == EXIT_OK)
		code = cluster_run(t, (uint32_t)o.timeout_ms, run_status, &o);
	json_decref(o.mount);
	json_decref(o.mount_net);
	json_decref(o.agent_status);
	return code == EXIT_OK ? o.code : code;
}

const struct command command_status = {
	.name = "status",
	.summary = "the servers, their targets, and a mount",
	.usage = "usage: leat status [--check] [--net] [--memory] [--agent ADDR] [--timeout S] "
		 "[PATH]\n"
		 "Shows the metadata server and all targets. With a PATH, its mount too.\n"
		 "  --check       exit with 3 unless every target is up and answers, clocks\n"
		 "                agree, and the disk of the metadata server has space\n"
		 "  --net         connections: of the mount at PATH, of the agent, or of every "
		 "server\n"
		 "  --memory      what the memory of each server, and of the mount, is used for\n"
		 "  --agent ADDR  shows an agent too\n"
		 "  --timeout S   how long to wait for the metadata server (5)\n"
		 "Examples:\n"
		 "  leat status /mnt/leat\n"
		 "  leat status --net /mnt/leat\n"
		 "  leat status --json | jq '.targets[] | select(.state != \"up\")'\n",
	.run = run,
};
