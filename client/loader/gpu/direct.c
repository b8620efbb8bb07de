/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/gpu/direct.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/loader/gpu/cuda.h"
#include "client/loader/gpu/gds.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define READS_AT_ONCE 8u /* each on a worker thread */

/* ---- which batches ---- */

static bool is_verified(const struct leat_dataset *ds, uint32_t file, const struct piece_io *p)
{
	const struct manifest_file *f = &ds->m->files[ds->manifest_file[file]];
	uint64_t last = (p->off + p->len - 1) / f->block;
	for (uint64_t i = p->off / f->block; i <= last; i++) {
		if (!dataset_block_verified(ds, f->first_sum + i))
			return false;
	}
	return true;
}

static bool may_go(const struct leat_batch *b)
{
	if (b->n_jobs || b->n_decodes || b->cache || b->n_pieces == 0)
		return false;
	for (uint32_t i = 0; i < b->n_pieces; i++) {
		uint32_t file;
		const struct piece_io *p = &b->pieces[i];
		const struct leat_dataset *from = dataset_of_file(b->ds, p->file, &file);
		if (from->vol->origin != ORIGIN_LOCAL ||
		    dataset_is_packed(b->ds, p->file))
			return false;
		if (from->m && !is_verified(from, file, p))
			return false;
	}
	return true;
}

/* ---- reading ---- */

struct direct_call {
	struct leat_batch *b;
	uint64_t mem;
	uint32_t next;
	int rc; /* of the first failure */
};

/* The read of one piece, on a worker thread. */
struct direct_read {
	struct direct_call *call;
	const struct piece_io *p;
	char path[4096];
	int rc;
};

static void read_piece(void *arg)
{
	struct direct_read *r = arg;
	struct gds_range range = {.path = r->path,
				  .file = r->p->file,
				  .off = r->p->off,
				  .len = r->p->len,
				  .mem = r->call->mem,
				  .at = r->p->dst};
	struct leat_batch *b = r->call->b;
	r->rc = cuda_slot_enter(b->cuda);
	if (r->rc < 0)
		return;
	r->rc = gds_read(b->ld->gds, &range);
	cuda_slot_leave();
}

static int read_next(struct direct_call *c, struct direct_read *r)
{
	uint32_t file;
	struct leat_batch *b = c->b;
	r->call = c;
	r->p = &b->pieces[c->next++];
	const struct leat_dataset *from = dataset_of_file(b->ds, r->p->file, &file);
	int n = snprintf(r->path, sizeof(r->path), "%s/%s", from->root,
			 index_string(b->ds->x, b->ds->x->files[r->p->file].path));
	if (n >= (int)sizeof(r->path))
		return -LE_NAMETOOLONG;
	TRY(env_offload(loop_env(loop_self()), read_piece, r));
	return r->rc;
}

static void read_pieces(void *arg)
{
	struct direct_call *c = *(struct direct_call **)arg;
	struct direct_read *r = malloc(sizeof(*r)); /* too large for the stack of a fiber */
	int rc = r ? 0 : -LE_NOMEM;
	while (rc == 0 && c->rc == 0 && c->next < c->b->n_pieces)
		rc = read_next(c, r);
	free(r);
	if (rc < 0 && c->rc == 0)
		c->rc = rc;
}

/* On a worker thread: waits until the device memory is unused. */
static void empty(void *arg)
{
	struct direct_call *c = arg;
	c->rc = cuda_slot_empty(c->b->cuda, &c->mem);
}

static int read_batch(struct leat_batch *b)
{
	struct direct_call c = {.b = b}, *all[READS_AT_ONCE];
	uint32_t n = b->n_pieces < READS_AT_ONCE ? b->n_pieces : READS_AT_ONCE;
	TRY(env_offload(loop_env(loop_self()), empty, &c));
	for (uint32_t i = 0; i < n; i++)
		all[i] = &c;
	if (c.rc == 0)
		fiber_parallel("direct", read_pieces, all, sizeof(all[0]), n, n);
	TRY(c.rc);
	cuda_slot_filled(b->cuda);
	return 0;
}

static void account(struct leat_batch *b)
{
	for (uint32_t i = 0; i < b->n_pieces; i++)
		b->bytes_direct += b->pieces[i].len;
	b->bytes_local += b->bytes_direct;
}

bool direct_fill(struct leat_batch *b)
{
	struct gds *g = b->ld ? b->ld->gds : NULL;
	b->timed = false;
	if (!g || !cuda_slot_delivers(b->cuda) || !may_go(b))
		return false;
	b->began_us = loop_now_us();
	if (gds_choose(g, &b->timed) == GDS_BOUNCE)
		return false;
	b->phase = PHASE_READ;
	int rc = read_batch(b);
	if (rc < 0) {
		b->timed = false;
		gds_failed(g, rc);
		return false;
	}
	account(b);
	if (b->timed)
		gds_took(g, GDS_DIRECT, loop_now_us() - b->began_us, b->bytes_direct);
	b->timed = false;
	b->direct = true;
	return true;
}

static void arrive(void *arg)
{
	struct direct_call *c = arg;
	c->rc = cuda_slot_arrived(c->b->cuda);
}

void direct_after_send(struct leat_batch *b)
{
	struct direct_call c = {.b = b};
	if (!b->timed)
		return;
	b->timed = false;
	int rc = env_offload(loop_env(loop_self()), arrive, &c);
	if (rc == 0 && c.rc == 0)
		gds_took(b->ld->gds, GDS_BOUNCE, loop_now_us() - b->began_us, b->bytes_local);
}
