/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/fsck.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/names.h"
#include "common/rt/loop.h"
#include "tools/progress.h"

#define LISTED_MAX 10000u /* findings that are stored with their text; all are counted */

const struct fsck_class_info fsck_classes[FSCK_N_CLASSES] = {
#define FSCK_ROW(name, mend, text) {#name, mend, text},
	FSCK_KINDS(FSCK_ROW)};

int fsck_call(struct fsck *f, uint16_t op, const void *req, void *rep, struct rpc_call *call)
{
	f->c->deadline_us = loop_deadline_ms(FSCK_CALL_MS);
	return cluster_call(f->c, op, req, rep, call);
}

void fsck_cursor_fini(struct fsck_cursor *cur)
{
	if (cur->loaded)
		rpc_call_fini(&cur->call);
	cur->loaded = false;
}

static int load_page(struct fsck *f, struct fsck_cursor *cur)
{
	struct mds_fsck_page_req req = {f->snapshot, cur->kind, bytes_of(cur->from, cur->from_len),
					0};

	fsck_cursor_fini(cur);
	cur->rep = (struct mds_fsck_page_rep){0};
	cur->loaded = true;
	TRY(fsck_call(f, OP_mds_fsck_page, &req, &cur->rep, &cur->call));
	if (cur->rep.next.len > sizeof(cur->from))
		return -LE_BAD_MESSAGE;
	if (cur->rep.next.len)
		memcpy(cur->from, cur->rep.next.data, cur->rep.next.len);
	cur->from_len = cur->rep.next.len;
	cur->ended = cur->from_len == 0;
	cur->begun = true;
	f->snapshot = cur->rep.snapshot;
	f->next_ino = cur->rep.next_ino;
	f->n_inodes = cur->rep.n_inodes;
	wire_r_init(&cur->r, cur->rep.rows.data, cur->rep.rows.len);
	return 0;
}

int fsck_row(struct fsck *f, struct fsck_cursor *cur)
{
	while (!cur->loaded || wire_r_end(&cur->r)) {
		if (cur->begun && (cur->r.status < 0 || cur->ended))
			return cur->r.status;
		TRY(load_page(f, cur));
	}
	return 1;
}

void fsck_note(struct fsck *f, const char *fmt, ...)
{
	json_t *old;
	char text[300];
	va_list ap;
	size_t i;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_array_foreach(f->notes, i, old) if (strcmp(json_string_value(old), text) == 0) return;
	if (json_array_size(f->notes) < LISTED_MAX)
		json_array_append_new(f->notes, json_string(text));
}

int fsck_going(struct fsck *f, const char *what, uint64_t done, uint64_t total)
{
	char text[80];

	if (interrupted())
		return -LE_CANCELED;
	f->progress.what = what;
	snprintf(text, sizeof(text), "%" PRIu64 " of about %" PRIu64, done, total);
	if (!f->c->tool->json)
		progress_note(&f->progress, done, total > done ? total : done, text);
	return 0;
}

/* Sends a repair. -LE_STALE: the record changed since the snapshot; the next round checks it
 * again. */
static int mend(struct fsck *f, const struct mds_fsck_repair_req *repair, bool *ret_done)
{
	struct mds_fsck_repair_rep rep = {0};
	struct rpc_call call;
	int rc = fsck_call(f, OP_mds_fsck_repair, repair, &rep, &call);

	rpc_call_fini(&call);
	*ret_done = rc == 0 && rep.done;
	f->again |= rc == 0 || rc == -LE_STALE;
	return rc == -LE_STALE || rc == -LE_EXIST || rc == -LE_TARGET_DOWN ? 0 : rc;
}

void fsck_print_finding(const char *kind, const char *text, const char *end)
{
	printf("%s: ", kind);
	tool_write_text(stdout, text);
	puts(end);
}

int fsck_found(struct fsck *f, enum fsck_class class, const struct mds_fsck_repair_req *repair,
	       const char *fmt, ...)
{
	bool done = false;
	char text[512];
	json_t *list, *row;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (repair && f->repair & 1u << class)
		TRY(mend(f, repair, &done));
	f->found[class]++;
	f->repaired[class] += done;
	f->left[class] += !done;
	list = done ? f->repairs : f->findings;
	if (json_array_size(list) < LISTED_MAX) {
		row = json_pack("{s:s}", "kind", fsck_classes[class].name);
		if (!row || name_json_set(row, "what", text) < 0) {
			json_decref(row);
			return -LE_NOMEM;
		}
		json_array_append_new(list, row);
	}
	if (done && !f->c->tool->json) {
		progress_finish(&f->progress, 0);
		fsck_print_finding(fsck_classes[class].name, text, ": repaired");
	}
	return 0;
}
