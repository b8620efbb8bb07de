/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/write.h"

#include <fcntl.h>
#include <stddef.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/data/append.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/space_grant.h"
#include "client/data/write_coalesce.h"
#include "client/data/write_range.h"
#include "client/data/write_request.h"
#include "client/data/write_state.h"
#include "client/layout/slot_vec.h"
#include "client/layout/stripe.h"
#include "client/ll.h"
#include "client/servers/mds_call.h"
#include "client/servers/restart_log.h"
#include "common/base/assert.h"
#include "common/base/copy_counter.h"
#include "common/base/list.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rpc/mds_clock.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

/* Below a quota, requests the space that the write may need before it is accepted. Overwriting data
 * of a file without holes needs none. Returns 0 or -LE_DQUOT. Yields. */
static int take_space(struct ll_file *f, uint64_t off, uint64_t len)
{
	struct mds_space_req req = {.ino = f->inode->ino};
	struct inode_io *d = f->d;
	uint64_t end = off + len, need = len;

	if (f->inode->attr.project == 0)
		return 0;
	if (!d->sparse && end - d->size < len)
		need = end - d->size;
	if (!d->sparse && end <= d->size)
		return 0;
	while (d->quota_left < need) {
		struct mds_space_rep rep;
		struct rpc_call call;
		int rc;

		req.bytes = need - d->quota_left;
		rc = mds_call(f->c, OP_mds_space, &req, &rep, &call);
		rpc_call_fini(&call);
		TRY(rc);
		d->quota_left += rep.bytes;
	}
	d->quota_left -= need;
	return 0;
}

/* Returns the time of a new write: later than the file's mtime, even if this clock is slow. */
static int64_t time_of_write(const struct inode_io *d)
{
	int64_t now = mds_clock_stamp_ns(&d->c->clock, d->c->env);
	int64_t past = d->inode->attr.chains_ns;

	return now > past || past == INT64_MAX ? now : past + 1;
}

static int64_t write_at(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n,
			unsigned how)
{
	uint64_t len = vec_len(vec, n);
	uint32_t n_truncations = f->inode->n_truncations;
	int rc;

	ra_drop_range(f->d, off, len);
	if (how & WB_BEHIND)
		grant_ask(f->d);
	if (how & WB_BEHIND) /* stat reports this time from now on; object servers store it */
		f->d->mtime_guess_ns = time_of_write(f->d);
	rc = len < COALESCE_BELOW && how == WB_BEHIND ? write_small(f, off, len, vec, n)
						      : write_large(f, off, len, vec, n, how);
	if (list_empty(&f->d->writes) && f->d->coalesce.slot == NULL)
		f->d->mtime_guess_ns = 0;
	/* Some of the data may be stored nevertheless, or still be in flight. */
	if (rc < 0)
		f->d->size_suspect = f->d->size_unverified = true;
	TRY(rc);
	write_note(f, off, len);
	/* A truncation may have removed the data again. */
	f->d->size_unverified |= f->inode->n_truncations != n_truncations;
	/* Units fetched during the write may be old or new. */
	ra_drop_range(f->d, off, len);
	if (!(how & WB_BEHIND))
		return (int64_t)len;
	TRY(wb_throttle(f->d, len < COALESCE_BELOW ? f->c->slots : vec[0].slot->pool));
	/* Without a lease, the data must be visible to other clients when this returns. */
	if (!lease_held(f->c, f->inode))
		TRY(wb_flush_visible_range(f->d, off, len));
	else
		f->d->wrote_under_lease = true;
	return (int64_t)len;
}

/* Appends at the end that append_find_end has found. Nothing is sent before the caller has its
 * reply, so a process that is killed leaves no part of an append that its successor repeats
 * (servers/restart_log.h). The data need not be visible yet: a recall waits for it and flushes it
 * (flush_visible). *ret_taken is false, and nothing was done, if there is no space or the session
 * has ended. Yields. */
static int append_behind(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n,
			 bool *ret_taken)
{
	struct inode_io *d = f->d;
	uint64_t len = vec_len(vec, n);
	struct stripe_part part = write_unit_part(f, off, len);
	uint32_t n_truncations = f->inode->n_truncations;
	int rc;

	grant_ask(d);
	d->mtime_guess_ns = time_of_write(d);
	rc = coalesce_write(d, &part, vec, n, ret_taken);
	if (list_empty(&d->writes) && d->coalesce.slot == NULL)
		d->mtime_guess_ns = 0;
	if (rc < 0 || !*ret_taken)
		return rc;
	write_note(f, off, len);
	d->size_unverified |= f->inode->n_truncations != n_truncations;
	ra_drop_range(d, off, len);
	d->wrote_under_lease = true;
	return 0;
}

/* Appends in a range that the MDS has reserved. Until the bytes arrive the range is a hole, so it
 * is written without delay. After a loss of the session, other clients may have truncated or
 * written the range; then another one is reserved, unless some of the bytes may be in the first
 * range already. Yields. */
static int64_t write_reserved(struct ll_file *f, const struct slot_vec *vec, uint32_t n)
{
	uint64_t until_us = client_deadline(f->c);
	struct append_range p = {0};
	int64_t rc;

	do {
		rc = append_reserve(f, vec_len(vec, n), &p);
		if (rc >= 0)
			rc = write_at(f, p.off, vec, n, WB_RESERVED);
		append_ended(f->d);
		p.lost = rc == -LE_EXIST;
	} while ((rc == -LE_SESSION_GONE || (p.lost && !f->d->reservation_written)) &&
		 loop_now_us() < until_us);
	return rc == -LE_SESSION_GONE || rc == -LE_EXIST ? -LE_IO : rc;
}

static int64_t write_end(struct ll_file *f, const struct slot_vec *vec, uint32_t n, unsigned how)
{
	struct inode_io *d = f->d;
	uint64_t off = 0, len = vec_len(vec, n);
	bool taken = false;
	int rc;

	TRY(wb_throttle(d, f->c->slots));
	if (how != 0 && !restart_log_has_previous(f->c, OP_mds_append))
		TRY(append_find_end(f, len, &off));
	if (d->appending) {
		rc = append_behind(f, off, vec, n, &taken);
		append_ended(d);
		TRY(rc);
	}
	return taken ? (int64_t)len : write_reserved(f, vec, n);
}

bool has_unflushed(const struct inode_io *d)
{
	return !PLANTED_BUG(CLIENT_UNTOLD) &&
	       (d->appending || (d->wrote_under_lease && wb_has_unflushed(d)));
}

int flush_visible(struct inode_io *d)
{
	while (d->appending)
		TRY(waitq_wait(&d->append_q, NO_DEADLINE));
	TRY(wb_flush_visible(d));
	d->wrote_under_lease = d->wrote_under_lease && wb_has_unflushed(d);
	return 0;
}

/* Where a write comes from: mapped pages written by the kernel, a write at an offset, or an
 * append. */
enum writer {
	PAGES,
	AT_OFFSET,
	AT_END
};

/* Returns true if, by this client's size of the file, the write may move the end while other open
 * files append. Pages are exempt: they never lie beyond the end, and the kernel has locked them, so
 * that a recall, for which an append may wait, would wait for them. */
static bool may_move_end(const struct ll_file *f, uint64_t end, enum writer by)
{
	return f->d->n_append + f->d->n_append_cleared > 0 &&
	       (end > f->d->size || (by == AT_OFFSET && inode_size_is_unverified(f->inode)));
}

static int64_t write_vec(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n,
			 unsigned how, enum writer by)
{
	struct inode_io *d = f->d;
	uint64_t len = vec_len(vec, n);
	int64_t rc;

	if (!f->can_write)
		return -LE_BADF;
	if (len > LL_IO_MAX || n > LL_VECS_MAX)
		return -LE_INVAL;
	if (len == 0)
		return 0;
	TRY(write_prepare(f));
	/* An append-only file (chattr +a) refuses other writes, also from a mapping and after
	 * fcntl(F_SETFL) has cleared O_APPEND. The kernel does not have this flag of the inode. */
	if (by != AT_END && (f->flags & O_APPEND) && (f->inode->attr.flags & ATTR_APPEND))
		return -LE_PERM;
	off = by == AT_END ? d->size : off;
	if (off > LEAT_FILE_SIZE_MAX - len)
		return -LE_FBIG;
	if (f->inode->attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_IO;
	if (by == AT_OFFSET && (f->counted & O_APPEND) != 0)
		TRY(append_flag_cleared(f));
	TRY(take_space(f, off, len));
	if (by != AT_END && !may_move_end(f, off + len, by))
		return write_at(f, off, vec, n, how);
	fmutex_lock(&d->append_lock);
	rc = by == AT_END ? write_end(f, vec, n, how) : write_at(f, off, vec, n, how);
	fmutex_unlock(&d->append_lock);
	return rc;
}

int64_t ll_write(struct ll_file *file, uint64_t off, const struct slot_vec *vec, uint32_t n)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	bool through = f->sync || f->direct || f->c->params.dirty_max == 0;

	return write_vec(f, off, vec, n, through ? 0 : WB_BEHIND, f->append ? AT_END : AT_OFFSET);
}

int64_t ll_write_pages(struct ll_file *file, uint64_t off, const struct slot_vec *vec, uint32_t n)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	unsigned how = f->c->params.dirty_max > 0 ? WB_BEHIND : 0;

	if (!lease_held(f->c, f->inode)) {
		how |= WB_PAGES;
		f->d->n_pages++;
	}
	return write_vec(f, off, vec, n, how, PAGES);
}

static void copy_end(struct client *c)
{
	c->n_copies--;
	waitq_wake_all(&c->copies_q);
}

/* Takes a slot for a copy of the caller's bytes. A quarter of the slots stays for readers and
 * incoming requests, however long the servers take. Yields. */
static int copy_begin(struct client *c, struct slot **ret_slot)
{
	uint32_t max = slot_pool_total(c->slots) / 4 * 3;
	uint64_t until_us = client_deadline(c);
	int rc = 0;

	if (c->n_copies >= max)
		coalesce_submit_all(c, UINT64_MAX);
	while (rc == 0 && c->n_copies >= max)
		rc = waitq_wait(&c->copies_q, until_us);
	if (rc == 0) {
		c->n_copies++;
		*ret_slot = slot_try_get(c->slots);
		if (*ret_slot != NULL)
			return 0;
		coalesce_submit_all(c, UINT64_MAX);
		rc = slot_get(c->slots, until_us, ret_slot);
		if (rc == 0)
			return 0;
		copy_end(c);
	}
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}

/* Copies and writes at most one slot of the caller's memory. Yields. */
static int64_t write_copy(struct ll_file *f, const uint8_t *buf, uint32_t len, uint64_t off,
			  bool pages)
{
	struct client *c = f->c;
	struct slot_vec vec = {NULL, 0, len};
	int64_t rc;
	bool large;

	if (len <= SMALL_SLOT_SIZE)
		vec.slot = slot_try_get(c->small);
	large = vec.slot == NULL;
	if (large)
		TRY(copy_begin(c, &vec.slot));
	copy_counted(vec.slot->data, buf, len);
	rc = pages ? ll_write_pages(f, off, &vec, 1) : ll_write(f, off, &vec, 1);
	slot_unref(vec.slot);
	if (large)
		copy_end(c);
	return rc;
}

static int64_t write_copies(struct ll_file *f, const void *buf, uint64_t len, uint64_t off,
			    bool pages)
{
	bool at_end = f->append && !pages;
	uint64_t done = 0;

	while (done < len) {
		/* Split where chunks of the usual size end, so that each slot is one request. */
		uint64_t space = at_end ? LL_IO_MAX : LL_IO_MAX - (off + done) % LL_IO_MAX;
		uint32_t take = (uint32_t)(len - done < space ? len - done : space);
		int64_t rc = write_copy(f, (const uint8_t *)buf + done, take, off + done, pages);

		if (rc < 0)
			return done > 0 ? (int64_t)done : rc;
		done += (uint64_t)rc;
	}
	return (int64_t)done;
}

int64_t ll_pwrite(struct ll_file *f, const void *buf, uint64_t len, uint64_t off)
{
	return write_copies(f, buf, len, off, false);
}

int64_t ll_pwrite_pages(struct ll_file *f, const void *buf, uint64_t len, uint64_t off)
{
	return write_copies(f, buf, len, off, true);
}
