/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/close.h"

#include <fcntl.h>
#include <stddef.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/data/sync.h"
#include "client/data/write_error.h"
#include "client/ll.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/wire.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define PIGGYBACK_US 2000u /* how long a close waits for an MDS request to be batched with */

/* Waits until no other client caches pages older than the mapped pages written here. Those pages
 * must be accepted already. Returns 0 or an error. Yields. */
static int await_readers(struct inode_io *d)
{
	uint64_t n = d->n_pages;

	if (d->n_pages_seen >= n || PLANTED_BUG(CLIENT_PAGES_UNSEEN))
		return 0;
	TRY(sync_accepted(d, true, NULL));
	if (d->n_pages_seen < n)
		d->n_pages_seen = n;
	return 0;
}

int ll_flush(struct ll_file *file)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	TRY(wb_flush_visible(f->d));
	TRY(await_readers(f->d));
	return write_error_take(f);
}

int ll_fsync(struct ll_file *file, bool data_only)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	/* wb_flush makes the data durable, every reply of the MDS is durable already, and an
	 * unsettled size is recovered from the chunks. Nothing else needs a sync. */
	(void)data_only;
	TRY(wb_flush(f->d));
	TRY(await_readers(f->d));
	return write_error_take(f);
}

/* Returns the bytes that the file occupies, for its record: queries the chains if that may differ
 * from its size. UINT64_MAX: unknown. Yields. */
static uint64_t used_space(struct inode_io *d)
{
	struct size_stored st;

	/* The MDS itself queries how much of the preallocated ranges is written. */
	if ((!d->sparse && !d->packed) || (d->inode->attr.flags & ATTR_PREPARED) != 0 ||
	    size_stat_chains(d, bytes_of(NULL, 0), &st) < 0)
		return UINT64_MAX;
	return st.used;
}

static int send_close(struct ll_file *f)
{
	struct client *c = f->c;
	struct inode *i = f->inode;
	struct inode_io *d = f->d;
	struct mds_close_req req = {
		.ino = i->ino,
		.flags = f->counted & (O_ACCMODE | O_APPEND),
		.dirty = f->wrote && d->durable_end > 0,
		.used = UINT64_MAX,
	};
	int rc;

	if (req.dirty) {
		req.size = i->attr.size > d->durable_end ? i->attr.size : d->durable_end;
		req.mtime_ns = d->mtime_ns;
		req.used = used_space(d);
	}
	if (f->new_atime)
		req.flags |= CLOSE_ATIME | (c->atime == LL_ATIME_STRICT ? CLOSE_STRICT : 0);
	if (f->delegated)
		req.flags |= CLOSE_UNCOUNTED;
	if ((d->err_gen != 0 || d->size_suspect) && open_flags_write(f->flags))
		req.flags |= CLOSE_MUST_QUERY;
	if (d->was_truncated && open_flags_write(f->flags))
		req.flags |= CLOSE_TRUNCATED;
	if (d->n_close_waiters == 0)
		req.flags |= CLOSE_LAZY;
	d->n_lazy++;
	f->close_req = &req;
	list_push(&d->closes, &f->link);
	rc = cap_close(d, &req);
	list_remove(&f->link);
	d->n_lazy--;
	if (f->new_atime)
		i->n_changing--;
	return rc;
}

/* Waits for the next MDS request, to send the close in the same packet. A separate packet would
 * wake the server, and its reply would wake this process. Yields. */
static void wait_piggyback(struct client *c, const struct inode_io *d)
{
	if (d->n_close_waiters == 0 && !c->stopping)
		(void)!waitq_wait(&c->piggyback_q, loop_now_us() + PIGGYBACK_US);
}

static void close_fiber(void *arg)
{
	struct ll_file *f = CAST_OBJ(arg, struct ll_file, LL_FILE_MAGIC);
	struct client *c = f->c;
	struct inode *i = f->inode;
	struct inode_io *d = f->d;
	int rc;

	if (f->can_write)
		while (wb_drain(d) == -LE_INTR)
			continue;
	wait_piggyback(c, d);
	rc = send_close(f);
	if (rc < 0)
		log_warn("client %s: cannot close ino %llu at the metadata server: %s", c->name,
			 (unsigned long long)i->ino.v, status_name(rc));
	if (!f->delegated)
		open_count_add(d, f->counted, -1);
	d->was_truncated &= d->n_write > 0;
	d->size_suspect &= d->n_write > 0;
	d->n_closing--;
	if (d->n_read + d->n_write == 0)
		lease_shared_end(c, i);
	if (d->n_closing == 0)
		waitq_wake_all(&d->closing_q);
	file_free(f);
	inode_put(c, i);
	client_bg_end(c);
}

void file_close_start(struct ll_file *f)
{
	f->d->n_closing++;
	if (f->new_atime) {
		/* From now on neither this client nor the kernel answers with the old access
		 * time. */
		f->inode->n_changing++;
		if (f->c->invalidate != NULL)
			f->c->invalidate(f->c->arg, f->inode->ino, false);
	}
	if (client_bg_spawn(f->c, "close", close_fiber, f) < 0) {
		latch_add(&f->c->bg, 1);
		close_fiber(f);
	}
}
