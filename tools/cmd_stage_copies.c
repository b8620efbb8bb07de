/* SPDX-License-Identifier: Apache-2.0 */
/* leat stage: the verbs that list copies, wait for them, protect and remove them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/names.h"
#include "tools/cmd_stage_nodes.h"
#include "tools/source.h"
#include "tools/stage_verbs.h"

/* ---- lists ---- */

static json_t *copy_json(const struct leat_stage_copy *c)
{
	json_t *o = json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:b,s:b,s:I}", "state",
			      leat_stage_state_text(c->state), "id", c->id, "files",
			      (json_int_t)c->files, "bytes", (json_int_t)c->bytes, "bytes_data",
			      (json_int_t)c->bytes_data, "bytes_verified",
			      (json_int_t)c->bytes_verified, "leased", c->leased != 0, "pinned",
			      c->pinned != 0, "used", (json_int_t)c->used_s);

	int rc = name_json_set(o, "source", c->source);
	if (rc == 0)
		rc = name_json_set(o, "path", c->path);
	if (c->name[0]) {
		json_object_set_new(o, "name", json_string(c->name));
		json_object_set_new(o, "version", json_string(c->version));
	}
	if (c->fail_code) {
		json_t *f = json_pack("{s:i,s:o}", "code", c->fail_code, "message",
				      tool_json_text(c->message));
		if (rc == 0)
			rc = name_json_set(f, "path", c->fail_path);
		json_object_set_new(o, "failure", f);
	}
	(void)rc; /* without memory a member is missing */
	return o;
}

static void print_copy(const struct leat_stage_copy *c)
{
	char size[SIZE_TEXT], part[16] = "-";

	if (c->bytes)
		snprintf(part, sizeof(part), "%.0f%%",
			 100.0 * (double)c->bytes_verified / (double)c->bytes);
	printf("%-10s %5s %10s %8" PRIu64 "  %.12s  ", leat_stage_state_text(c->state), part,
	       format_size(c->bytes, size), c->files, c->id);
	tool_write_name(c->name[0] ? c->name : c->source);
	printf("%s%s%s%s\n", c->name[0] ? "@" : "", c->name[0] ? c->version : "",
	       c->leased ? "  (in use)" : "", c->pinned ? "  (pinned)" : "");
	if (!c->fail_code)
		return;
	printf("%-10s %s: ", "", leat_stage_code_text(c->fail_code));
	tool_write_name(c->fail_path);
	fputs(c->fail_path[0] ? ": " : "", stdout);
	tool_write_name(c->message);
	putchar('\n');
}

static void print_header(const struct tool *t)
{
	if (!t->json)
		printf("%-10s %5s %10s %8s  %-12s  %s\n", "STATE", "DONE", "SIZE", "FILES", "ID",
		       "OF");
}

struct listing {
	const struct tool *t;
	json_t *copies;
};

static int list_one(void *arg, const struct leat_stage_copy *c)
{
	struct listing *l = arg;

	if (l->t->json)
		json_array_append_new(l->copies, copy_json(c));
	else
		print_copy(c);
	return interrupted();
}

int stage_cmd_ls(struct tool *t, struct stage_args *a)
{
	struct listing l = {.t = t, .copies = json_array()};

	print_header(t);
	int rc = leat_stage_list(a->to, list_one, &l);
	if (rc < 0) {
		json_decref(l.copies);
		return stage_error(t, rc, a->to);
	}
	if (t->json)
		return tool_print_json(json_pack("{s:o}", "copies", l.copies));
	json_decref(l.copies);
	return EXIT_OK;
}

static int show_one(struct tool *t, const struct leat_stage_copy *c)
{
	if (t->json)
		return tool_print_json(copy_json(c));
	print_header(t);
	print_copy(c);
	return EXIT_OK;
}

/* Parses the name of a copy, which may be the directory that it was made of. */
static int copy_name(const struct tool *t, const char *what, struct source *ret_source)
{
	return source_parse(t, what, ret_source);
}

/* Exit status 0: READY; 3: it exists, but is not READY. */
int stage_cmd_status(struct tool *t, struct stage_args *a)
{
	static struct leat_stage_copy c = {.size = sizeof(c)};
	struct source source;

	if (!a->what)
		return stage_cmd_ls(t, a);
	int code = copy_name(t, a->what, &source);
	if (code != EXIT_OK)
		return code;
	int rc = leat_stage_status(a->to, source.name, &c);
	if (rc < 0)
		return stage_error(t, rc, a->what);
	show_one(t, &c);
	bool whole = c.state == LEAT_COPY_READY || c.state == LEAT_COPY_STALE ||
		     c.state == LEAT_COPY_SHARED;
	return whole ? EXIT_OK : EXIT_NOT_READY;
}

int stage_cmd_path(struct tool *t, struct stage_args *a)
{
	struct source source;
	char path[PATH_MAX];
	int code = copy_name(t, a->what, &source);

	if (code != EXIT_OK)
		return code;
	static struct leat_stage_copy c = {.size = sizeof(c)};
	int rc = leat_stage_path(a->to, source.name, path, sizeof(path));
	/* The path of a partial copy is printed with --share only. */
	if (rc < 0 && a->share && leat_stage_status(a->to, source.name, &c) == 0 &&
	    c.state == LEAT_COPY_SHARED)
		rc = snprintf(path, sizeof(path), "%s", c.path) < (int)sizeof(path) ? 0 : -ERANGE;
	if (rc == -EACCES)
		return tool_error(t, EXIT_PERMISSION,
				  "Only users who may search the source may read a copy. After a "
				  "change of the source's permissions `leat stage in` or the "
				  "node's agent changes the copy's.",
				  "the copy of %s is private to users who may search its source",
				  a->what);
	if (rc < 0)
		return stage_error(t, rc, a->what);
	if (t->json)
		return tool_print_json(json_pack("{s:o}", "path", tool_json_text(path)));
	puts(path);
	return EXIT_OK;
}

int stage_cmd_wait(struct tool *t, struct stage_args *a)
{
	static struct leat_stage_copy c = {.size = sizeof(c)};
	struct source source;
	int code = copy_name(t, a->what, &source), milestone = 0;

	if (code != EXIT_OK)
		return code;
	catch_interrupts();
	if (a->wait != WAIT_READY)
		milestone = a->wait == WAIT_WINDOW ? LEAT_STAGE_STREAMABLE : LEAT_STAGE_RESERVED;
	struct leat_stage_wait_options o = {.size = sizeof(o),
					    .milestone = milestone,
					    .timeout_ms = (uint32_t)a->timeout_s * 1000,
					    .cancel = interrupt_flag()};
	int rc = leat_stage_wait(a->to, source.name, &o, &code, &c);
	if (rc < 0)
		return stage_error(t, rc, a->what);
	if (interrupted())
		code = EXIT_INTERRUPTED;
	if (code == EXIT_OK)
		return show_one(t, &c);
	return tool_error(t, code, "`leat stage status` shows the state of the copy.", "%s: %s%s%s",
			  a->what, leat_stage_code_text(code), c.message[0] ? ": " : "", c.message);
}

/* ---- protection and removal ---- */

static int done(struct tool *t, const char *what, const char *word)
{
	if (t->json)
		return tool_print_json(
			json_pack("{s:o,s:b}", "what", tool_json_text(what), word, 1));
	printf("%s %s\n", what, word);
	return EXIT_OK;
}

int stage_cmd_evict(struct tool *t, struct stage_args *a)
{
	struct source source;
	int code = copy_name(t, a->what, &source);

	if (code != EXIT_OK)
		return code;
	int rc = leat_stage_evict(a->to, source.name);
	return rc < 0 ? stage_error(t, rc, a->what) : done(t, a->what, "evicted");
}

int stage_cmd_cancel(struct tool *t, struct stage_args *a)
{
	struct source source;
	int code = copy_name(t, a->what, &source);

	if (code != EXIT_OK)
		return code;
	int rc = leat_stage_cancel(a->to, source.name);
	if (rc == -ENOENT)
		return tool_error(t, EXIT_MISSING, NULL, "no process is making %s", a->what);
	return rc < 0 ? stage_error(t, rc, a->what) : done(t, a->what, "cancelled");
}

static int pin(struct tool *t, struct stage_args *a, bool on)
{
	struct source source;
	int code = copy_name(t, a->what, &source);

	if (code != EXIT_OK)
		return code;
	int rc = leat_stage_pin(a->to, source.name, on);
	return rc < 0 ? stage_error(t, rc, a->what) : done(t, a->what, on ? "pinned" : "unpinned");
}

int stage_cmd_pin(struct tool *t, struct stage_args *a)
{
	return pin(t, a, true);
}

int stage_cmd_unpin(struct tool *t, struct stage_args *a)
{
	return pin(t, a, false);
}

int stage_cmd_lease(struct tool *t, struct stage_args *a)
{
	struct source source;
	int code = a->lease ? copy_name(t, a->what, &source) : tool_usage(t, 
			"--lease JOB is missing");

	if (code != EXIT_OK)
		return code;
	int rc = leat_stage_lease_job(a->to, source.name, a->lease, a->ttl_s);
	return rc < 0 ? stage_error(t, rc, a->what) : done(t, a->what, "leased");
}

int stage_cmd_release(struct tool *t, struct stage_args *a)
{
	struct source source;
	int code = a->lease ? EXIT_OK : tool_usage(t, "--lease JOB is missing");

	if (code == EXIT_OK && a->what)
		code = copy_name(t, a->what, &source);
	if (code != EXIT_OK)
		return code;
	if (a->nodes) {
		code = stage_nodes_release(t, a, a->what ? source.name : "");
		return code == EXIT_OK ? done(t, a->lease, "released") : code;
	}
	int rc = leat_stage_release_job(a->to, a->what ? source.name : NULL, a->lease);
	if (rc == -ENOENT)
		return tool_error(t, EXIT_MISSING, NULL, "job %s has no lease on these copies",
				  a->lease);
	return rc < 0 ? stage_error(t, rc, a->lease) : done(t, a->lease, "released");
}

/* Prints the result of gc, and returns its exit status. */
static int gc_tell(struct tool *t, const struct stage_args *a, json_t *copies, uint64_t bytes,
		   uint64_t missing)
{
	char size[SIZE_TEXT], lack[SIZE_TEXT];
	int code = EXIT_OK;

	if (t->json)
		code = tool_print_json(json_pack("{s:I,s:b,s:I,s:O}", "bytes", (json_int_t)bytes,
						 "dry_run", a->dry_run, "missing",
						 (json_int_t)missing, "copies", copies));
	else
		printf("%s %s\n", format_size(bytes, size),
		       a->dry_run ? "could be removed" : "removed");
	if (missing > 0 && t->json)
		return EXIT_NO_SPACE;
	if (missing > 0)
		return tool_error(t, EXIT_NO_SPACE,
				  "Leased and pinned copies are kept (`leat stage ls`), and files "
				  "that are no copies (`df`).",
				  "%s less than --free %s free", format_size(missing, lack),
				  a->dry_run ? "would be" : "are");
	return code;
}

static void gc_one(void *arg, const struct leat_stage_copy *c)
{
	list_one(arg, c);
}

int stage_cmd_gc(struct tool *t, struct stage_args *a)
{
	struct listing l = {.t = t, .copies = json_array()};
	struct leat_options o = {.size = sizeof(o), .name = "leat"};
	struct leat_fs *fs = NULL;
	uint64_t bytes = 0, missing = 0;
	int code;

	/* Without a cluster, only copies of local directories can be proved to be safe to
	 * remove. */
	if (leat_open_fs(t->conf, &o, &fs) < 0)
		fs = NULL;
	struct leat_stage_gc_options g = {.size = sizeof(g),
					  .fs = fs,
					  .to = a->to,
					  .more_dirs = a->n_more ? a->more : NULL,
					  .bytes = a->free,
					  .capacity = a->capacity,
					  .dry_run = a->dry_run,
					  .each = gc_one,
					  .arg = &l,
					  .ret_missing = &missing};
	int rc = leat_stage_gc(&g, &bytes);
	if (fs)
		leat_close_fs(fs);
	if (rc < 0) {
		json_decref(l.copies);
		return stage_error(t, rc, a->to);
	}
	code = gc_tell(t, a, l.copies, bytes, missing);
	json_decref(l.copies);
	return code;
}

/* ---- events ---- */

/* Prints a line if it is an event: the owner of the directory may have written to the file. */
static void print_event(char *line)
{
	json_t *o = json_loads(line, 0, NULL);

	line[strcspn(line, "\n")] = 0;
	if (json_is_object(o)) {
		tool_write_text(stdout, line);
		putchar('\n');
	}
	json_decref(o);
}

/* *ret_f NULL: there is no event yet. */
static int open_events(const char *to, FILE **ret_f)
{
	int fd = leat_stage_events(to);

	*ret_f = NULL;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	*ret_f = fdopen(fd, "r");
	if (*ret_f)
		return 0;
	close(fd);
	return -ENOMEM;
}

/* Prints the events; with --follow until interrupted. */
int stage_cmd_events(struct tool *t, struct stage_args *a)
{
	char line[4096];
	FILE *f = NULL;
	int rc;

	catch_interrupts();
	for (;;) {
		if (!f && (rc = open_events(a->to, &f)) < 0)
			return stage_error(t, rc, a->to);
		while (f && fgets(line, sizeof(line), f))
			if (!a->what || strstr(line, a->what))
				print_event(line);
		fflush(stdout);
		if (!a->follow || interrupted())
			break;
		usleep(200000);
		if (f)
			clearerr(f);
	}
	if (f)
		fclose(f);
	return EXIT_OK;
}
