/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/write_range.h"

#include <stddef.h>
#include <sys/stat.h>

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/data/write_coalesce.h"
#include "client/data/write_request.h"
#include "client/layout/stripe.h"
#include "client/ll.h"
#include "client/servers/mds_call.h"
#include "client/servers/open_count.h"
#include "client/servers/session.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/slot.h"

#define WRITE_PARTS (LL_IO_MAX / LEAT_CHUNK_SIZE_MIN + 2)

/* Returns what a write removes from the file: security.capability always; set-id bits if the writer
 * is a user of the library. For programs on a mount the kernel decides that. */
static uint32_t write_kills(const struct ll_file *f)
{
	const struct attr *a = &f->inode->attr;
	uint32_t mask = (a->flags & ATTR_FILE_CAPS) != 0 ? SET_KILL_CAPS : 0;
	bool set_id =
		(a->mode & S_ISUID) != 0 || (a->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);

	return set_id && f->kills_suid ? mask | SET_KILL_SUID : mask;
}

int write_prepare(struct ll_file *f)
{
	struct inode_io *d = f->d;
	struct cred cred = cap_renew_cred(d);

	TRY(size_refresh_rights(f->c, &cred, f->inode));
	if ((f->inode->attr.flags & (ATTR_SEALED | ATTR_IMMUTABLE)) != 0)
		return -LE_PERM;
	if (write_kills(f) != 0) {
		struct mds_setattr_req req = {
			.cred = cred, .ino = f->inode->ino, .mask = write_kills(f)};
		struct mds_setattr_rep rep;
		struct rpc_call call;
		int rc = mds_call(f->c, OP_mds_setattr, &req, &rep, &call);

		if (rc >= 0)
			inode_update(f->c, f->inode, &rep.attr, true, call.sent_us);
		rpc_call_fini(&call);
		TRY(rc);
	}
	return 0;
}

void write_note(struct ll_file *f, uint64_t off, uint64_t len)
{
	struct inode_io *d = f->d;
	const struct layout *l = &f->inode->attr.layout;

	if (off > d->size)
		d->sparse = true;
	if (off + len > d->size)
		d->size = off + len;
	if (l->compression != COMPRESSION_NONE && d->size >= chunk_block_size(l->chunk_size))
		d->packed = true;
	f->wrote = true;
	f->c->stats.write_ops++;
	f->c->stats.written_bytes += len;
}

static int wait_all(struct wreq **waits, uint32_t n)
{
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		int one = wb_wait(waits[i]);
		if (one < 0 && rc == 0)
			rc = one;
	}
	return rc;
}

/* Returns true if the write extends a file that other clients can read. Its parts must then become
 * visible one after the other: each chain reports its own end, and a missing part would be read as
 * zeros. Under a write lease no other client reads before all parts are visible. */
static bool grows_in_sight(const struct ll_file *f, uint64_t end)
{
	return !lease_held(f->c, f->inode) &&
	       (end > f->d->size || inode_size_is_unverified(f->inode));
}

int write_large(struct ll_file *f, uint64_t off, uint64_t len, const struct slot_vec *vec,
		       uint32_t n, unsigned how)
{
	struct stripe_part parts[WRITE_PARTS];
	struct wreq *waits[WRITE_PARTS];
	uint32_t n_parts, n_waits = 0;
	uint64_t covered;
	int rc = 0, rc2;

	n_parts = stripe_cut(f->inode->attr.layout.chunk_size, off, len, parts, WRITE_PARTS,
			     &covered);
	if (covered != len)
		return -LE_INVAL;
	coalesce_submit(f->d);
	if (n_parts == 1 && !(how & WB_BEHIND))
		return wb_write_now(f->d, &parts[0], vec, n, how);
	for (uint32_t i = 0; i < n_parts && rc >= 0; i++) {
		struct wreq *w;

		rc = wb_submit(f->d, &parts[i], vec, n, how, &w);
		if (rc >= 0 && w != NULL)
			waits[n_waits++] = w;
		if (rc >= 0 && i + 1 < n_parts && grows_in_sight(f, off + len))
			rc = w != NULL ? wb_await_visible(w)
				       : wb_flush_visible_range(f->d, off + parts[i].at,
								parts[i].len);
	}
	rc2 = wait_all(waits, n_waits);
	return rc < 0 ? rc : rc2;
}

uint32_t write_unit_size(const struct ll_file *f)
{
	uint32_t chunk_size = f->inode->attr.layout.chunk_size;

	return chunk_size < LL_IO_MAX ? chunk_size : LL_IO_MAX;
}

struct stripe_part write_unit_part(const struct ll_file *f, uint64_t off, uint64_t len)
{
	uint32_t chunk_size = f->inode->attr.layout.chunk_size;
	struct stripe_part part = stripe_first(write_unit_size(f), off, len);

	part.idx = off / chunk_size;
	part.off = (uint32_t)(off % chunk_size);
	part.at = 0;
	return part;
}

int write_small(struct ll_file *f, uint64_t off, uint64_t len, const struct slot_vec *vec,
		       uint32_t n)
{
	for (uint64_t at = 0; at < len;) {
		struct stripe_part part = write_unit_part(f, off + at, len - at);
		bool taken;

		part.at = at;
		TRY(coalesce_write(f->d, &part, vec, n, &taken));
		if (!taken) {
			coalesce_submit(f->d);
			TRY(wb_write_now(f->d, &part, vec, n, 0));
		}
		if (at + part.len < len && grows_in_sight(f, off + len))
			TRY(wb_flush_visible_range(f->d, off + at, part.len));
		at += part.len;
	}
	return 0;
}

int write_flush_end(struct ll_file *f)
{
	int rc;

	do {
		TRY(session_await(f->d));
		rc = wb_flush_visible(f->d);
		while (rc >= 0 && inode_size_is_unverified(f->inode))
			rc = size_settle(f->c, f->inode, &f->inode->attr);
		/* Without the right to read, this client's size is used, which may be too large but
		 * not too small. */
		if (rc == -LE_ACCES || rc == -LE_PERM)
			rc = 0;
	} while (rc >= 0 && session_misses(f->d));
	return rc;
}
