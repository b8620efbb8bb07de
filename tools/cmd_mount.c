/* SPDX-License-Identifier: Apache-2.0 */
/* leat mount: checks, then mount.leat. Like `mount -t fuse.leat`, with better messages. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/mount_upgrade.h"
#include "tools/mounts.h"
#include "tools/tool.h"

#define OPTIONS_SIZE 4096

struct mount_request {
	const char *source;
	char mountpoint[PATH_MAX];
	char options[OPTIONS_SIZE];
	size_t n_given; /* length of its part that is not from -o */
	bool upgrade;
	const char *path; /* of --upgrade */
};

static int add_option(struct tool *t, struct mount_request *m, const char *text)
{
	size_t len = strlen(m->options);
	int n = snprintf(m->options + len, sizeof(m->options) - len, "%s%s", len ? "," : "", text);

	if (n < 0 || (size_t)n >= sizeof(m->options) - len)
		return tool_usage(t, "-o: more than %d bytes", OPTIONS_SIZE - 1);
	return EXIT_OK;
}

static int check_mountpoint(struct tool *t, const char *path, struct mount_request *m)
{
	struct leat_mount there;
	struct stat st;

	if (!realpath(path, m->mountpoint)) {
		int err = errno;
		return tool_error(t, exit_of_errno(err),
				  err == ENOENT ? "Create it first: mkdir -p PATH" : NULL,
				  "%s: %s%s", path, strerror(err),
				  err == ENOTCONN ? " (the daemon of this mount has died; run "
						    "`leat umount`)"
						  : "");
	}
	if (mount_find(m->mountpoint, &there))
		return tool_error(t, EXIT_FAILED, "Run `leat umount` first, or use another "
						  "directory.",
				  "%s: %s is mounted there already", m->mountpoint, there.source);
	if (stat(m->mountpoint, &st) < 0)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", m->mountpoint);
	if (!S_ISDIR(st.st_mode))
		return tool_error(t, EXIT_MISSING, NULL, "%s: not a directory", m->mountpoint);
	return EXIT_OK;
}

static int parse(struct tool *t, int argc, char **argv, struct mount_request *m)
{
	static const struct option longs[] = {
		{"options", required_argument, NULL, 'o'},
		{"upgrade", no_argument, NULL, 'u'},
		{NULL, 0, NULL, 0},
	};
	char conf[PATH_MAX], text[PATH_MAX + 8];
	int c, code;

	*m = (struct mount_request){.source = "leat"};
	if (t->conf) {
		if (!realpath(t->conf, conf))
			return tool_error(t, EXIT_USAGE, NULL, "%s: %m", t->conf);
		snprintf(text, sizeof(text), "conf=%s", conf);
		add_option(t, m, text);
		m->n_given = strlen(m->options);
	}
	while ((c = getopt_long(argc, argv, "o:", longs, NULL)) != -1) {
		if (c == 'u') {
			m->upgrade = true;
			continue;
		}
		if (c != 'o')
			return tool_usage(t, "wrong options");
		code = add_option(t, m, optarg);
		if (code != EXIT_OK)
			return code;
	}
	if (argc - optind < 1 || argc - optind > 2)
		return tool_usage(t, argc == optind ? "MOUNTPOINT is missing"
						    : "too many arguments");
	if (m->upgrade) {
		if (argc - optind != 1 || m->options[m->n_given] != '\0')
			return tool_usage(t, "--upgrade takes a mount point and nothing else");
		m->path = argv[optind];
		return EXIT_OK;
	}
	if (argc - optind == 2)
		m->source = argv[optind++];
	return check_mountpoint(t, argv[optind], m);
}

static int run(struct tool *t, int argc, char **argv)
{
	struct mount_request m;
	char program[PATH_MAX];
	int code = parse(t, argc, argv, &m), status;

	if (code != EXIT_OK)
		return code;
	if (m.upgrade)
		return mount_upgrade(t, m.path);
	if (access("/dev/fuse", F_OK) < 0)
		return tool_error(t, EXIT_FAILED, "Load the module: modprobe fuse",
				  "/dev/fuse does not exist");
	if (!find_program("mount.leat", program, sizeof(program)))
		return tool_error(t, EXIT_FAILED,
				  "mount.leat must be in the folder of leat or in an sbin folder: "
				  "make install",
				  "mount.leat is not installed");
	const char *args[8] = {program, m.source, m.mountpoint};
	if (m.options[0]) {
		args[3] = "-o";
		args[4] = m.options;
	}
	status = run_program(args);
	if (status < 0)
		return tool_error(t, EXIT_FAILED, NULL, "%s: %s", program, strerror(-status));
	if (status != 0) /* 32 of mount(8): not mounted; mount.leat has printed why */
		return tool_error(t, status == 32 ? EXIT_UNREACHABLE : EXIT_USAGE,
				  "The reason is above; `leat status` shows whether the servers "
				  "answer.",
				  "%s: not mounted", m.mountpoint);
	if (t->json)
		return tool_print_json(json_pack("{s:s,s:s,s:b}", "mountpoint", m.mountpoint,
						 "source", m.source, "mounted", 1));
	printf("%s mounted at %s\n", m.source, m.mountpoint);
	return EXIT_OK;
}

const struct command command_mount = {
	.name = "mount",
	.summary = "mount the namespace",
	.usage = "usage: leat mount [-o OPTION[=VALUE],...] [SOURCE] MOUNTPOINT\n"
		 "       leat mount --upgrade MOUNTPOINT\n"
		 "Mounts the namespace of a cluster. SOURCE: host:port of the metadata server;\n"
		 "without it, as leat.conf says. Options: see mount.leat(8). --upgrade replaces "
		 "the\n"
		 "daemon of a mount by the installed one; programs wait meanwhile.\n"
		 "Examples:\n"
		 "  leat mount /mnt/leat\n"
		 "  leat mount -o ro mds1:7440 /mnt/leat\n"
		 "  leat mount --upgrade /mnt/leat\n",
	.run = run,
};
