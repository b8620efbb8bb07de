/* SPDX-License-Identifier: Apache-2.0 */
/* leat mount --upgrade: has the supervisor of a mount replace its daemon by the installed
 * program. */
#include "tools/mount_upgrade.h"

#include <errno.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/mounts.h"
#include "tools/tool.h"

#define WAIT_S  60.0
#define LOOK_US 20000

static json_t *ask_status(const char *mountpoint)
{
	char *text = virtual_attribute(mountpoint, "leat.status");
	json_t *status = text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	return status;
}

static json_int_t member(const json_t *status, const char *name)
{
	return json_integer_value(json_object_get(status, name));
}

/* Waits until a counter has changed: 1: the daemon was replaced; 0: it refused; -1: neither in
 * time. */
static int await_change(const char *mountpoint, const json_t *before)
{
	double until_s = now_s() + WAIT_S;
	int result = -1;

	while (result < 0 && now_s() < until_s && !interrupted()) {
		json_t *s = ask_status(mountpoint);

		if (s && member(s, "upgrades") != member(before, "upgrades"))
			result = 1;
		else if (s && member(s, "upgrades_failed") != member(before, "upgrades_failed"))
			result = 0;
		json_decref(s);
		if (result < 0)
			usleep(LOOK_US);
	}
	return result;
}

static int report(struct tool *t, const char *mountpoint, double took_s)
{
	json_t *s = ask_status(mountpoint);
	const char *version = json_string_value(json_object_get(s, "version"));
	int code = EXIT_OK;

	if (t->json)
		code = tool_print_json(json_pack("{s:s,s:b,s:s*}", "mountpoint", mountpoint,
						 "replaced", 1, "version", version));
	else
		printf("%s: the daemon is %s now, after %.2f s\n", mountpoint,
		       version ? version : "another one", took_s);
	json_decref(s);
	return code;
}

/* Returns the user of the mount, according to the kernel; -1: unknown. */
static long mount_owner(const char *mountpoint)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent *e;
	long uid = -1;

	while (f && (e = getmntent(f)) != NULL) {
		const char *opt = hasmntopt(e, "user_id");

		if (opt && strcmp(e->mnt_dir, mountpoint) == 0)
			(void)sscanf(opt, "user_id=%ld", &uid); /* later lines are on top */
	}
	if (f)
		endmntent(f);
	return uid;
}

/* True if the process is the supervisor of the mount. The daemon has reported its number: a file
 * system of another user, or of another pid namespace, could name any process. */
static bool is_supervisor(pid_t pid, const char *mountpoint)
{
	char path[64], name[32] = "";
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (fstat(fileno(f), &st) < 0 || !fgets(name, sizeof(name), f))
		name[0] = '\0';
	fclose(f);
	name[strcspn(name, "\n")] = '\0';
	return (strcmp(name, "mount.leat") == 0 || strcmp(name, "mount.fuse.leat") == 0) &&
	       (long)st.st_uid == mount_owner(mountpoint);
}

int mount_upgrade(struct tool *t, const char *path)
{
	struct leat_mount m;
	json_t *before;
	pid_t supervisor;
	double start_s;
	int result;

	if (!mount_of_path(path, &m))
		return tool_error(t, EXIT_MISSING,
				  "`findmnt -t fuse.leat` lists the mounts of this machine.",
				  "%s is not on a Leat mount", path);
	before = ask_status(m.mountpoint);
	supervisor = (pid_t)member(before, "supervisor");
	if (supervisor <= 1) {
		json_decref(before);
		return tool_error(t, EXIT_FAILED, "Unmount it and mount it again.",
				  "%s has no supervisor (supervise=no, or stage_dir is set)",
				  m.mountpoint);
	}
	if (!is_supervisor(supervisor, m.mountpoint)) {
		json_decref(before);
		return tool_error(t, EXIT_FAILED, "Run this where it was mounted, or send SIGHUP "
						  "to its supervisor.",
				  "%s: process %d is not its supervisor", m.mountpoint,
				  (int)supervisor);
	}
	start_s = now_s();
	if (kill(supervisor, SIGHUP) < 0) {
		json_decref(before);
		return tool_error(t, exit_of_errno(errno), "Run this as the user who mounted the "
							   "file system.",
				  "%s: %m", m.mountpoint);
	}
	result = await_change(m.mountpoint, before);
	json_decref(before);
	if (result == 1)
		return report(t, m.mountpoint, now_s() - start_s);
	if (result == 0)
		return tool_error(t, EXIT_FAILED, "The log of the mount has the reason.",
				  "%s: not replaced, the previous daemon continues", m.mountpoint);
	return tool_error(t, EXIT_TIMEOUT, "`leat status MOUNTPOINT` shows when the daemon has "
					   "been replaced.",
			  "%s: not replaced yet", m.mountpoint);
}
