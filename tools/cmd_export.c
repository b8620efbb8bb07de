/* SPDX-License-Identifier: Apache-2.0 */
/* leat export: what clients of a network may do. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/network.h"
#include "tools/cluster.h"

#define CALL_MS   10000u
#define CHANGE_MS 60000u /* the metadata server ends sessions, and waits for servers */
#define NOBODY    65534u

struct export_options {
	uint32_t what; /* enum export_change, 0: list */
	struct export_row row;
	const char *network;
	int code;
};

static const char *squash_name(uint32_t flags)
{
	return flags & EXPORT_SQUASH_ALL ? "all" : flags & EXPORT_SQUASH_ROOT ? "root" : "none";
}

static void show_row(const struct tool *t, const struct export_row *row, json_t *all)
{
	struct network net = {{row->net_hi, row->net_lo}, row->bits};
	char text[NETWORK_TEXT], anon[32] = "-";
	bool ro = (row->flags & EXPORT_READ_ONLY) != 0;

	network_format(&net, text);
	if (t->json) {
		json_array_append_new(all,
				      json_pack("{s:s,s:b,s:s,s:I,s:I}", "network", text,
						"read_only", ro, "squash", squash_name(row->flags),
						"anon_uid", (json_int_t)row->anon_uid, "anon_gid",
						(json_int_t)row->anon_gid));
		return;
	}
	if (row->flags & (EXPORT_SQUASH_ALL | EXPORT_SQUASH_ROOT))
		snprintf(anon, sizeof(anon), "%u:%u", row->anon_uid, row->anon_gid);
	printf("%-43s %-6s %-6s %s\n", text, ro ? "ro" : "rw", squash_name(row->flags), anon);
}

static int list(struct cluster *c, struct export_options *o)
{
	struct mds_export_get_req req;
	struct mds_export_get_rep rep;
	json_t *all = json_array();
	struct rpc_call call;
	struct wire_r r;
	int rc;

	c->deadline_us = loop_deadline_ms(CALL_MS);
	rc = cluster_call(c, OP_mds_export_get, &req, &rep, &call);
	if (rc >= 0) {
		if (!c->tool->json)
			printf("%-43s %-6s %-6s %s\n", "NETWORK", "ACCESS", "SQUASH", "ANONYMOUS");
		wire_r_init(&r, rep.rows.data, rep.rows.len);
		while (rc >= 0 && !wire_r_end(&r)) {
			struct export_row row;

			wire_get_export_row(&r, &row);
			rc = r.status;
			if (rc >= 0)
				show_row(c->tool, &row, all);
		}
	}
	rpc_call_fini(&call);
	if (rc >= 0 && c->tool->json)
		o->code = tool_print_json(json_pack("{s:O}", "exports", all));
	json_decref(all);
	return rc;
}

static int refused(struct cluster *c, const struct export_options *o, int status)
{
	const struct tool *t = c->tool;

	switch (status) {
	case -LE_BUSY:
		return tool_error(t, EXIT_FAILED,
				  "Give the networks of administrators rows of their own first: "
				  "leat export add ADDRESS",
				  "%s would restrict this machine, which could not lift the "
				  "restriction afterwards",
				  o->network);
	case -LE_PERM:
		return tool_error(t, EXIT_PERMISSION,
				  "Run this on a machine that `leat export` does not restrict.",
				  "the export table does not let this machine change exports");
	case -LE_NOENT:
		return tool_error(t, EXIT_MISSING, "`leat export ls` shows them.",
				  "no export for %s", o->network);
	case -LE_NOSPC:
		return tool_error(t, EXIT_NO_SPACE, NULL, "the export table is full");
	default:
		return 0;
	}
}

/* Prints the result of a change. rep->unheard: packed numbers of targets that did not get the
 * change. */
static int changed(const struct tool *t, const struct mds_export_set_rep *rep)
{
	json_t *ids = json_array();
	char text[1024] = "", more[32] = "";
	size_t at = 0, shown = 0;
	struct wire_r r;

	wire_r_init(&r, rep->unheard.data, rep->unheard.len);
	while (!wire_r_end(&r)) {
		uint32_t id = 0;

		wire_get_u32(&r, &id);
		json_array_append_new(ids, json_integer(id));
		if (at >= sizeof(text) - 16)
			continue;
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%u", at ? ", " : "", id);
		shown++;
	}
	if (json_array_size(ids) > shown)
		snprintf(more, sizeof(more), " and %zu more", json_array_size(ids) - shown);
	if (t->json) {
		int code = tool_print_json(json_pack("{s:i,s:o}", "exports", (int)rep->n,
						     "unconfirmed", ids));

		return code == EXIT_OK && at ? EXIT_PARTIAL : code;
	}
	json_decref(ids);
	if (at == 0)
		return EXIT_OK;
	return tool_error(t, EXIT_PARTIAL,
			  "Start these servers again, or stop them. Adding the same row again "
			  "repeats the request.",
			  "the change is made, but targets %s%s have not confirmed it: clients "
			  "that lost rights may read from them until their servers reach the "
			  "metadata server, at most for cap_ttl_s",
			  text, more);
}

static int change(struct cluster *c, void *arg)
{
	struct export_options *o = arg;
	struct mds_export_set_req req = {.what = o->what, .row = o->row};
	struct mds_export_set_rep rep;
	struct rpc_call call;
	int rc;

	if (o->what == 0)
		return list(c, o);
	c->deadline_us = loop_deadline_ms(CHANGE_MS);
	rc = cluster_call(c, OP_mds_export_set, &req, &rep, &call);
	if (rc < 0)
		o->code = refused(c, o, rc);
	else if (rep.target != 0)
		o->code = tool_error(c->tool, EXIT_FAILED,
				     "Give the networks of servers rows of their own first: "
				     "leat export add ADDRESS",
				     "%s would restrict the object server of target %u, which "
				     "could not serve any longer",
				     o->network, (unsigned)rep.target);
	else
		o->code = changed(c->tool, &rep);
	rpc_call_fini(&call);
	return o->code != EXIT_OK ? 0 : rc;
}

static int parse_id(struct tool *t, const char *name, uint32_t *ret_id)
{
	uint64_t v;

	if (!parse_number_arg(t, name, optarg, UINT32_MAX - 1, &v))
		return EXIT_USAGE;
	*ret_id = (uint32_t)v;
	return EXIT_OK;
}

static int parse_rights(struct tool *t, int argc, char **argv, struct export_row *row)
{
	static const struct option longs[] = {
		{"ro", no_argument, NULL, 'r'},
		{"rw", no_argument, NULL, 'w'},
		{"root-squash", no_argument, NULL, 's'},
		{"no-root-squash", no_argument, NULL, 'n'},
		{"all-squash", no_argument, NULL, 'a'},
		{"anon-uid", required_argument, NULL, 'u'},
		{"anon-gid", required_argument, NULL, 'g'},
		{NULL, 0, NULL, 0},
	};
	int c, code = EXIT_OK;

	row->anon_uid = row->anon_gid = NOBODY;
	optind = 1;
	while (code == EXIT_OK && (c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == '?')
			code = tool_usage(t, "add: wrong options");
		if (c == 'r')
			row->flags |= EXPORT_READ_ONLY;
		if (c == 'w')
			row->flags &= ~(uint32_t)EXPORT_READ_ONLY;
		if (c == 's' || c == 'n' || c == 'a')
			row->flags &= ~(uint32_t)(EXPORT_SQUASH_ROOT | EXPORT_SQUASH_ALL);
		if (c == 's')
			row->flags |= EXPORT_SQUASH_ROOT;
		if (c == 'a')
			row->flags |= EXPORT_SQUASH_ALL;
		if (c == 'u')
			code = parse_id(t, "--anon-uid", &row->anon_uid);
		if (c == 'g')
			code = parse_id(t, "--anon-gid", &row->anon_gid);
	}
	if (code == EXIT_OK && row->anon_uid == 0)
		code = tool_usage(t, "--anon-uid: 0 is root");
	return code;
}

static int run(struct tool *t, int argc, char **argv)
{
	struct export_options o = {.code = EXIT_OK};
	const char *verb = argc > 1 ? argv[1] : "";
	struct network net;
	int code = EXIT_OK;

	if (strcmp(verb, "add") == 0)
		o.what = EXPORT_ADD;
	else if (strcmp(verb, "rm") == 0)
		o.what = EXPORT_REMOVE;
	else if (strcmp(verb, "ls") != 0)
		return tool_usage(t, "give a verb: ls, add or rm");
	optind = 1;
	if (o.what == EXPORT_ADD)
		code = parse_rights(t, argc - 1, argv + 1, &o.row);
	if (code != EXIT_OK)
		return code;
	if (argc - 1 - optind != (o.what ? 1 : 0))
		return tool_usage(t,
				  o.what && argc - 1 == optind ? "%s: NETWORK is missing"
							       : "%s: too many arguments",
				  verb);
	if (o.what) {
		o.network = argv[1 + optind];
		if (network_parse(o.network, &net) < 0)
			return tool_usage(t,
					  "'%s' is not a network (10.1.0.0/16, 10.1.2.3, "
					  "fd00:1::/32; no bits after the prefix)",
					  o.network);
		o.row.net_hi = net.addr.hi;
		o.row.net_lo = net.addr.lo;
		o.row.bits = net.bits;
	}
	code = tool_load_conf(t);
	if (code == EXIT_OK)
		code = cluster_run(t, CALL_MS, change, &o);
	return code == EXIT_OK ? o.code : code;
}

const struct command command_export = {
	.name = "export",
	.summary = "what clients of a network may do",
	.usage =
		"usage: leat export ls\n"
		"       leat export add [--ro] [--root-squash|--all-squash] [--anon-uid N]\n"
		"                       [--anon-gid N] NETWORK\n"
		"       leat export rm NETWORK\n"
		"The most specific row with a client's address restricts the client; a client in "
		"no\n"
		"row is not restricted. NETWORK: 10.1.0.0/16, 10.1.2.3, fd00:1::/32. A change "
		"takes\n"
		"effect immediately, also for existing mounts; object servers that have not "
		"confirmed\n"
		"the change are named, and the exit status is 5.\n"
		"  --ro              clients cannot change anything\n"
		"  --root-squash     root and its group become the anonymous user\n"
		"  --all-squash      all users do\n"
		"  --anon-uid N, --anon-gid N\n"
		"                    the anonymous user and group (65534)\n"
		"Examples:\n"
		"  leat export add --ro --root-squash 10.20.0.0/16\n"
		"  leat export add 10.20.0.7\n"
		"  leat export ls\n",
	.run = run,
};
