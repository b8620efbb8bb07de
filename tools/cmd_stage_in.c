/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat stage: moves data, in, out, and verifies it.
 *
 * --wait first-window|none: a child process does the work and continues in the background. By a
 * pipe it reports the states it reaches, or how it ended if that is earlier. The fork comes before
 * any other work.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cmd_stage_nodes.h"
#include "tools/cmd_stage_together.h"
#include "tools/left.h"
#include "tools/progress.h"
#include "tools/source.h"
#include "tools/stage_verbs.h"

static struct leat_stage_result r = {.size = sizeof(r)};

/* ---- progress ---- */

struct showing {
	struct progress line; /* first: by default the library's progress is drawn in it */
	double next_s;
	int pipe_fd; /* of a child; else -1 */
	void (*progress)(void *arg, const struct leat_stage_progress *p);
};

static void show_json(const struct leat_stage_progress *p)
{
	printf("{\"event\":\"progress\",\"phase\":\"%s\",\"bytes\":%" PRIu64
	       ",\"bytes_total\":%" PRIu64 ",\"source\":%" PRIu64 ",\"peers\":%" PRIu64
	       ",\"files\":%" PRIu64 ",\"files_total\":%" PRIu64 ",\"seconds\":%.1f}\n",
	       p->phase, p->bytes, p->bytes_total, p->bytes_source, p->bytes_peers, p->files,
	       p->files_total, (double)p->elapsed_us / 1e6);
	fflush(stdout);
}

static void on_json(void *arg, const struct leat_stage_progress *p)
{
	struct showing *s = arg;
	double now = now_s();

	if (now < s->next_s && p->bytes < p->bytes_total)
		return;
	s->next_s = now + 1;
	show_json(p);
}

static void on_none(void *arg, const struct leat_stage_progress *p)
{
	(void)arg;
	(void)p;
}

static void on_reached(void *arg, enum leat_stage_milestone m)
{
	struct showing *s = arg;
	char word = (char)m;

	if (s->pipe_fd >= 0)
		(void)!write(s->pipe_fd, &word, 1);
}

static void show_init(struct showing *s, const struct stage_args *a, struct leat_stage_options *o,
		      const char *what)
{
	memset(s, 0, sizeof(*s));
	stage_options_init(o, &s->line, what);
	s->pipe_fd = -1;
	if (a->progress == PROGRESS_PLAIN)
		s->line.tty = false;
	if (a->progress == PROGRESS_JSON)
		o->progress = on_json;
	if (a->progress == PROGRESS_NONE)
		o->progress = on_none;
	o->reached = on_reached;
}

/* ---- results ---- */

static json_t *result_json(const char *to)
{
	json_t *o = json_pack("{s:s,s:s,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:f}", "state",
			      leat_stage_state_text(LEAT_COPY_READY), "id", r.id, "to",
			      tool_json_text(to), "path", tool_json_text(r.path), "files",
			      (json_int_t)r.files, "bytes", (json_int_t)r.bytes, "bytes_verified",
			      (json_int_t)r.bytes_verified, "bytes_moved",
			      (json_int_t)r.bytes_moved, "source", (json_int_t)r.bytes_source,
			      "peers", (json_int_t)r.bytes_peers, "seconds",
			      (double)r.elapsed_us / 1e6);

	if (o)
		left_to_json(o, &r);
	return o;
}

static int report(const struct tool *t, const char *to, unsigned skip)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
	double seconds = (double)r.elapsed_us / 1e6;

	if (t->json) {
		tool_print_json(result_json(to));
		return left_status(&r, skip);
	}
	printf("READY: %" PRIu64 " files, %s, verified in %.2f s (%s/s), %s moved\n%s\n", r.files,
	       format_size(r.bytes, a), seconds,
	       format_size(seconds > 0 ? (uint64_t)((double)r.bytes / seconds) : 0, b),
	       format_size(r.bytes_moved, c), r.path);
	left_print(&r, skip);
	return left_status(&r, skip);
}

/* ---- in ---- */

static int stage_here(struct tool *t, struct stage_args *a, const struct source *source,
		      int pipe_fd)
{
	struct leat_stage_options o;
	struct showing s;
	struct leat_fs *fs = NULL;
	int code = source_connect(t, source, &fs);

	if (code != EXIT_OK)
		return code;
	show_init(&s, a, &o, "staging");
	s.pipe_fd = pipe_fd;
	o.fs = fs;
	o.source = source->name;
	o.catalog = a->catalog;
	o.to = a->to;
	o.more_dirs = a->n_more ? a->more : NULL;
	o.capacity = a->capacity;
	o.timeout_ms = (uint32_t)a->timeout_s * 1000;
	o.readback = a->readback;
	o.order = a->order;
	o.first_window = a->window;
	o.max_rate = a->max_rate;
	o.lease = a->lease;
	o.ttl_s = a->ttl_s;
	o.evict = a->evict;
	o.unpack = a->unpack;
	int rc = leat_stage_in(&o, &r);
	progress_finish(&s.line, rc < 0 || r.code ? 0 : r.bytes);
	if (fs)
		leat_close_fs(fs);
	return rc < 0 || r.code ? stage_failed(t, rc, &r) : report(t, a->to, a->skip);
}

/* Does the work in the child: in a new session, so that the end of the caller does not end it. */
static int stage_behind(struct tool *t, struct stage_args *a, const struct source *source, int fd)
{
	struct tool quiet = *t;
	char word = 'E', code;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
	}
	quiet.json = false;
	a->progress = PROGRESS_NONE;
	code = (char)stage_here(&quiet, a, source, fd);
	(void)!write(fd, &word, 1);
	(void)!write(fd, &code, 1);
	return code;
}

static int said(struct tool *t, const struct stage_args *a, int milestone)
{
	const char *state = leat_stage_state_text(
		milestone == LEAT_STAGE_STREAMABLE ? LEAT_COPY_STREAMABLE : LEAT_COPY_RESERVED);

	if (t->json)
		return tool_print_json(
			json_pack("{s:s,s:o,s:o}", "state", state, "what", tool_json_text(a->what),
				  "to", tool_json_text(a->to)));
	printf("%s: %s continues in the background\n", state, a->what);
	return EXIT_OK;
}

/* Waits in the parent. The child's messages appear on the same standard error. */
static int wait_for_child(struct tool *t, struct stage_args *a, int fd, pid_t child)
{
	int want = a->wait == WAIT_NONE ? LEAT_STAGE_RESERVED : LEAT_STAGE_STREAMABLE;
	char word, code = EXIT_FAILED;

	for (;;) {
		ssize_t n = read(fd, &word, 1);
		if (n < 0 && errno == EINTR && !interrupted())
			continue;
		if (n < 0 && errno == EINTR) {
			kill(child, SIGTERM);
			waitpid(child, NULL, 0);
			return EXIT_INTERRUPTED;
		}
		if (n <= 0)
			return tool_error(t, EXIT_FAILED, NULL,
					  "the process in the background died");
		if (word >= want && word <= LEAT_STAGE_STREAMABLE)
			return said(t, a, want);
		if (word == 'E')
			break;
	}
	(void)!read(fd, &code, 1);
	waitpid(child, NULL, 0);
	return code;
}

static int stage_detached(struct tool *t, struct stage_args *a, const struct source *source)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return tool_error(t, EXIT_FAILED, NULL, "pipe: %m");
	fflush(NULL);
	pid_t child = fork();
	if (child < 0)
		return tool_error(t, EXIT_FAILED, NULL, "fork: %m");
	if (child == 0) {
		signal(SIGPIPE, SIG_IGN);
		close(fds[0]);
		_exit(stage_behind(t, a, source, fds[1]));
	}
	close(fds[1]);
	catch_interrupts();
	int code = wait_for_child(t, a, fds[0], child);
	close(fds[0]);
	return code;
}

/* Parses the source. A catalogue in the local file system has local data sets. */
static int parse_source(struct tool *t, struct stage_args *a, struct source *ret_source)
{
	static struct source catalog;
	int code = source_parse(t, a->what, ret_source);

	if (code != EXIT_OK || !a->catalog)
		return code;
	code = source_parse(t, a->catalog, &catalog);
	if (code == EXIT_OK && ret_source->name[0] != '/')
		ret_source->local = catalog.local;
	a->catalog = catalog.name;
	return code;
}

/* Returns EXIT_OK, or an exit status after a message if the folder above the stage directory does
 * not exist: its disk may not be mounted, and the copy would fill the system's disk. */
static int stage_folder_made(struct tool *t, const char *to)
{
	char copy[PATH_MAX];

	if (snprintf(copy, sizeof(copy), "%s", to) >= (int)sizeof(copy))
		return tool_too_long(t, to);
	const char *parent = dirname(copy);
	if (access(parent, F_OK) == 0 || errno != ENOENT)
		return EXIT_OK; /* the library reports any other error */
	return tool_error(t, EXIT_MISSING,
			  "Is its disk mounted? Only the last folder of the stage directory is "
			  "created.",
			  "--to %s: %s: %m", to, parent);
}

static int stage_folders_made(struct tool *t, const struct stage_args *a)
{
	int code = a->to ? stage_folder_made(t, a->to) : EXIT_OK;

	for (uint32_t i = 0; i < a->n_more && code == EXIT_OK; i++)
		code = stage_folder_made(t, a->more[i]);
	return code;
}

int stage_cmd_in(struct tool *t, struct stage_args *a)
{
	struct source source;
	int code = parse_source(t, a, &source);

	if (code != EXIT_OK)
		return stage_exit(a, code);
	if (a->detach)
		a->wait = WAIT_NONE;
	if (!a->nodes && !a->agent)
		code = stage_folders_made(t, a);
	if (code != EXIT_OK)
		return stage_exit(a, code);
	if (a->together && !a->placement)
		return stage_exit(a, stage_cmd_together(t, a, &source));
	if (a->placement && (!a->nodes || a->unpack))
		return stage_exit(a, tool_usage(t, a->unpack ? "--placement cannot be combined "
							       "with --unpack"
							     : "--placement needs --nodes"));
	if (a->nodes || a->agent) {
		code = source.local ? tool_usage(t, "agents stage only from the namespace: give "
						    "leat:/DIRECTORY or a data set")
				    : stage_cmd_nodes(t, a, source.name);
		return stage_exit(a, code);
	}
	if (!a->to)
		return stage_exit(a, tool_usage(t, "in: --to DIRECTORY (or $LEAT_STAGE_DIR) is "
						   "missing"));
	code = a->wait == WAIT_READY ? stage_here(t, a, &source, -1)
				     : stage_detached(t, a, &source);
	return stage_exit(a, code);
}

/* ---- plan ---- */

static int show_plan(struct tool *t)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], d[SIZE_TEXT];
	int code = r.code == LEAT_STAGE_NO_CAPACITY ? EXIT_NO_SPACE : EXIT_OK;

	if (t->json) {
		tool_print_json(json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "id", r.id, "files",
					  (json_int_t)r.files, "bytes", (json_int_t)r.bytes,
					  "needed", (json_int_t)r.bytes_needed, "free",
					  (json_int_t)r.bytes_free, "evictable",
					  (json_int_t)r.bytes_evictable, "missing",
					  (json_int_t)r.bytes_missing, "fits", code == EXIT_OK));
		return code;
	}
	printf("%" PRIu64 " files, %s; %s to be copied, %s free, %s evictable\n", r.files,
	       format_size(r.bytes, a), format_size(r.bytes_needed, b),
	       format_size(r.bytes_free, c), format_size(r.bytes_evictable, d));
	if (code != EXIT_OK)
		printf("the copy does not fit: %s more needed\n", format_size(r.bytes_missing, a));
	return code;
}

int stage_cmd_plan(struct tool *t, struct stage_args *a)
{
	struct leat_stage_options o;
	struct source source;
	struct progress p;
	struct leat_fs *fs = NULL;
	int code = parse_source(t, a, &source);

	if (code == EXIT_OK)
		code = source_connect(t, &source, &fs);
	if (code != EXIT_OK)
		return code;
	stage_options_init(&o, &p, "looking");
	o.fs = fs;
	o.source = source.name;
	o.catalog = a->catalog;
	o.to = a->to;
	o.more_dirs = a->n_more ? a->more : NULL;
	o.capacity = a->capacity;
	int rc = leat_stage_plan(&o, &r);
	progress_finish(&p, 0);
	if (fs)
		leat_close_fs(fs);
	if (r.code == LEAT_STAGE_NO_CAPACITY || (rc == 0 && r.code == 0))
		return show_plan(t);
	return stage_failed(t, rc, &r);
}

/* ---- out ---- */

static bool absolute(const char *path, char ret_path[PATH_MAX])
{
	char cwd[PATH_MAX] = "";
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return false;
	int n = snprintf(ret_path, PATH_MAX, "%s%s%.*s", cwd, path[0] == '/' ? "" : "/", (int)len,
			 path);
	errno = ENAMETOOLONG;
	return n < PATH_MAX;
}

/* Parses a destination, which need not exist: on a mount or as leat:/PATH it is in the namespace,
 * else local. */
static int destination(struct tool *t, const char *text, struct source *ret)
{
	char dir[PATH_MAX], full[PATH_MAX], *slash;
	int n;

	if (strncmp(text, "leat:", 5) == 0)
		return source_parse(t, text, ret);
	n = snprintf(dir, sizeof(dir), "%s", text);
	while (n > 1 && n < (int)sizeof(dir) && dir[n - 1] == '/')
		dir[--n] = 0;
	slash = strrchr(dir, '/');
	if (n >= (int)sizeof(dir) || !slash || !slash[1])
		return tool_usage(t, "out: %s: give DIRECTORY/NAME or leat:/DIRECTORY/NAME", text);
	*slash = 0;
	int code = source_parse(t, dir[0] ? dir : "/", ret);
	if (code != EXIT_OK)
		return code;
	/* Symbolic links are not resolved here: the library decides which to follow. */
	if (ret->local && (!absolute(dir[0] ? dir : "/", full) ||
			   snprintf(ret->name, sizeof(ret->name), "%s", full) >=
				   (int)sizeof(ret->name)))
		return tool_too_long(t, text);
	size_t len = strlen(ret->name);
	if (len + strlen(slash + 1) + 2 > sizeof(ret->name))
		return tool_usage(t, "out: %s: the path is too long", text);
	snprintf(ret->name + len, sizeof(ret->name) - len, "%s%s", len > 1 ? "/" : "", slash + 1);
	return EXIT_OK;
}

int stage_cmd_out(struct tool *t, struct stage_args *a)
{
	struct leat_stage_options o;
	struct source dest;
	struct showing s;
	char from[PATH_MAX], size[SIZE_TEXT];
	struct leat_fs *fs = NULL;

	/* Symbolic links are not resolved here: the library decides which to follow. */
	if (!absolute(a->what, from) || access(from, F_OK) < 0)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", a->what);
	int code = destination(t, a->dest, &dest);
	if (code == EXIT_OK)
		code = source_connect(t, &dest, &fs);
	if (code != EXIT_OK)
		return code;
	show_init(&s, a, &o, "staging out");
	o.fs = fs;
	o.source = dest.name;
	o.to = from;
	o.timeout_ms = (uint32_t)a->timeout_s * 1000;
	o.max_rate = a->max_rate;
	o.replace = a->replace;
	int rc = leat_stage_out(&o, &r);
	progress_finish(&s.line, rc < 0 || r.code ? 0 : r.bytes);
	if (fs)
		leat_close_fs(fs);
	if (rc == -EEXIST)
		return tool_error(t, EXIT_FAILED, "Give --replace to replace it.",
				  "%s exists already", a->dest);
	if (rc < 0 || r.code)
		return stage_failed(t, rc, &r);
	if (t->json) {
		json_t *out = json_pack("{s:o,s:I,s:I,s:I,s:f}", "path", tool_json_text(r.path),
				      "files", (json_int_t)r.files, "bytes", (json_int_t)r.bytes,
				      "bytes_moved", (json_int_t)r.bytes_moved, "seconds",
				      (double)r.elapsed_us / 1e6);
		if (out)
			left_to_json(out, &r);
		tool_print_json(out);
		return left_status(&r, a->skip);
	}
	tool_write_name(a->dest);
	printf(": %" PRIu64 " files, %s, written and compared\n", r.files,
	       format_size(r.bytes, size));
	left_print(&r, a->skip);
	return left_status(&r, a->skip);
}

/* ---- verify ---- */

int stage_cmd_verify(struct tool *t, struct stage_args *a)
{
	struct leat_stage_options o;
	struct source source;
	struct showing s;
	int code = source_parse(t, a->what, &source);

	if (code != EXIT_OK)
		return code;
	show_init(&s, a, &o, "verifying");
	o.to = a->to;
	int rc = leat_stage_verify(&o, source.name, &r);
	progress_finish(&s.line, rc < 0 || r.code ? 0 : r.bytes);
	return rc < 0 || r.code ? stage_failed(t, rc, &r) : report(t, a->to, 0);
}
