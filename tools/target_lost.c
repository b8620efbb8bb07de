/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata server does the work, and continues whatever happens to this command, which sends
 * the request once and then polls the progress. See mds/file/give_up.h.
 */
#include "tools/target_lost.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/names.h"
#include "common/rt/loop.h"
#include "tools/progress.h"

#define POLL_US  200000u
#define CALL_MS  20000u
#define GONE_S   60.0 /* how long the command waits for a metadata server that does not answer */
#define SHOWN    20u  /* names that are printed without --list */
#define AT_ONCE  4096u
#define PATH_SIZE 4096u

static const char *const again_hint =
	"The work continues without this command; the same command shows its outcome.";

/* ---- requests ---- */

struct asking {
	struct cluster *c;
	struct lose_options *o;
	uint64_t id; /* 0: not started */
	struct mds_target_lose_rep rep;
	struct rpc_call call; /* holds the bytes of rep */
};

static int ask_once(struct asking *a, uint64_t from, uint32_t max)
{
	uint8_t ids[4 * LOSE_TARGETS_MAX];
	struct mds_target_lose_req req = {.what = a->id == 0 ? LOSE_START : LOSE_SURVEY,
					  .accept = a->o->accept,
					  .id = a->id,
					  .from = from,
					  .max = max};
	struct wire_w w;
	int rc;

	wire_w_init(&w, ids, sizeof(ids));
	for (uint32_t i = 0; i < a->o->n; i++)
		wire_put_u32(&w, &a->o->ids[i]);
	req.targets = bytes_of(ids, (uint32_t)w.len);
	rpc_call_fini(&a->call);
	a->rep = (struct mds_target_lose_rep){0};
	a->c->deadline_us = loop_deadline_ms(CALL_MS);
	rc = cluster_call(a->c, OP_mds_target_lose, &req, &a->rep, &a->call);
	/* Another metadata server continues from what is stored: the request starts again. */
	if (rc == -LE_STALE && a->id != 0)
		a->id = 0;
	else if (rc == 0)
		a->id = a->rep.id;
	return rc;
}

/* Repeats the request, since the metadata server may be restarted meanwhile. */
static int ask(struct asking *a, uint64_t from, uint32_t max)
{
	double began = now_s();
	int rc;

	do {
		bool knew = a->id != 0;

		rc = ask_once(a, from, max);
		if (rc == -LE_STALE && knew)
			continue;
		if (rc >= 0 || status_retry(rc) == RETRY_NEVER)
			break;
	} while (!interrupted() && now_s() - began < GONE_S && fiber_sleep_us(POLL_US) == 0);
	return rc;
}

/* ---- the report ---- */

static const char *ids_text(const struct lose_options *o, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < o->n && at < size; i++) {
		int n = snprintf(buf + at, size - at, "%s%u", i > 0 ? ", " : "", o->ids[i]);

		at += n > 0 ? (size_t)n : 0;
	}
	return buf;
}

struct names {
	FILE *to;      /* receives all names as text; NULL: none */
	json_t *array; /* receives all names as JSON; NULL: none */
	uint64_t n, max;
};

static int take_name(struct names *ns, const struct lost_file *f)
{
	char path[PATH_SIZE + 1];
	json_t *row;

	if (f->path.len > PATH_SIZE)
		return -LE_BAD_MESSAGE;
	memcpy(path, f->path.len > 0 ? f->path.data : "", f->path.len);
	path[f->path.len] = '\0';
	if (path[0] == '\0')
		snprintf(path, sizeof(path), "(inode %" PRIu64 ", which has no name)", f->ino.v);
	ns->n++;
	if (ns->to) {
		fputs(ns->to == stdout || ns->to == stderr ? "  " : "", ns->to);
		tool_write_text(ns->to, path);
		fputc('\n', ns->to);
	}
	if (!ns->array)
		return 0;
	row = json_pack("{s:I}", "inode", (json_int_t)f->ino.v);
	if (!row || (f->path.len > 0 && name_json_set(row, "path", path) < 0) ||
	    json_array_append_new(ns->array, row) < 0)
		return -LE_NOMEM;
	return 0;
}

/* Takes at most ns->max of the names that the server has listed. */
static int take_names(struct asking *a, struct names *ns)
{
	uint64_t from = 0;

	do {
		uint64_t left = ns->max - ns->n;
		struct wire_r r;

		TRY(ask(a, from, left < AT_ONCE ? (uint32_t)left : AT_ONCE));
		wire_r_init(&r, a->rep.files.data, a->rep.files.len);
		while (!wire_r_end(&r) && ns->n < ns->max) {
			struct lost_file f = {0};

			wire_get_lost_file(&r, &f);
			TRY(r.status);
			TRY(take_name(ns, &f));
		}
		if (a->rep.next != 0 && a->rep.next <= from)
			return -LE_BAD_MESSAGE;
		from = a->rep.next;
	} while (from != 0 && ns->n < ns->max && !interrupted());
	return 0;
}

/* Writes all names to the file of --list. */
static int write_list(struct asking *a)
{
	struct lose_options *o = a->o;
	struct names ns = {.max = UINT64_MAX};
	int rc, err;

	if (!o->list)
		return 0;
	ns.to = fopen(o->list, "w");
	if (!ns.to) {
		o->code = tool_error(a->c->tool, exit_of_errno(errno), NULL, "%s: %m", o->list);
		return 0;
	}
	rc = take_names(a, &ns);
	err = ferror(ns.to) ? EIO : 0;
	if (fclose(ns.to) != 0)
		err = errno;
	if (rc == 0 && err)
		o->code = tool_error(a->c->tool, exit_of_errno(err), NULL, "%s: %s", o->list,
				     strerror(err));
	return rc;
}

static int print_json(struct asking *a, const char *state, uint64_t n_files)
{
	struct names ns = {.array = json_array(), .max = UINT64_MAX};
	json_t *ids = json_array();
	int rc = ns.array && ids ? 0 : -LE_NOMEM;

	for (uint32_t i = 0; rc == 0 && i < a->o->n; i++)
		rc = json_array_append_new(ids, json_integer(a->o->ids[i])) < 0 ? -LE_NOMEM : 0;
	if (rc == 0 && n_files > 0)
		rc = take_names(a, &ns);
	if (rc == 0 && tool_print_json(json_pack("{s:O,s:s,s:I,s:O}", "targets", ids, "state",
						 state, "files", (json_int_t)n_files, "lost",
						 ns.array)) != EXIT_OK)
		rc = -LE_IO;
	json_decref(ids);
	json_decref(ns.array);
	return rc;
}

static int print_text(struct asking *a, bool refused, uint64_t n_files)
{
	FILE *to = refused ? stderr : stdout;
	struct names ns = {.to = to, .max = SHOWN};
	char ids[2048];

	ids_text(a->o, ids, sizeof(ids));
	if (n_files > 0)
		fprintf(to, "%" PRIu64 " files %s data that only target%s %s had:\n", n_files,
			refused ? "would lose" : "have lost", a->o->n > 1 ? "s" : "", ids);
	if (n_files > 0)
		TRY(take_names(a, &ns));
	if (n_files > ns.n)
		fprintf(to, "  and %" PRIu64 " others (--list FILE writes the names of all)\n",
			n_files - ns.n);
	if (refused)
		a->o->code = tool_error(
			a->c->tool, EXIT_FAILED,
			"If this data will not come back, give --accept-loss: reading it is an "
			"input/output error from then on, and the files can be removed.",
			"nothing was given up: files would lose data");
	else
		printf("removed: target%s %s\n", a->o->n > 1 ? "s" : "", ids);
	return 0;
}

static int print_failed(const struct tool *t, int status)
{
	if (status == -LE_NODEV)
		return tool_error(t, EXIT_FAILED,
				  "Chains that lose all members need other targets: `leat target "
				  "list` shows which are up, `leat df` their space.",
				  "nothing was given up: no other target can take over");
	return tool_error(t, exit_of_status(status),
			  "The log of the metadata server has the reason; try again.",
			  "nothing was given up: %s", status_text(status));
}

static int tell(struct asking *a)
{
	bool refused = a->rep.state == LOSE_REFUSED;
	uint64_t n_files = a->rep.n_files;
	int status = a->rep.status;

	if (a->rep.state == LOSE_FAILED) {
		a->o->code = print_failed(a->c->tool, status);
		return 0;
	}
	a->o->code = refused ? EXIT_FAILED : EXIT_OK;
	if (refused && a->o->accept == LOSE_NO_COPY) {
		a->o->code = tool_error(a->c->tool, EXIT_FAILED,
					"Run `leat target drain` if the target is up; if it will "
					"not come back, `leat target remove --lost`.",
					"target %u still has copies", a->o->ids[0]);
		return 0;
	}
	TRY(write_list(a));
	return a->c->tool->json ? print_json(a, refused ? "refused" : "removed", n_files)
				: print_text(a, refused, n_files);
}

/* ---- the command ---- */

static const struct target_view *view_of(const struct cluster *c, uint32_t id)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (c->targets[i].id == id)
			return &c->targets[i];
	return NULL;
}

/* Refuses what the map already rules out. */
static void look_first(struct cluster *c, struct lose_options *o)
{
	for (uint32_t i = 0; i < o->n && o->code == EXIT_OK; i++) {
		const struct target_view *v = view_of(c, o->ids[i]);
		char hint[160];

		if (!v || ((v->flags & TARGET_REMOVED) && !(v->flags & TARGET_GIVEN_UP))) {
			o->code = tool_error(c->tool, EXIT_MISSING,
					     "`leat target list` shows the targets.",
					     "target %u does not exist, or was removed", o->ids[i]);
		} else if (v->state == TARGET_UP && !(v->flags & TARGET_REMOVED)) {
			snprintf(hint, sizeof(hint),
				 "Drain the target instead: leat target drain %u && leat target "
				 "remove %u",
				 v->id, v->id);
			o->code = tool_error(c->tool, EXIT_FAILED, hint,
					     "target %u is up and not lost", v->id);
		}
	}
}

static int follow(struct asking *a)
{
	struct progress p;
	char text[160];

	progress_init(&p, "searching for files that lose data");
	for (;;) {
		TRY(ask(a, 0, 0));
		if (a->rep.state != LOSE_RUNNING)
			break;
		snprintf(text, sizeof(text), "%" PRIu64 " of %" PRIu64 " inodes", a->rep.n_seen,
			 a->rep.n_inodes);
		if (!a->c->tool->json)
			progress_note(&p, a->rep.n_seen, a->rep.n_inodes, text);
		if (interrupted()) {
			progress_finish(&p, 0);
			a->o->code = tool_error(a->c->tool, EXIT_INTERRUPTED, again_hint,
						"interrupted");
			return 0;
		}
		TRY(fiber_sleep_us(POLL_US));
	}
	progress_finish(&p, 0);
	return tell(a);
}

int target_lose(struct cluster *c, void *options)
{
	struct lose_options *o = options;
	struct asking a = {.c = c, .o = o};
	int rc;

	TRY(cluster_fetch(c, FETCH_REMOVED));
	look_first(c, o);
	if (o->code != EXIT_OK)
		return 0;
	rc = follow(&a);
	rpc_call_fini(&a.call);
	if (rc == -LE_BUSY) {
		o->code = tool_error(c->tool, EXIT_FAILED,
				     "`leat target list` shows the targets that are up; if others "
				     "are being given up, try again in some seconds.",
				     "a target has come back, or other targets are being given up");
		return 0;
	}
	return rc;
}
