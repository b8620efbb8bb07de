/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/mounts.h"
#include "tools/progress.h"

#define SCHEME     "leat:/"
#define FAILED_MAX 1000u

/* ---- paths ---- */

bool tree_ends_in(const char *text, const char *name)
{
	size_t len = strlen(text), n = strlen(name);

	while (len > 0 && text[len - 1] == '/')
		len--;
	return len >= n && memcmp(text + len - n, name, n) == 0 &&
	       (len == n || text[len - n - 1] == '/');
}

/* Removes slashes, and components that are only a dot, from the end. */
static void trim(char *path)
{
	size_t len = strlen(path);

	while (len > 1 && (path[len - 1] == '/' ||
			   (path[len - 1] == '.' && path[len - 2] == '/')))
		path[--len] = '\0';
}

/* Prints the reason of errno.h for which the path cannot be used. Returns the exit status. */
static int no_path(const struct tool *t, const char *text, int err, bool may_miss)
{
	int code = exit_of_errno(err);

	if (may_miss && code == EXIT_MISSING)
		return code;
	return tool_error(t, code, NULL, "%s: %s", *text ? text : "''", strerror(err));
}

/* Makes the directory canonical. The last component stays as it is: it may be a link, or not
 * exist. */
static int canonical(const struct tool *t, const char *text, bool may_miss, char full[PATH_MAX])
{
	char copy[PATH_MAX], dir[PATH_MAX];
	size_t len = strlen(text);
	const char *last;
	char *slash;

	if (len == 0)
		return no_path(t, text, ENOENT, may_miss);
	if (len >= sizeof(copy))
		return tool_too_long(t, text);
	memcpy(copy, text, len + 1);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	last = slash ? slash + 1 : copy;
	if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
		if (realpath(copy, full))
			return EXIT_OK;
		return no_path(t, text, errno, may_miss);
	}
	if (slash)
		*slash = '\0';
	if (!realpath(!slash ? "." : *copy ? copy : "/", dir))
		return no_path(t, text, errno, may_miss);
	if (snprintf(full, PATH_MAX, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, last) >= PATH_MAX)
		return tool_too_long(t, text);
	return EXIT_OK;
}

int tree_parse(const struct tool *t, const char *text, bool may_miss, struct tree_path *ret_path)
{
	struct tree_path *p = ret_path;
	struct leat_inside in;
	struct stat st;
	int code;

	memset(p, 0, sizeof(*p));
	p->text = text;
	if (strncmp(text, SCHEME, strlen(SCHEME)) == 0) {
		/* Truncated, it would name another file. */
		if (snprintf(p->name, sizeof(p->name), "%s", text + strlen(SCHEME) - 1) >=
		    (int)sizeof(p->name))
			return tool_too_long(t, text);
		trim(p->name);
		p->servers = p->forced = true;
		p->top = p->name[strspn(p->name, "/")] == '\0';
		return EXIT_OK;
	}
	code = canonical(t, text, may_miss, p->full);
	if (code != EXIT_OK)
		return code;
	p->exists = lstat(p->full, &st) == 0;
	if (p->exists ? !S_ISDIR(st.st_mode) && text[strlen(text) - 1] == '/' : errno == ENOTDIR)
		return no_path(t, text, ENOTDIR, may_miss);
	p->top = strcmp(p->full, "/") == 0;
	if (!mount_inside(p->full, &in))
		return EXIT_OK;
	p->top |= strcmp(p->full, in.mount.mountpoint) == 0;
	snprintf(p->name, sizeof(p->name), "%s", in.path);
	mount_addresses(&in.mount, p->mds, sizeof(p->mds));
	p->servers = !in.others_below;
	return EXIT_OK;
}

static void parent_of(const char *path, char buf[PATH_MAX])
{
	char *slash;

	snprintf(buf, PATH_MAX, "%s", path);
	slash = strrchr(buf, '/');
	if (slash == buf)
		slash++;
	*slash = '\0';
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* True if the servers have the inode that the mount shows. The change time excludes an inode with
 * the same number in another cluster. It may change between the two calls, so they are repeated. */
static bool is_same(struct leat_fs *fs, const struct tree_path *p)
{
	char full[PATH_MAX], name[PATH_MAX];
	struct leat_stat ls;
	struct stat st;

	snprintf(full, sizeof(full), "%s", p->full);
	snprintf(name, sizeof(name), "%s", p->name);
	if (!p->exists) {
		parent_of(p->full, full);
		parent_of(p->name, name);
	}
	for (int tries = 0; tries < 5; tries++) {
		if (lstat(full, &st) < 0 || leat_lstat(fs, name, &ls) < 0)
			return false;
		if (st.st_ino != ls.ino || ((st.st_mode ^ ls.mode) & S_IFMT))
			return false;
		if (same_time(st.st_ctim, ls.ctime))
			return true;
	}
	return false;
}

bool tree_servers_have(const struct tree_tool *tt, const struct tree_path *p)
{
	return p->servers || (tt->fs && is_same(tt->fs, p));
}

/* A read-only mount forbids changes at the servers too. */
static bool is_read_only(const struct tree_path *p)
{
	char dir[PATH_MAX];
	struct statvfs v;

	parent_of(p->full, dir);
	return statvfs(p->top ? p->full : dir, &v) == 0 && (v.f_flag & ST_RDONLY);
}

static bool key_is_readable(struct tool *t, int *ret_code)
{
	*ret_code = tool_load_conf(t);
	return *ret_code == EXIT_OK && access(t->cluster.key_file, R_OK) == 0;
}

static void decide(struct tree_tool *tt, struct tree_path *p, bool change)
{
	if (!p->forced && p->servers)
		p->servers = tt->fs && !(change && is_read_only(p)) && is_same(tt->fs, p);
}

int tree_connect(struct tree_tool *tt, struct tree_path *paths, int n, int changed)
{
	char why[LEAT_MESSAGE_SIZE] = "";
	struct leat_options o = {
		.size = sizeof(o), .name = "leat", .message = why, .message_size = sizeof(why)};
	struct tree_path *first = NULL;
	bool forced = false;
	int code, rc;

	for (int i = 0; i < n; i++) {
		if (!paths[i].servers)
			continue;
		first = first ? first : &paths[i];
		forced |= paths[i].forced;
		/* Paths of a second cluster are reached through its mount. */
		if (strcmp(first->mds, paths[i].mds) != 0 && !paths[i].forced)
			paths[i].servers = false;
	}
	if (!first)
		return EXIT_OK;
	if (key_is_readable(tt->t, &code) || forced) {
		o.mds = first->mds[0] ? first->mds : NULL;
		rc = leat_open_fs(tt->t->conf, &o, &tt->fs);
		if (rc < 0 && forced)
			return tool_error(tt->t, exit_of_status(rc), tool_server_hint(tt->t, rc),
					  "no connection to the metadata server of %s: %s",
					  o.mds ? o.mds : tool_conf_name(tt->t), why);
	}
	for (int i = 0; i < n; i++)
		decide(tt, &paths[i], i >= changed);
	return EXIT_OK;
}

struct leat_fs *tree_at(struct tree_tool *tt, const struct tree_path *p)
{
	tt->at = p;
	tt->by_servers |= p->servers;
	return p->servers ? tt->fs : NULL;
}

const char *tree_name(const struct tree_path *p)
{
	return p->servers ? p->name : p->full;
}

/* ---- reporting ---- */

char *tree_user_path(const struct tree_path *p, const char *path)
{
	size_t n = strlen(tree_name(p)), len = strlen(p->text);
	const char *rest = strncmp(path, tree_name(p), n) == 0 ? path + n : path;
	char *s;

	while (len > 1 && p->text[len - 1] == '/')
		len--;
	if (*rest == '/' && len > 0 && p->text[len - 1] == '/')
		rest++;
	s = malloc(len + strlen(rest) + 2);
	if (!s)
		return NULL;
	memcpy(s, p->text, len);
	snprintf(s + len, strlen(rest) + 2, "%s%s",
		 *rest && *rest != '/' && p->text[len - 1] != '/' ? "/" : "", rest);
	return s;
}

void tree_fail(struct tree_tool *tt, const char *what, const char *path, const char *why)
{
	tt->n_failed++;
	if (tt->progress.drawn)
		fputc('\n', stderr);
	fprintf(stderr, "leat %s: %s '", tt->t->command, what);
	tool_write_text(stderr, path);
	fprintf(stderr, "': %s\n", why);
	if (tt->t->json && json_array_size(tt->failed) < FAILED_MAX)
		json_array_append_new(tt->failed,
				      json_pack("{s:o,s:s}", "path", tool_json_text(path), "error",
						why));
}

static void on_failed(void *arg, const char *what, const char *path, int status)
{
	struct tree_tool *tt = arg;
	char *user;

	if (tt->ignore_missing && leat_errno(status) == ENOENT)
		return;
	user = tree_user_path(tt->at, path);
	tree_fail(tt, what, user ? user : path, leat_strerror(status));
	free(user);
}

static void on_progress(void *arg, const struct leat_tree_progress *p)
{
	struct tree_tool *tt = arg;
	char text[160], size[SIZE_TEXT];
	int n = snprintf(text, sizeof(text), "%llu files, %llu directories",
			 (unsigned long long)(tt->sum.files + p->files),
			 (unsigned long long)(tt->sum.dirs + p->dirs));

	if (p->bytes)
		snprintf(text + n, sizeof(text) - (size_t)n, ", %s",
			 format_size(tt->sum.bytes + p->bytes, size));
	/* Only on a terminal: plain lines with a count are of no use. */
	if (tt->progress.tty && !tt->t->json)
		progress_note(&tt->progress, 0, 0, text);
}

/* Each directory that the work is in is open, and the usual limit is made for select(2). With a
 * lower limit very deep trees fail. */
static void raise_nofile(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

void tree_begin(struct tree_tool *tt, struct tool *t, const char *what)
{
	*tt = (struct tree_tool){.t = t, .failed = json_array()};
	catch_interrupts();
	raise_nofile();
	progress_init(&tt->progress, what);
	tt->o = (struct leat_tree_options){
		.size = sizeof(tt->o),
		.failed = on_failed,
		.progress = on_progress,
		.arg = tt,
		.cancel = interrupt_flag(),
	};
}

bool tree_took(struct tree_tool *tt, int rc, const struct leat_tree_result *r)
{
	tt->sum.files += r->files;
	tt->sum.dirs += r->dirs;
	tt->sum.bytes += r->bytes;
	tt->sum.elapsed_us += r->elapsed_us;
	if (rc < 0 && !interrupted())
		tree_fail(tt, "cannot work on", tt->at->text, leat_strerror(rc));
	return !interrupted();
}

int tree_end(struct tree_tool *tt, int code, json_t *more)
{
	json_t *o = tt->t->json && code == EXIT_OK ? json_object() : NULL;

	progress_finish(&tt->progress, 0);
	if (tt->fs)
		leat_close_fs(tt->fs);
	if (o) {
		json_object_set_new(o, "files", json_integer((json_int_t)tt->sum.files));
		json_object_set_new(o, "directories", json_integer((json_int_t)tt->sum.dirs));
		json_object_set_new(o, "bytes", json_integer((json_int_t)tt->sum.bytes));
		json_object_set_new(o, "seconds", json_real((double)tt->sum.elapsed_us * 1e-6));
		json_object_set_new(o, "via", json_string(tt->by_servers ? "servers" : "files"));
		json_object_set_new(o, "n_failed", json_integer((json_int_t)tt->n_failed));
		json_object_set(o, "failed", tt->failed);
		json_object_set_new(o, "interrupted", json_boolean(interrupted()));
		if (more)
			json_object_update(o, more);
		tool_print_json(o);
	}
	json_decref(more);
	json_decref(tt->failed);
	if (code != EXIT_OK)
		return code;
	return interrupted() ? EXIT_INTERRUPTED : tt->n_failed ? EXIT_FAILED : EXIT_OK;
}
