/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/append.h"

#include <fcntl.h>
#include <stddef.h>

#include "client/base/background.h"
#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/data/write_coalesce.h"
#include "client/data/write_range.h"
#include "client/ll.h"
#include "client/servers/mds_call.h"
#include "client/servers/restart_log.h"
#include "common/base/assert.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

int append_reserve(struct ll_file *f, uint64_t len, struct append_range *p)
{
	struct inode_io *d = f->d;
	uint64_t until_us = client_deadline(f->c);
	struct mds_append_rep rep;
	struct rpc_call call;
	int rc;

	do {
		struct mds_append_req req = {.ino = f->inode->ino,
					     .len = len,
					     .had_end = p->end,
					     .had_truncations = p->n_truncations,
					     .had_there = p->end != 0 && d->reservation_written,
					     .had_lost = p->lost};

		/* A next process would repeat the first request of the append and use its reply. So
		 * its (slot, seq) is released before another one is sent. */
		if (p->end != 0 && !d->reservation_written)
			restart_log_discard(f->c);
		TRY(write_flush_end(f));
		req.size = d->size;
		d->append_req = &req;
		rc = mds_call(f->c, OP_mds_append, &req, &rep, &call);
		d->append_req = NULL;
		rpc_call_fini(&call);
		TRY(rc);
		if (rep.off > LEAT_FILE_SIZE_MAX - len)
			return -LE_FBIG;
		if (p->lost || rep.off + len != p->end)
			d->reservation_written = false;
		*p = (struct append_range){rep.off, rep.off + len, rep.n_truncations, false};
		if (restart_log_take_previous(f->c))
			d->reservation_written = true;
		else if (call.session == f->c->session &&
		    (rep.change > d->reservation_void || PLANTED_BUG(CLIENT_STALE_PLACE)))
			break;
		rc = -LE_IO; /* every reservation was recalled */
	} while (loop_now_us() < until_us);
	TRY(rc);
	d->reservation = rep.change;
	d->reservation_gen = f->c->session_gen;
	return 0;
}

int append_recall(struct inode *i, uint64_t change)
{
	struct inode_io *d = i->data;

	if (d == NULL)
		return 0;
	if (change > d->reservation_void)
		d->reservation_void = change;
	while (d->reservation != 0 && d->reservation <= change && !PLANTED_BUG(CLIENT_STALE_PLACE))
		TRY(waitq_wait(&d->append_q, NO_DEADLINE));
	/* The write of an append that was interrupted may still be in flight. */
	return wb_flush_visible(d);
}

/* Returns true if the range fits into one coalescing unit. */
static bool gathers_whole(struct ll_file *f, uint64_t off, uint64_t len)
{
	uint32_t unit = write_unit_size(f);

	return len < COALESCE_BELOW && off % unit + len <= unit;
}

int append_find_end(struct ll_file *f, uint64_t len, uint64_t *ret_off)
{
	struct inode *i = f->inode;
	struct attr attr = i->attr;

	if (inode_attr_fresh(f->c, i))
		TRY(size_settle(f->c, i, &attr));
	inode_attr(f->c, i, &attr);
	if (!inode_size_fresh(f->c, i) || attr.size > LEAT_FILE_SIZE_MAX - len ||
	    !gathers_whole(f, attr.size, len))
		return 0;
	f->d->appending = true;
	*ret_off = attr.size;
	return 0;
}

void append_ended(struct inode_io *d)
{
	d->appending = false;
	d->reservation = 0;
	waitq_wake_all(&d->append_q);
}

int append_flag_cleared(struct ll_file *f)
{
	uint32_t plain = f->flags & ~(uint32_t)O_APPEND;
	int rc = 0;

	fmutex_lock(&f->d->append_lock);
	if (f->counted != plain)
		rc = cap_reopen(f->d, plain & O_ACCMODE, (plain & O_ACCMODE) | O_APPEND);
	if (rc >= 0 && f->counted != plain) {
		f->counted = plain;
		f->d->n_append_cleared++;
	}
	fmutex_unlock(&f->d->append_lock);
	return rc;
}

void ll_set_append(struct ll_file *file, bool append)
{
	CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC)->append = append;
}
