/* SPDX-License-Identifier: Apache-2.0 */
/* leat agent: the daemon that stages data for its node. Runs until SIGTERM. */
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include <leat/leat_stage.h>

#include "common/base/log.h"
#include "common/base/notify.h"
#include "tools/cmd_config.h"
#include "tools/source.h"

#define SETS_MAX 32

static int write_ready(const struct tool *t, const char *path, const struct leat_agent *agent)
{
	FILE *f = path ? fopen(path, "we") : NULL;

	if (!path)
		return EXIT_OK;
	if (!f)
		return tool_error(t, EXIT_FAILED, NULL, "%s: %m", path);
	fprintf(f, "%s\n", leat_agent_addr(agent));
	fclose(f);
	return EXIT_OK;
}

static int serve(struct tool *t, const char *const *sets, const char *ready)
{
	struct leat_agent *agent;
	struct leat_fs *fs = NULL;

	notify_init();
	log_never_wait();
	notify_status("waits for the metadata server of %s", tool_conf_name(t));
	int code = source_connect(t, NULL, &fs);

	if (code != EXIT_OK)
		return code;
	log_set_level(LOG_INFO);
	int rc = leat_agent_start(fs, t->conf, sets, &agent);
	if (rc < 0) {
		leat_close_fs(fs);
		return tool_error(t, exit_of_status(rc), "`leat config check` checks section "
							 "[agent].",
				  "cannot start: %s", leat_strerror(rc));
	}
	log_info("agent at %s", leat_agent_addr(agent));
	code = write_ready(t, ready, agent);
	if (code == EXIT_OK)
		notify_ready();
	while (code == EXIT_OK && !interrupted())
		pause();
	notify_stopping();
	leat_agent_stop(agent);
	leat_close_fs(fs);
	return code;
}

static int run(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"set", required_argument, NULL, 's'},
		{"ready-file", required_argument, NULL, 'r'},
		{"check-config", no_argument, NULL, 'k'},
		{NULL, 0, NULL, 0},
	};
	const char *sets[SETS_MAX + 1] = {NULL}, *ready = NULL;
	bool check = false;
	int c, n = 0;

	optind = 0;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's' && n < SETS_MAX)
			sets[n++] = optarg;
		else if (c == 'r')
			ready = optarg;
		else if (c == 'k')
			check = true;
		else
			return tool_usage(t, "wrong options");
	}
	if (check) {
		bool given = optind < argc || !t->conf;

		return config_check_agent(given ? argv + optind : (char **)&t->conf,
					  given ? argc - optind : 1);
	}
	if (optind != argc)
		return tool_usage(t, "too many arguments");
	c = agent_config_check(t);
	if (c != EXIT_OK)
		return c;
	catch_interrupts();
	return serve(t, sets, ready);
}

const struct command command_agent = {
	.name = "agent",
	.summary = "the daemon of a node that stages data",
	.usage = "usage: leat agent [--set NAME=VALUE]... [--ready-file PATH]\n"
		 "       leat agent --check-config [FILE]...\n"
		 "Makes copies of data sets on request (leat stage in --agent, --nodes), serves "
		 "chunks\n"
		 "to the agents of other nodes, so that each is read from the servers about once, "
		 "and\n"
		 "keeps the copies within their capacity. Runs until SIGTERM.\n"
		 "  --set NAME=VALUE   a parameter of section [agent]\n"
		 "  --ready-file PATH  receives the address of the agent once it serves\n"
		 "  --check-config     only checks whether it would start with this\n"
		 "                     configuration and its key\n"
		 "Example: leat agent --set dirs=/local/nvme --set metrics=127.0.0.1:9460\n",
	.run = run,
};
