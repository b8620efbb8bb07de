/* leat config: the sample configuration, generated from the parameter tables of all programs, and a
 * check. */
#include <stdio.h>
#include <string.h>

#include "client/params.h"
#include "client/stage/params.h"
#include "common/base/assert.h"
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
	N_SECTIONS = 6
};

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
	"# of a cluster. It is /etc/leat/leat.conf unless $LEAT_CONF or an option says otherwise.\n"
	"# Unknown names and values out of range are refused at start, with file and line;\n"
	"# `leat config check` finds them before.\n"
	"#\n"
	"# Sizes: 4096, 64K, 1M, 2G, 1T (binary). Switches: yes or no.\n"
	"# In brackets: unit, least..greatest.\n";

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

static int print_sample(void)
{
	struct config_section sections[N_SECTIONS];

	sections_of(sections);
	fputs(head, stdout);
	for (int i = 0; i < N_SECTIONS; i++) {
		printf("\n# ---- %s\n", intros[i]);
		config_print_sample(&sections[i], 1, stdout);
	}
	return EXIT_OK;
}

/* Without a file name: the one that programs would take. */
static int check(struct tool *t, const char *path)
{
	struct config_section sections[N_SECTIONS];
	char err[1536] = "";

	sections_of(sections);
	if (config_load(path, sections, N_SECTIONS, err, sizeof(err)) < 0)
		return tool_error(t, EXIT_USAGE,
				  "`leat config sample` prints every parameter with its range.",
				  "%s", err);
	if (t->json)
		return tool_print_json(json_pack("{s:b}", "good", 1));
	puts("good");
	return EXIT_OK;
}

static int show(struct tool *t)
{
	struct config_section sections[N_SECTIONS];
	char err[1536] = "";

	sections_of(sections);
	if (config_load(t->conf, sections, N_SECTIONS, err, sizeof(err)) < 0)
		return tool_error(t, EXIT_USAGE, NULL, "%s", err);
	config_print_values(sections, N_SECTIONS, stdout);
	return EXIT_OK;
}

static int run(struct tool *t, int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (strcmp(verb, "sample") == 0 && argc == 2)
		return print_sample();
	if (strcmp(verb, "show") == 0 && argc == 2)
		return show(t);
	if (strcmp(verb, "check") == 0 && argc <= 3)
		return check(t, argc == 3 ? argv[2] : t->conf);
	return tool_usage(t, "sample, show or check [FILE]?");
}

const struct command command_config = {
	.name = "config",
	.summary = "print or check a configuration",
	.usage = "usage: leat config sample         every parameter with range, default, meaning\n"
		 "       leat config check [FILE]   is it right for all programs?\n"
		 "       leat config show           the values in force\n"
		 "Example: leat config sample > /etc/leat/leat.conf && leat config check\n",
	.run = run,
};
