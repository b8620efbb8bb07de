/* SPDX-License-Identifier: Apache-2.0 */
/* The Leat mounts of this machine, from /proc/self/mountinfo, and their virtual attributes. */
#include "tools/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tools/tool.h"

#define ATTRIBUTE_MAX (1u << 20)

/* mountinfo writes blanks and backslashes in octal. */
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

/* Calls match for each Leat mount; the last one that it accepts counts (later mounts are on
 * top). */
static bool search(bool (*match)(const struct leat_mount *m, unsigned major, unsigned minor,
				 const void *arg),
		   const void *arg, struct leat_mount *ret_mount)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t space = 0;
	bool found = false;

	while (f && getline(&line, &space, f) > 0) {
		struct leat_mount m;
		unsigned major, minor;
		char type[64];
		char *rest = strstr(line, " - ");

		if (!rest ||
		    sscanf(line, "%*d %*d %u:%u %*s %4095s", &major, &minor, m.mountpoint) != 3 ||
		    sscanf(rest, " - %63s %1023s", type, m.source) != 2 ||
		    strcmp(type, "fuse.leat") != 0)
			continue;
		unescape(m.mountpoint);
		unescape(m.source);
		if (match(&m, major, minor, arg)) {
			*ret_mount = m;
			found = true;
		}
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

static bool same_name(const struct leat_mount *m, unsigned major, unsigned minor, const void *arg)
{
	(void)major, (void)minor;
	return strcmp(m->mountpoint, arg) == 0;
}

bool mount_find(const char *mountpoint, struct leat_mount *ret_mount)
{
	return search(same_name, mountpoint, ret_mount);
}

/* True if path is at or below dir. */
static bool lies_below(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Gets the path within the file system that is mounted: a bind mount begins at root, a mount of a
 * subtree ("SOURCE/sub") at that. */
static bool inner_path(const struct leat_mount *m, const char *root, const char *path,
		       struct leat_inside *ret_in)
{
	const char *sub = strchr(m->source, '/');
	size_t n = strcmp(m->mountpoint, "/") == 0 ? 0 : strlen(m->mountpoint);
	int len = snprintf(ret_in->path, sizeof(ret_in->path), "%s%s%s", sub ? sub : "",
			   strcmp(root, "/") == 0 ? "" : root, path + n);

	if (len == 0)
		snprintf(ret_in->path, sizeof(ret_in->path), "/");
	return len >= 0 && (size_t)len < sizeof(ret_in->path);
}

bool mount_inside(const char *path, struct leat_inside *ret_in)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct leat_inside in = {.others_below = false};
	char *line = NULL, root[4096];
	size_t space = 0, best = 0;
	bool found = false;

	while (f && getline(&line, &space, f) > 0) {
		struct leat_mount m = {0};
		char type[64];
		char *rest = strstr(line, " - ");

		if (!rest ||
		    sscanf(line, "%*d %*d %*u:%*u %4095s %4095s", root, m.mountpoint) != 2 ||
		    sscanf(rest, " - %63s %1023s", type, m.source) != 2)
			continue;
		unescape(m.mountpoint);
		unescape(m.source);
		unescape(root);
		if (!lies_below(path, m.mountpoint)) {
			in.others_below |= lies_below(m.mountpoint, path);
		} else if (strlen(m.mountpoint) >= best) {
			best = strlen(m.mountpoint);
			in.mount = m;
			found = strcmp(type, "fuse.leat") == 0 && inner_path(&m, root, path, &in);
		}
	}
	free(line);
	if (f)
		fclose(f);
	if (found)
		*ret_in = in;
	return found;
}

void mount_addresses(const struct leat_mount *m, char *buf, size_t size)
{
	size_t len = strcspn(m->source, "/");

	if (len > 0 && m->source[len] == '/' && m->source[len - 1] == ':')
		len--;
	if (!memchr(m->source, ':', len) || (len == 5 && strncmp(m->source, "leat:", 5) == 0))
		len = 0;
	snprintf(buf, size, "%.*s", (int)len, m->source);
	for (char *p = buf; *p; p++)
		if (*p == ',')
			*p = ' ';
}

void mount_take_cluster(const struct leat_mount *m, struct tool *t)
{
	char mds[sizeof(t->cluster.mds)];

	mount_addresses(m, mds, sizeof(mds));
	if (mds[0])
		memcpy(t->cluster.mds, mds, strlen(mds) + 1);
}

static bool same_device(const struct leat_mount *m, unsigned major, unsigned minor, const void *arg)
{
	const struct statx *st = arg;

	(void)m;
	return st->stx_dev_major == major && st->stx_dev_minor == minor;
}

bool mount_of_path(const char *path, struct leat_mount *ret_mount)
{
	struct statx st;

	if (statx(AT_FDCWD, path, 0, STATX_TYPE, &st) < 0)
		return false;
	return search(same_device, &st, ret_mount);
}

char *virtual_attribute(const char *path, const char *name)
{
	char *text = NULL;
	ssize_t n = getxattr(path, name, NULL, 0);

	/* The text may grow between the two calls. */
	for (int tries = 0; n >= 0 && n < (ssize_t)ATTRIBUTE_MAX && tries < 4; tries++) {
		size_t space = (size_t)n + 256;
		char *more = realloc(text, space + 1);
		if (!more) {
			errno = ENOMEM;
			break;
		}
		text = more;
		n = getxattr(path, name, text, space);
		if (n >= 0) {
			text[n] = '\0';
			return text;
		}
		if (errno != ERANGE)
			break;
		n = getxattr(path, name, NULL, 0);
	}
	free(text);
	return NULL;
}

char *mount_status(const char *path)
{
	char *text = virtual_attribute(path, "system.leat.status");

	/* An older daemon has only that name. */
	return text || (errno != ENODATA && errno != EOPNOTSUPP)
		       ? text
		       : virtual_attribute(path, "leat.status");
}
