/* SPDX-License-Identifier: Apache-2.0 */
/* leat config: the sample configuration, generated from the parameter tables of all programs, and a
 * check that loads a file like each of them. */
#include "tools/cmd_config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dataset/params.h"
#include "client/params.h"
#include "common/base/assert.h"
#include "common/rpc/auth.h"
#include "common/rpc/rpc.h"
#include "fuse/params.h"
#include "mds/params.h"
#include "ossd/params.h"
#include "tools/tool.h"

#define MDS_ROW(...)    CONFIG_ROW(struct mds_params, __VA_ARGS__)
#define OSSD_ROW(...)   CONFIG_ROW(struct ossd_params, __VA_ARGS__)
#define CLIENT_ROW(...) CONFIG_ROW(struct client_params, __VA_ARGS__)
#define AGENT_ROW(...)  CONFIG_ROW(struct agent_params, __VA_ARGS__)
#define MOUNT_ROW(...)  CONFIG_ROW(struct mount_params, __VA_ARGS__)
static const struct config_param mds_table[] = {MDS_PARAMS(MDS_ROW)};
static const struct config_param ossd_table[] = {OSSD_PARAMS(OSSD_ROW)};
static const struct config_param client_table[] = {CLIENT_PARAMS(CLIENT_ROW)};
static const struct config_param agent_table[] = {AGENT_PARAMS(AGENT_ROW)};
static const struct config_param mount_table[] = {MOUNT_PARAMS(MOUNT_ROW)};

static struct {
	struct cluster_params cluster;
	struct mds_params mds;
	struct ossd_params ossd;
	struct client_params client;
	struct mount_params mount;
	struct agent_params agent;
} values;

enum {
	CLUSTER,
	MDS,
	OSSD,
	CLIENT,
	MOUNT,
	AGENT,
	N_SECTIONS
};

/* The sections that each program reads. Programs that read only [cluster], or [cluster] and
 * [client], are covered by these. */
static const struct {
	const char *name;
	int sections[3], n;
} programs[] = {
	{"leat-mds", {CLUSTER, MDS}, 2},
	{"leat-ossd", {CLUSTER, OSSD}, 2},
	{"mount.leat", {CLUSTER, CLIENT, MOUNT}, 3},
	{"leat agent", {CLUSTER, CLIENT, AGENT}, 3},
};
#define N_PROGRAMS    ((int)ARRAY_SIZE(programs))
#define PROGRAM_AGENT (N_PROGRAMS - 1)

static void sections_of(struct config_section ret[N_SECTIONS])
{
	ret[0] = (struct config_section){"cluster", cluster_param_table, n_cluster_params,
					 &values.cluster};
	ret[1] = (struct config_section){"mds", mds_table, ARRAY_SIZE(mds_table), &values.mds};
	ret[2] = (struct config_section){"ossd", ossd_table, ARRAY_SIZE(ossd_table), &values.ossd};
	ret[3] = (struct config_section){"client", client_table, ARRAY_SIZE(client_table),
					 &values.client};
	ret[4] = (struct config_section){"mount", mount_table, ARRAY_SIZE(mount_table),
					 &values.mount};
	ret[5] = (struct config_section){"agent", agent_table, ARRAY_SIZE(agent_table),
					 &values.agent};
}

static const char head[] =
	"# leat.conf: configuration of all programs of Leat. `leat config sample` prints this:\n"
	"# each parameter with its default, commented out.\n"
	"#\n"
	"# Every program reads [cluster] and its own section, so one file may serve all machines\n"
	"# of a cluster. It is /etc/leat/leat.conf unless $LEAT_CONF or an option says "
	"otherwise.\n"
	"# Unknown names and values out of range are refused at start, with file and line;\n"
	"# `leat config check` finds them before.\n"
	"#\n"
	"# A line is name = value; no name may stand twice. A # or ; after a blank begins\n"
	"# a comment, unless the value is in quotes: \"a # b\" or 'a # b'.\n"
	"# Sizes: 4096, 64K, 1M, 1.5G, 1T (binary; KB, KiB and MB mean the same as K and M).\n"
	"# Times and other numbers: digits alone, in the unit of the parameter (30000, not 30s).\n"
	"# Switches: yes or no. Lists: blanks or commas between.\n"
	"# In brackets: the possible words, or unit, least..greatest.\n";

static const char *const intros[N_SECTIONS] = {
	"Read by every program. The key makes a server, a mount or a tool a member of the\n"
	"# cluster: the same file on every machine, readable by root only. To make one:\n"
	"#   (umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' > /etc/leat/cluster.key)",
	"leat-mds, the metadata server. `leat-mds format` makes the store once.",
	"leat-ossd, the object server: one process and one data_dir for each disk.\n"
	"# `leat-ossd format` makes the store once. Further processes on a machine get their own\n"
	"# values with --set NAME=VALUE.",
	"The client library: mount.leat, staging, loader. Each is also a mount option.",
	"mount.leat. Each is also a mount option.",
	"leat agent, the daemon of a node that stages. --set NAME=VALUE gives others.",
};

static const char *type_name(enum config_type type)
{
	static const char *const names[] = {"switch", "number", "number",    "size", "text",
					    "word",   "address", "addresses", "processors"};

	return names[type];
}

static json_t *value_json(const struct config_section *s, const struct config_param *p)
{
	const void *at = (const char *)s->values + p->offset;

	switch (p->type) {
	case CONFIG_bool:
		return json_boolean(*(const bool *)at);
	case CONFIG_u32:
		return json_integer(*(const uint32_t *)at);
	case CONFIG_u64:
	case CONFIG_size:
		return json_integer((json_int_t)*(const uint64_t *)at);
	default:
		return tool_json_text(at);
	}
}

/* Splits "a | b | c" into its words. */
static json_t *words_json(const char *words)
{
	json_t *list = json_array();

	while (*words) {
		size_t len = strcspn(words, " |");

		json_array_append_new(list, json_stringn(words, len));
		words += len;
		words += strspn(words, " |");
	}
	return list;
}

/* Describes a parameter. s: a section of the sample, with default values. */
static json_t *param_json(const struct config_section *s, const struct config_param *p)
{
	bool number = p->type == CONFIG_u32 || p->type == CONFIG_u64 || p->type == CONFIG_size;
	json_t *o = json_pack("{s:o,s:s,s:s}", "default", value_json(s, p), "type",
			      type_name(p->type), "meaning", p->help);

	if (p->type == CONFIG_word)
		json_object_set_new(o, "words", words_json(p->unit));
	else if (p->unit[0])
		json_object_set_new(o, "unit", json_string(p->unit));
	if (number) {
		json_object_set_new(o, "least", json_integer((json_int_t)p->min));
		json_object_set_new(o, "greatest", json_integer((json_int_t)p->max));
	}
	return o;
}

static int print_json(const struct config_section *sections, bool sample)
{
	json_t *all = json_object();

	for (int i = 0; i < N_SECTIONS; i++) {
		const struct config_section *s = &sections[i];
		json_t *o = json_object();

		for (int k = 0; k < s->n_params; k++)
			json_object_set_new(o, s->params[k].name,
					    sample ? param_json(s, &s->params[k])
						   : value_json(s, &s->params[k]));
		json_object_set_new(all, s->section, o);
	}
	return tool_print_json(all);
}

static int print_sample(const struct tool *t)
{
	struct config_section sections[N_SECTIONS];

	sections_of(sections);
	if (t->json) {
		config_defaults(sections, N_SECTIONS);
		return print_json(sections, true);
	}
	fputs(head, stdout);
	for (int i = 0; i < N_SECTIONS; i++) {
		printf("\n# ---- %s\n", intros[i]);
		config_print_sample(&sections[i], 1, stdout);
	}
	return EXIT_OK;
}

/* ---- check ---- */

struct refusal {
	char text[CONFIG_ERR_SIZE];
	const char *hint;
	bool by[ARRAY_SIZE(programs)];
};

/* Loads the file like that program at its start. */
static int check_as(int program, const char *path, bool with_key, struct refusal *ret_refusal)
{
	struct config_section all[N_SECTIONS], own[N_SECTIONS];
	struct rpc_key_problem problem;
	struct rpc_key key;

	sections_of(all);
	for (int i = 0; i < programs[program].n; i++)
		own[i] = all[programs[program].sections[i]];
	ret_refusal->hint = "`leat config sample` prints every parameter with its range.";
	TRY(config_load(path, own, programs[program].n, ret_refusal->text,
			sizeof(ret_refusal->text)));
	if (!with_key)
		return 0;
	int rc = rpc_key_check(values.cluster.key_file, &key, &problem);
	if (rc < 0) {
		snprintf(ret_refusal->text, sizeof(ret_refusal->text), "%s", problem.text);
		ret_refusal->hint = problem.hint;
	}
	return rc;
}

int agent_config_check(const struct tool *t)
{
	struct refusal r = {.text = ""};

	if (check_as(PROGRAM_AGENT, t->conf, true, &r) < 0)
		return tool_error(t, EXIT_USAGE, r.hint, "%s", r.text);
	return EXIT_OK;
}

static int check_agent_file(void *arg, const char *path, char *err, size_t err_size)
{
	struct refusal r = {.text = ""};
	int rc = check_as(PROGRAM_AGENT, path, true, &r);
	bool of_key = strncmp(r.text, "cluster key ", 12) == 0;

	(void)arg;
	if (rc < 0)
		snprintf(err, err_size, "%s%s%s", r.text, of_key ? ". " : "", of_key ? r.hint : "");
	return rc;
}

int config_check_agent(char *const *files, int n_files)
{
	return config_check_files("leat agent", files, n_files, check_agent_file, NULL) > 0
		       ? EXIT_USAGE
		       : EXIT_OK;
}

/* Loads the file like each program. Equal refusals are merged. Returns the number of refusals. */
static int check_file(const char *path, bool with_key, struct refusal *ret)
{
	int n = 0;

	for (int i = 0; i < N_PROGRAMS; i++) {
		struct refusal r = {.text = ""};
		int k = 0;

		if (check_as(i, path, with_key, &r) == 0)
			continue;
		while (k < n && strcmp(ret[k].text, r.text) != 0)
			k++;
		if (k == n)
			ret[n++] = r;
		ret[k].by[i] = true;
	}
	return n;
}

static void print_refusal(const struct refusal *r)
{
	const char *between = "";
	int n = 0;

	for (int i = 0; i < N_PROGRAMS; i++)
		n += r->by[i];
	fputs("leat config: ", stderr);
	tool_write_text(stderr, r->text);
	fputs("\n  ", stderr);
	if (n < N_PROGRAMS) {
		fputs("Refused by ", stderr);
		for (int i = 0; i < N_PROGRAMS; i++) {
			if (!r->by[i])
				continue;
			fprintf(stderr, "%s%s", between, programs[i].name);
			between = ", ";
		}
		fputs(". ", stderr);
	}
	fprintf(stderr, "%s\n", r->hint);
}

static json_t *refusal_json(const struct refusal *r)
{
	json_t *by = json_array();

	for (int i = 0; i < N_PROGRAMS; i++)
		if (r->by[i])
			json_array_append_new(by, json_string(programs[i].name));
	return json_pack("{s:o,s:s,s:o}", "message", tool_json_text(r->text), "hint", r->hint,
			 "programs", by);
}

static json_t *error_json(const struct refusal *r)
{
	return json_pack("{s:i,s:o,s:s}", "exit", EXIT_USAGE, "message", tool_json_text(r->text),
			 "hint", r->hint);
}

/* Checks one file; NULL: the one that programs would load. */
static int check(const struct tool *t, const char *path, bool with_key, bool several)
{
	struct refusal refusals[ARRAY_SIZE(programs)];
	bool may_be_missing;
	const char *name = config_path(path, &may_be_missing);
	int n = check_file(path, with_key, refusals);
	bool missing = may_be_missing && access(name, F_OK) < 0;

	if (t->json) {
		json_t *list = json_array();

		for (int i = 0; i < n; i++)
			json_array_append_new(list, refusal_json(&refusals[i]));
		json_t *o = json_pack("{s:o,s:b,s:b,s:o}", "file", tool_json_text(name), "there",
				      !missing, "good", n == 0, "refusals", list);
		if (n > 0)
			json_object_set_new(o, "error", error_json(&refusals[0]));
		tool_print_json(o);
	}
	for (int i = 0; i < n; i++)
		print_refusal(&refusals[i]);
	if (n > 0)
		return EXIT_USAGE;
	if (!t->json && several)
		tool_write_name(name);
	if (!t->json)
		printf("%sgood", several ? ": " : "");
	if (!t->json && missing)
		printf(": there is no %s, so all programs take their defaults", name);
	if (!t->json)
		putchar('\n');
	return EXIT_OK;
}

static int run_check(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"no-key", no_argument, NULL, 'n'},
		{NULL, 0, NULL, 0},
	};
	bool with_key = true;
	int c, code = EXIT_OK;

	optind = 0;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c != 'n')
			return tool_usage(t, "wrong options");
		with_key = false;
	}
	if (optind == argc)
		return check(t, t->conf, with_key, false);
	for (int i = optind; i < argc; i++)
		if (check(t, argv[i], with_key, argc - optind > 1) != EXIT_OK)
			code = EXIT_USAGE;
	return code;
}

static int show(struct tool *t)
{
	struct config_section sections[N_SECTIONS];
	char err[CONFIG_ERR_SIZE] = "";

	sections_of(sections);
	if (config_load(t->conf, sections, N_SECTIONS, err, sizeof(err)) < 0)
		return tool_error(t, EXIT_USAGE, NULL, "%s", err);
	if (t->json)
		return print_json(sections, false);
	config_print_values(sections, N_SECTIONS, stdout);
	return EXIT_OK;
}

static int run(struct tool *t, int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (strcmp(verb, "sample") == 0 && argc == 2)
		return print_sample(t);
	if (strcmp(verb, "show") == 0 && argc == 2)
		return show(t);
	if (strcmp(verb, "check") == 0)
		return run_check(t, argc - 1, argv + 1);
	return tool_usage(t, "give a verb: sample, show or check [FILE]");
}

const struct command command_config = {
	.name = "config",
	.summary = "print or check a configuration",
	.usage = "usage: leat config sample         every parameter with range, default, meaning\n"
		 "       leat config check [--no-key] [FILE]...\n"
		 "           checks whether all programs start with it and with its key\n"
		 "           --no-key: without the key\n"
		 "       leat config show           the values in force\n"
		 "Example: leat config sample > /etc/leat/leat.conf && leat config check\n",
	.run = run,
};
