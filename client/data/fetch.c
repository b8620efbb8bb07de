/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/fetch.h"

#include <string.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/chunk_lease.h"
#include "client/data/hedged_read.h"
#include "client/layout/block_pieces.h"
#include "client/layout/block_sums.h"
#include "client/layout/stripe.h"
#include "client/servers/replica_select.h"
#include "client/servers/target.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/slot.h"

#define FETCH_PARTS  READ_CHUNKS_MAX
#define DAMAGE_TRIES 5

struct fetch_part {
	struct inode_io *d;
	struct stripe_part part;
	uint64_t chunk_at; /* file offset of the chunk's first byte */
	struct slot_vec to;
	struct ll_chunk_leases *leases; /* NULL: no leases */
	struct block_sums *sums;        /* NULL: not wanted */
	struct replica_route replica_route;
	int status;
};

static void fetch_part(void *arg);

/* Records that a hole was read. at: as of pieces_hole. */
static void note_hole(const struct fetch_part *p, uint32_t at)
{
	uint64_t off = p->chunk_at + p->part.off + at;

	if (at == p->part.len)
		return;
	p->d->n_holes++;
	if (p->leases != NULL && off < p->leases->hole)
		p->leases->hole = off;
}

/* Verifies the reply. The part of the range beyond the end of the chunk's data becomes zeros. */
static int fetch_check(struct fetch_part *p, const struct oss_read_rep *rep, uint32_t bulk_len)
{
	struct pieces_in in = {
		.pieces = rep->pieces,
		.block_size = chunk_block_size(p->d->inode->attr.layout.chunk_size),
		.off = p->part.off,
		.space = p->part.len,
		.bulk_len = bulk_len,
		.data = p->to.slot->data + p->to.off,
		.scratch = p->d->c->block,
		.sums = p->sums,
		.chunk_at = p->chunk_at,
	};
	uint32_t len = 0;

	TRY(pieces_open(&in, &len));
	memset(in.data + len, 0, p->part.len - len);
	note_hole(p, pieces_hole(&in, len));
	return 0;
}

static void note_end(const struct fetch_part *p, uint32_t end)
{
	uint64_t at = p->chunk_at + end;

	if (end > 0 && at > p->leases->stored_end)
		p->leases->stored_end = at;
}

static void log_damage(const struct fetch_part *p, int status)
{
	log_write(status == -LE_CORRUPT ? LOG_ERROR : LOG_WARN,
		  "read of ino %llu chunk %llu from target %u: %s",
		  (unsigned long long)p->d->inode->ino.v, (unsigned long long)p->part.idx,
		  p->replica_route.target != NULL ? p->replica_route.target->id : 0,
		  status_text(status));
}

static int fetch_once(struct fetch_part *p, uint32_t flags)
{
	struct client *c = p->d->c;
	struct oss_read_req req = {
		.chunk = {.ino = p->d->inode->ino, .idx = p->part.idx},
		.off = p->part.off,
		.len = p->part.len,
		.flags = flags,
		.lease = p->leases != NULL ? p->leases->number : 0,
	};
	struct oss_read_rep rep;
	struct rpc_call call = {
		.op = OP_oss_read,
		.req = &req,
		.rep = &rep,
		.bulk_in = &p->to,
		.n_bulk_in = 1,
	};
	struct cap_auth auth = {.right = CAP_TO_READ, .cap = &req.cap, .gen = &req.chunk.gen};
	struct hedge hedge = {
		.c = c,
		.req = &req,
		.call = &call,
		.replica_route = &p->replica_route,
		.block_size = chunk_block_size(p->d->inode->attr.layout.chunk_size),
		.chunk_at = p->chunk_at,
		.sums = p->sums,
	};
	uint8_t *data = p->to.slot->data + p->to.off;
	uint32_t len;
	int rc;

	hedge_begin(&hedge);
	rc = cap_call(p->d, p->part.idx, &call, &auth, &p->replica_route);
	if (hedge_end(&hedge, &rc, data, &len)) {
		memset(data + len, 0, p->part.len - len);
		note_hole(p, hedge.hole);
	} else if (rc >= 0) {
		rc = fetch_check(p, &rep, call.ret_bulk_len);
	}
	if (rc >= 0 && p->leases != NULL)
		note_end(p, rep.end);
	rpc_call_fini(&call);
	if (rc == -LE_CORRUPT || rc == -LE_CORRUPT_WIRE) {
		c->stats.checksum_errors++;
		log_damage(p, rc);
	}
	return rc;
}

/* Reads one part of a chunk. If the data is damaged, reads again with READ_VERIFY, so that the
 * server checks what it has stored; another member if there is one. Yields. */
static void fetch_part(void *arg)
{
	struct fetch_part *p = arg;
	uint32_t flags = 0;

	p->replica_route =
		(struct replica_route){.hash = replica_hash(p->d->c, p->d->inode->ino, p->part.idx),
				       .head = p->leases != NULL};
	for (int tries = 0; tries < DAMAGE_TRIES; tries++) {
		p->status = fetch_once(p, flags);
		/* -LE_CORRUPT: every replica is damaged. The caller gets that status. */
		if (p->status != -LE_CORRUPT_WIRE)
			return;
		replica_failed(&p->replica_route, false);
		flags = READ_VERIFY;
	}
	p->status = -LE_IO;
}

int fetch_range(struct inode_io *d, uint64_t off, const struct slot_vec *to,
	     struct ll_chunk_leases *leases, struct block_sums *sums)
{
	struct stripe_part truncated[FETCH_PARTS];
	struct fetch_part parts[FETCH_PARTS];
	uint64_t covered;
	uint32_t n;

	if (d->inode->attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_IO;
	n = stripe_cut(d->inode->attr.layout.chunk_size, off, to->len, truncated, FETCH_PARTS,
		       &covered);
	if (covered != to->len)
		return -LE_INVAL;
	for (uint32_t i = 0; i < n; i++) {
		parts[i] = (struct fetch_part){
			.d = d,
			.part = truncated[i],
			.chunk_at = off + truncated[i].at - truncated[i].off,
			.to = {to->slot, to->off + (uint32_t)truncated[i].at, truncated[i].len},
			.leases = leases,
			.sums = sums,
		};
		if (leases != NULL)
			chunk_leases_add(leases, truncated[i].idx);
	}
	if (n == 1)
		fetch_part(&parts[0]);
	else
		fiber_parallel("oss_read", fetch_part, parts, sizeof(*parts), n, n);
	for (uint32_t i = 0; i < n; i++)
		TRY(parts[i].status);
	return 0;
}
