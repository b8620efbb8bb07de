/*
 * leat: the command line. A table of subcommands, each in a file of its own (cmd_NAME.c).
 *
 *   global options (anywhere) → subcommand by name → its run() → enum exit_status
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "tools/tool.h"

static const struct command *const commands[] = {
	&command_mount,  &command_umount,  &command_status, &command_df,    &command_layout,
	&command_quota,  &command_dataset, &command_stage,  &command_scrub, &command_bench,
	&command_config, &command_target,  &command_fsck,   &command_agent, &command_cp,
	&command_rm,     &command_du,      &command_export,
};

static void usage(FILE *out)
{
	fputs("usage: leat [--conf FILE] [--json] COMMAND [ARGUMENTS]\n\ncommands:\n", out);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
	fputs("\noptions of all commands:\n"
	      "  --conf FILE   configuration (default $LEAT_CONF, else /etc/leat/leat.conf)\n"
	      "  --json        results as JSON on stdout\n"
	      "  --help        what a command does, with examples\n"
	      "  --version     print the version\n"
	      "\n`leat COMMAND --help` says more. Example: leat status\n",
	      out);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

struct globals {
	struct tool tool;
	bool help, version;
	const char *problem; /* an option without its value */
};

/* Of the n words that were left in argv the second is the command. */
static bool own_h(int n, char **argv)
{
	const struct command *command = n >= 2 ? find_command(argv[1]) : NULL;

	return command && command->own_h;
}

/* Takes the global options out of argv, wherever they stand before "--". Returns the new argc. */
static int take_globals(struct globals *g, int argc, char **argv)
{
	int n = 0;

	for (int i = 0; i < argc; i++) {
		const char *a = argv[i];
		if (strcmp(a, "--") == 0) {
			while (i < argc)
				argv[n++] = argv[i++];
		} else if (strcmp(a, "--json") == 0) {
			g->tool.json = true;
		} else if (strcmp(a, "--help") == 0 || (strcmp(a, "-h") == 0 && !own_h(n, argv))) {
			g->help = true;
		} else if (strcmp(a, "--version") == 0) {
			g->version = true;
		} else if (strncmp(a, "--conf=", 7) == 0) {
			g->tool.conf = a + 7;
		} else if (strcmp(a, "--conf") == 0) {
			if (i + 1 == argc)
				g->problem = "--conf needs a file name";
			else
				g->tool.conf = argv[++i];
		} else {
			argv[n++] = argv[i];
		}
	}
	argv[n] = NULL;
	return n;
}

int main(int argc, char **argv)
{
	struct globals g = {.tool.command = ""};
	const struct command *command;

	log_init("leat", LOG_ERROR);
	signal(SIGPIPE, SIG_IGN);
	argc = take_globals(&g, argc, argv);
	if (g.problem)
		return tool_usage(&g.tool, "%s", g.problem);
	if (g.version) {
		puts("leat " LEAT_VERSION);
		return EXIT_OK;
	}
	if (argc < 2) {
		usage(g.help ? stdout : stderr);
		return g.help ? EXIT_OK : EXIT_USAGE;
	}
	command = find_command(argv[1]);
	if (!command)
		return tool_usage(&g.tool,
				  argv[1][0] == '-' ? "unknown option '%s'" : "no command '%s'",
				  argv[1]);
	g.tool.command = command->name;
	if (g.help) {
		fputs(command->usage, stdout);
		return EXIT_OK;
	}
	int code = command->run(&g.tool, argc - 1, argv + 1);
	if (fflush(stdout) != 0 && code == EXIT_OK)
		return tool_error(&g.tool, EXIT_FAILED, NULL, "cannot write the output: %m");
	return code;
}
