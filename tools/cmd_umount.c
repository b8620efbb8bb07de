/* SPDX-License-Identifier: Apache-2.0 */
/* leat umount: unmounts and waits until the mount's daemon has ended. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tools/mounts.h"
#include "tools/tool.h"

#define DAEMON_WAIT_S 30.0
#define TELL_AFTER_S  1.5

/* Returns the process id of the supervisor or daemon, or 0 if the daemon does not answer. */
static pid_t daemon_pid(const char *mountpoint)
{
	char *text = mount_status(mountpoint);
	json_t *status = text ? json_loads(text, 0, NULL) : NULL;
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "supervisor"));

	/* The supervisor ends last; some mounts have none. */
	if (pid == 0)
		pid = (pid_t)json_integer_value(json_object_get(status, "pid"));

	json_decref(status);
	free(text);
	return pid > 1 ? pid : 0;
}

/* Without permission to unmount, fusermount3 may unmount for the user of the mount. */
static int unmount(const char *mountpoint, bool lazy)
{
	char program[PATH_MAX];

	if (umount2(mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno != EPERM || !find_program("fusermount3", program, sizeof(program)))
		return -errno;
	const char *args[] = {program, "-u", lazy ? "-z" : mountpoint, lazy ? mountpoint : NULL,
			      NULL};
	return run_program(args) == 0 ? 0 : -EPERM;
}

/* Waits until the daemon has ended. Not called after a lazy unmount: the daemon then lives until
 * the last file is closed. */
static bool daemon_ended(pid_t pid)
{
	double start_s = now_s();
	bool told = false;

	while (kill(pid, 0) == 0 && !interrupted()) {
		if (now_s() > start_s + DAEMON_WAIT_S)
			return false;
		if (!told && now_s() > start_s + TELL_AFTER_S) {
			fprintf(stderr,
				"leat umount: the mount's daemon (process %d) is still writing "
				"data to the servers. To end it now and lose that data: kill -9 "
				"%d\n",
				(int)pid, (int)pid);
			told = true;
		}
		usleep(5000);
	}
	return !interrupted();
}

/* realpath(3) sends a request to the mount, and fails if its daemon has died. */
static bool canonical(const char *path, char ret_path[PATH_MAX])
{
	char *slash, copy[PATH_MAX];

	if (realpath(path, ret_path))
		return true;
	snprintf(copy, sizeof(copy), "%s", path);
	for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
		copy[n - 1] = '\0';
	slash = strrchr(copy, '/');
	if (!slash) {
		size_t n = getcwd(ret_path, PATH_MAX) ? strlen(ret_path) : 0;
		return n > 0 &&
		       snprintf(ret_path + n, PATH_MAX - n, "/%s", copy) < (int)(PATH_MAX - n);
	}
	if (slash == copy)
		return snprintf(ret_path, PATH_MAX, "%s", copy) < PATH_MAX;
	*slash = '\0';
	if (!realpath(copy, ret_path))
		return false;
	size_t n = strlen(ret_path);
	return snprintf(ret_path + n, PATH_MAX - n, "/%s", slash + 1) < (int)(PATH_MAX - n);
}

static int run(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {{"lazy", no_argument, NULL, 'l'}, {NULL, 0, NULL, 0}};
	char path[PATH_MAX];
	struct leat_mount m;
	bool lazy = false;
	int c, status;

	while ((c = getopt_long(argc, argv, "l", longs, NULL)) != -1) {
		if (c != 'l')
			return tool_usage(t, "wrong options");
		lazy = true;
	}
	if (argc - optind != 1)
		return tool_usage(t, argc == optind ? "MOUNTPOINT is missing"
						    : "too many arguments");
	if (!canonical(argv[optind], path) || !mount_find(path, &m))
		return tool_error(t, EXIT_MISSING,
				  "`findmnt -t fuse.leat` lists the mounts of this machine.",
				  "no Leat mount at %s", argv[optind]);
	catch_interrupts();
	pid_t pid = daemon_pid(path);
	status = unmount(path, lazy);
	if (status == -EBUSY)
		return tool_error(t, EXIT_FAILED,
				  "`fuser -vm MOUNTPOINT` lists the processes that use it; --lazy "
				  "unmounts when they have ended.",
				  "%s is in use", path);
	if (status < 0)
		return tool_error(t, exit_of_errno(-status), NULL, "%s: %s", path,
				  strerror(-status));
	if (pid && !lazy && !daemon_ended(pid))
		return tool_error(t, interrupted() ? EXIT_INTERRUPTED : EXIT_TIMEOUT,
				  "The daemon ends when all data is on the servers, or cannot be "
				  "written to them.",
				  "%s is unmounted, but its daemon (process %d) still runs", path,
				  (int)pid);
	if (t->json)
		return tool_print_json(json_pack("{s:s,s:b}", "mountpoint", path, "mounted", 0));
	printf("%s unmounted\n", path);
	return EXIT_OK;
}

const struct command command_umount = {
	.name = "umount",
	.summary = "unmount, and wait until all data is written",
	.usage = "usage: leat umount [--lazy] MOUNTPOINT\n"
		 "Unmounts, and waits until the daemon of the mount has ended. Works also if the "
		 "daemon\n"
		 "has died.\n"
		 "  -l, --lazy   unmount for new users now, for others when they have\n"
		 "               closed their files\n"
		 "Example: leat umount /mnt/leat\n",
	.run = run,
};
