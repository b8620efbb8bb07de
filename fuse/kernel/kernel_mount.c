/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls mount(2) itself, because libfuse supports fewer flags, forbids devices and set-user-id by
 * default, and truncates a source at its first comma.
 */
#include "fuse/kernel/kernel_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "fuse/options.h"

#define FS_TYPE "fuse.leat"

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif

static const struct {
	const char *word;
	unsigned long flag;
	bool on;
} flag_words[] = {
	{"ro", MS_RDONLY, true},
	{"rw", MS_RDONLY, false},
	{"nosuid", MS_NOSUID, true},
	{"suid", MS_NOSUID, false},
	{"nodev", MS_NODEV, true},
	{"dev", MS_NODEV, false},
	/* mount(8) does not pass on suid and dev, since they are its defaults. It passes these on
	 * after its own words, so they lift the default only, and no nosuid or nodev. */
	{"allow_suid", MS_NOSUID, false},
	{"allow_dev", MS_NODEV, false},
	{"noexec", MS_NOEXEC, true},
	{"exec", MS_NOEXEC, false},
	{"sync", MS_SYNCHRONOUS, true},
	{"async", MS_SYNCHRONOUS, false},
	{"dirsync", MS_DIRSYNC, true},
	{"noatime", MS_NOATIME, true},
	{"atime", MS_NOATIME, false},
	{"nodiratime", MS_NODIRATIME, true},
	{"diratime", MS_NODIRATIME, false},
	{"relatime", MS_RELATIME, true},
	{"norelatime", MS_RELATIME, false},
	{"strictatime", MS_STRICTATIME, true},
	{"nostrictatime", MS_STRICTATIME, false},
	{"lazytime", MS_LAZYTIME, true},
	{"nolazytime", MS_LAZYTIME, false},
	{"nosymfollow", MS_NOSYMFOLLOW, true},
	{"symfollow", MS_NOSYMFOLLOW, false},
	{"silent", MS_SILENT, true},
	{"loud", MS_SILENT, false},
};

bool kernel_flag_word(const char *word, unsigned long *flags, unsigned long *said)
{
	for (size_t i = 0; i < ARRAY_SIZE(flag_words); i++) {
		if (strcmp(word, flag_words[i].word) != 0)
			continue;
		if (strncmp(word, "allow_", 6) == 0 && (*said & flag_words[i].flag))
			return true;
		if (flag_words[i].on)
			*flags |= flag_words[i].flag;
		else
			*flags &= ~flag_words[i].flag;
		*said |= flag_words[i].flag;
		return true;
	}
	return false;
}

int kernel_mount(const struct mount_options *o, int *ret_fd)
{
	char data[256];
	int fd = *ret_fd;

	if (fd < 0)
		fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno;
	snprintf(data, sizeof(data), "fd=%d,rootmode=%o,user_id=%u,group_id=%u,%s%s", fd, S_IFDIR,
		 getuid(), getgid(), "default_permissions",
		 o->mount.allow_other ? ",allow_other" : "");
	if (mount(o->source, o->mountpoint, FS_TYPE, o->ms_flags, data) < 0) {
		int err = errno;
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int kernel_remount(const struct mount_options *o)
{
	unsigned long unsaid = (MS_NOSUID | MS_NODEV) & ~o->ms_said, flags = o->ms_flags & ~unsaid;
	struct kernel_mount_info info;

	/* mount(2) would change any other file system, too. */
	if (!kernel_mount_find(o->mountpoint, &info) || !info.is_leat)
		return EINVAL;
	flags |= info.flags & unsaid;
	if (mount(o->source, o->mountpoint, NULL, MS_REMOUNT | flags, NULL) < 0)
		return errno;
	return 0;
}

void kernel_unmount(const char *mountpoint, int fd)
{
	struct pollfd p = {.fd = fd};

	if (poll(&p, 1, 0) == 1 && (p.revents & POLLERR))
		return;
	if (umount2(mountpoint, MNT_DETACH) < 0)
		log_warn("umount %s: %s", mountpoint, strerror(errno));
}

static unsigned long flags_of(const char *options)
{
	unsigned long flags = 0, said = 0;
	char text[512], *save = NULL;

	snprintf(text, sizeof(text), "%s", options);
	for (char *w = strtok_r(text, ",", &save); w; w = strtok_r(NULL, ",", &save))
		(void)kernel_flag_word(w, &flags, &said);
	return flags & (MS_NOSUID | MS_NODEV);
}

/* mountinfo writes blanks, line ends and backslashes in octal. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

bool kernel_mount_find(const char *mountpoint, struct kernel_mount_info *ret_info)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, *point = NULL, *words = NULL;
	bool found = false;
	size_t space = 0;

	while (f && getline(&line, &space, f) > 0) {
		unsigned dev_major, dev_minor;
		char *rest = strstr(line, " - ");

		free(point);
		free(words);
		point = words = NULL;
		if (!rest || sscanf(line, "%*d %*d %u:%u %*s %ms %ms", &dev_major, &dev_minor,
				    &point, &words) != 4)
			continue;
		unescape(point);
		if (strcmp(point, mountpoint) != 0)
			continue;
		/* Later lines are on top. */
		*ret_info = (struct kernel_mount_info){
			dev_major,
			dev_minor,
			strncmp(rest + 3, FS_TYPE " ", sizeof(FS_TYPE)) == 0,
			flags_of(words),
		};
		found = true;
	}
	free(point);
	free(words);
	free(line);
	if (f)
		fclose(f);
	return found;
}
