/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/settle.h"

#include <stdlib.h>

#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/file/chain_stat.h"
#include "mds/file/preallocated.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"

#define SETTLING_MAX 64u
#define SETTLE_TRIES 10u

struct settle {
	struct mds *m;
	struct open_file *file;
	bool owed;            /* by data_settle_owed */
	uint32_t write_opens; /* of the file, before the chains were queried */
	struct layout layout;
	struct ranges preallocated;
	struct data_ends ends;
};

static int settle_look(struct op *op, const void *in, void *vout)
{
	struct settle *st = vout;
	const struct inode_rec *rec;

	(void)in;
	TRY(file_get(op, st->file->ino, VIEW_NEWEST, NULL, &rec));
	if ((rec->attr.flags & ATTR_UNSETTLED) == 0)
		open_file_counted(&op->m->opens, st->file);
	if ((rec->attr.flags & ATTR_UNSETTLED) == 0 || st->file->n_writers > 0 ||
	    rec->attr.nlink == 0)
		return -LE_BUSY;
	st->layout = rec->attr.layout;
	preallocated_get(rec, &st->preallocated);
	st->write_opens = st->file->write_opens;
	return 0;
}

static int settle_txn(struct op *op, const void *in, void *vout)
{
	struct settle *st = vout;
	struct open_file *f = st->file;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;

	(void)in;
	TRY(file_get(op, f->ino, VIEW_NEWEST, &i, &old));
	if ((old->attr.flags & ATTR_UNSETTLED) == 0 || f->n_writers > 0 ||
	    old->attr.layout.gen != st->layout.gen)
		return -LE_BUSY;
	/* The file was opened, written and closed during the query: the replies may be too old. */
	if (f->write_opens != st->write_opens)
		return -LE_AGAIN;
	ASSERT(f->busy.held && f->truncation == TRUNCATION_NONE);
	TRY(op_changes(op, f->ino));
	rec = inode_edit(op->store, i);
	size_is_settled(f);
	rec->attr.flags &= ~(uint32_t)ATTR_UNSETTLED;
	rec->flags &= ~(uint32_t)INODE_TRUNCATING;
	preallocated_take(op, rec, &st->preallocated, &st->ends);
	if (st->ends.size > rec->attr.size)
		rec->attr.size = st->ends.size;
	inode_drop_append_reservations(rec);
	/* Closes may have reported a later write, of data that was truncated since. */
	inode_written(op, rec, f->mtime_ns > st->ends.mtime_ns ? f->mtime_ns : st->ends.mtime_ns);
	open_file_counted(&op->m->opens, st->file);
	return 0;
}

/* True if all chains can be reached. Owed files on chains that are down must not occupy fibers. */
static bool chains_ready(struct mds *m, const struct layout *l)
{
	uint32_t width = cluster_layout_width(&m->cluster, l);

	for (uint32_t i = 0; i < width; i++) {
		const struct chain *ch = cluster_layout_chain(&m->cluster, l, i);

		if ((ch->flags & CHAIN_LOST) == 0 && !oss_ready(&m->oss, ch->id))
			return false;
	}
	return true;
}

static int settle_once(struct op *op, struct settle *st)
{
	struct mds *m = st->m;

	TRY(op_read(op, settle_look, NULL, st));
	if (st->owed && !chains_ready(m, &st->layout))
		return -LE_TARGET_DOWN;
	TRY(data_stat(m, st->file->ino, &st->layout, &st->preallocated,
		      loop_deadline_ms(m->params.oss_timeout_ms), &st->ends));
	TRY(op_mutate(op, settle_txn, NULL, st));
	metric_add(&m->metrics.settled, 1);
	return 0;
}

static void settle(void *arg)
{
	struct settle *st = arg;
	struct mds *m = st->m;
	struct op op;
	int rc;

	op_init(&op, m);
	for (uint32_t tries = st->owed ? 1 : SETTLE_TRIES; tries > 0 && !m->stopping; tries--) {
		fmutex_lock(&st->file->busy);
		rc = settle_once(&op, st);
		fmutex_unlock(&st->file->busy);
		/* A file that stays unsettled is tried again by the next getattr, and each
		 * second while it has reserved bytes of a quota. */
		if (rc != -LE_AGAIN &&
		    (rc != -LE_TARGET_DOWN || tries == 1 || mds_sleep_ms(m, 500) < 0))
			break;
	}
	op_fini(&op);
	st->file->settling = false;
	open_file_put(&m->opens, st->file);
	m->n_settling--;
	latch_done(&m->fibers);
	free(st);
}

static void settle_start(struct mds *m, struct ino ino, bool owed)
{
	struct open_file *f = open_file_find(&m->opens, ino);
	struct settle *st;

	if (m->stopping || !m->recovery.sessions_back || m->n_settling >= SETTLING_MAX ||
	    (f != NULL && (f->n_writers > 0 || f->settling)))
		return;
	st = calloc(1, sizeof(*st));
	if (st == NULL)
		return;
	if (open_file_get(&m->opens, ino, &st->file) < 0) {
		free(st);
		return;
	}
	st->m = m;
	st->owed = owed;
	latch_add(&m->fibers, 1);
	if (fiber_spawn("settle", settle, st) < 0) {
		latch_done(&m->fibers);
		open_file_put(&m->opens, st->file);
		free(st);
		return;
	}
	st->file->settling = true;
	m->n_settling++;
}

void data_settle_start(struct mds *m, struct ino ino)
{
	settle_start(m, ino, false);
}

/* Files that were tried move to the end of the list, so that each has its turn. */
void data_settle_owed(struct mds *m)
{
	struct list tried, *n;

	list_init(&tried);
	while (m->n_settling < SETTLING_MAX / 2 && (n = list_pop(&m->opens.owed)) != NULL) {
		list_push(&tried, n);
		settle_start(m, list_entry(n, struct open_file, owed)->ino, true);
	}
	list_splice(&m->opens.owed, &tried);
}
