/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/flush.h"

#include <stddef.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/open_file.h"
#include "client/data/write_coalesce.h"
#include "client/data/write_error.h"
#include "client/data/write_request.h"
#include "client/data/write_state.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/rt/fiber.h"
#include "common/rt/slot.h"

int wb_flush(struct inode_io *d)
{
	coalesce_submit(d);
	wb_expedite(d);
	return wb_drain(d);
}

int wb_drain(struct inode_io *d)
{
	uint64_t seq;

	coalesce_submit(d);
	seq = d->write_seq;
	while (!list_empty(&d->writes) && list_entry(d->writes.next, struct wreq, link)->seq <= seq)
		TRY(waitq_wait(&d->write_q, NO_DEADLINE));
	return 0;
}

int wb_flush_visible(struct inode_io *d)
{
	uint64_t seq;

	coalesce_submit(d);
	seq = d->write_seq;
	while (wb_range_is_unflushed(d, seq))
		TRY(waitq_wait(&d->write_q, NO_DEADLINE));
	return 0;
}

bool wb_pending(const struct inode_io *d, uint64_t off, uint64_t len)
{
	return coalesce_overlaps(d, off, len) || wreq_overlaps(d, off, len, true);
}

int wb_flush_visible_range(struct inode_io *d, uint64_t off, uint64_t len)
{
	if (coalesce_overlaps(d, off, len))
		coalesce_submit(d);
	while (wreq_overlaps(d, off, len, false))
		TRY(waitq_wait(&d->write_q, NO_DEADLINE));
	return 0;
}

/* Returns true if less than a quarter is free, which readers and incoming requests need. */
static bool is_short(const struct slot_pool *p)
{
	return slot_pool_free(p) < slot_pool_total(p) / 4;
}

int wb_throttle(struct inode_io *d, const struct slot_pool *pool)
{
	struct client *c = d->c;

	/* A writer waits for the caller's pool only while its own file has slow writes in
	 * flight. */
	while (c->wb.dirty > 0 && (c->wb.dirty > c->params.dirty_max || is_short(c->slots) ||
				   (is_short(pool) && !list_empty(&d->writes)))) {
		coalesce_submit_all(c, UINT64_MAX);
		if (c->wb.dirty == 0)
			break;
		TRY(waitq_wait(&c->wb.q, NO_DEADLINE));
	}
	return 0;
}

void wb_session_gone(struct inode_io *d)
{
	if (coalesce_drop(d))
		wb_set_error(d, -LE_IO);
	/* Other clients may have truncated the file without a recall here. A close or append that
	 * was refused is sent again, with the changes made here. */
	d->durable_end = 0;
	d->was_truncated |= d->n_write > 0;
	d->size_unverified |= d->n_write > 0;
	if (d->append_req != NULL)
		d->append_req->size = 0;
	list_for_each (l, &d->closes) {
		struct mds_close_req *req = list_entry(l, struct ll_file, link)->close_req;

		req->flags |= req->dirty ? CLOSE_TRUNCATED : 0u;
	}
}
