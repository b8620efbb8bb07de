/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/seal.h"

#include <stddef.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/write_coalesce.h"
#include "client/data/write_request.h"
#include "client/layout/block_pieces.h"
#include "common/proto/types.h"
#include "common/rt/env.h"
#include "common/rt/slot.h"

struct seal {
	const struct wreq *w;
	struct pieces_out out;
	uint32_t len, n_packed;
};

/* Runs on a worker thread. */
static void seal_run(void *arg)
{
	struct seal *s = arg;

	s->len = pieces_seal(&s->out, s->w->vec, &s->n_packed);
}

/* Compresses the write, a large one on a worker thread: that takes milliseconds, which would block
 * the loop. */
static int seal_blocks(struct wreq *w, uint32_t block_size)
{
	struct client *c = w->d->c;
	struct seal s = {.w = w, .out = {block_size, w->off, w->len, NULL, w->pieces, NULL}};
	struct slot *slot;
	int rc = slot_get(c->seals, w->deadline_us, &slot);

	if (rc < 0)
		return rc == -LE_TIMEDOUT ? -LE_IO : rc;
	s.out.to = slot->data;
	s.out.scratch = slot->data + WREQ_LEN_MAX;
	if (w->len < COALESCE_BELOW || env_offload(c->env, seal_run, &s) < 0)
		seal_run(&s);
	if (s.n_packed == 0) {
		slot_unref(slot);
		return 0;
	}
	/* From here on the compressed data is sent; the plain bytes are no longer needed. */
	for (uint32_t i = 0; i < w->n_vec; i++)
		slot_unref(w->vec[i].slot);
	w->vec[0] = (struct slot_vec){slot, 0, s.len};
	w->n_vec = 1;
	return 0;
}

int wreq_seal(struct wreq *w)
{
	const struct layout *l = &w->d->inode->attr.layout;
	uint32_t bs = chunk_block_size(l->chunk_size);

	w->n_pieces = w->block_last - w->block_first + 1;
	if (l->compression == COMPRESSION_LZ4 && pieces_whole(bs, w->off, w->len))
		return seal_blocks(w, bs);
	pieces_cut(bs, w->off, w->len, w->vec, w->pieces);
	return 0;
}
