/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat: the command line. A table of subcommands, each in its own file (cmd_NAME.c).
 *
 *   global options (anywhere) → subcommand by name → its run() → enum exit_status
 */
#include <limits.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/build.h"
#include "common/base/log.h"
#include "tools/help.h"
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
	fputs("  help      what a command, or a verb of it, does: leat help stage in\n"
	      "  version   print the version\n"
	      "\noptions of all commands:\n"
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

/* True if the command among the n words that remain in argv (the second one) has its own -h. */
static bool own_h(int n, char **argv)
{
	const struct command *command = n >= 2 ? find_command(argv[1]) : NULL;

	return command && command->own_h;
}

/* Takes the global options out of argv, wherever they are before "--". Returns the new argc. */
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

/* If mount(8) does not find mount.leat it starts mount.fuse, of libfuse, which starts the program
 * that has the name of the file system type: this one, with SOURCE MOUNTPOINT -o OPTIONS. */
static bool is_mount_request(int argc, char **argv)
{
	return argc == 5 && argv[2][0] == '/' && strcmp(argv[3], "-o") == 0;
}

static int refuse_mount_request(const struct tool *t)
{
	char program[PATH_MAX], path[PATH_MAX], hint[PATH_MAX + 256];
	bool found = find_program("mount.leat", program, sizeof(program)) &&
		     realpath(program, path) != NULL;

	snprintf(hint, sizeof(hint),
		 "Make that link: ln -s %s /sbin/mount.fuse.leat (`make install` does); or mount "
		 "by `leat mount`.",
		 found ? path : "/usr/local/sbin/mount.leat");
	return tool_error(t, EXIT_USAGE, hint,
			  "mount(8) has not found /sbin/mount.fuse.leat, and has started `leat` in "
			  "its place: nothing is mounted");
}

static int no_command(const struct tool *t, const char *name)
{
	const char *names[ARRAY_SIZE(commands) + 2], *near;
	size_t n = 0;

	if (name[0] == '-')
		return tool_usage(t, "unknown option '%s'", name);
	for (; n < ARRAY_SIZE(commands); n++)
		names[n] = commands[n]->name;
	names[n++] = "help";
	names[n++] = "version";
	near = help_nearest(name, names, n);
	if (near)
		return tool_usage(t, "unknown command '%s': did you mean '%s'?", name, near);
	return tool_usage(t, "unknown command '%s'", name);
}

/* `leat help [COMMAND [VERB]]`, also for --help. */
static int help(const struct tool *t, const char *name, const char *verb)
{
	const struct command *command = name ? find_command(name) : NULL;

	if (name && !command && strcmp(name, "help") != 0 && strcmp(name, "version") != 0)
		return no_command(t, name);
	if (command)
		help_print(command, verb, stdout);
	else
		usage(stdout);
	return EXIT_OK;
}

static int version(void)
{
	printf("leat %s\n", leat_build);
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	struct globals g = {.tool.command = ""};
	const struct command *command;

	log_init("leat", LOG_ERROR);
	signal(SIGPIPE, SIG_IGN);
	opterr = 0; /* tool_usage prints it, with a suggestion */
	argc = take_globals(&g, argc, argv);
	if (g.problem)
		return tool_usage(&g.tool, "%s", g.problem);
	if (g.version)
		return version();
	if (argc < 2 && !g.help) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (g.help)
		return help(&g.tool, argv[1], argc > 2 ? argv[2] : NULL);
	if (strcmp(argv[1], "help") == 0)
		return help(&g.tool, argv[2], argc > 3 ? argv[3] : NULL);
	if (strcmp(argv[1], "version") == 0)
		return version();
	command = find_command(argv[1]);
	if (!command && is_mount_request(argc, argv))
		return refuse_mount_request(&g.tool);
	if (!command)
		return no_command(&g.tool, argv[1]);
	g.tool.command = command->name;
	g.tool.of = command;
	g.tool.argc = argc - 2;
	g.tool.argv = argv + 2;
	int code = command->run(&g.tool, argc - 1, argv + 1);
	if (fflush(stdout) != 0 && code == EXIT_OK)
		return tool_error(&g.tool, EXIT_FAILED, NULL, "cannot write the output: %m");
	return code;
}
