/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/chunk_copy.h"

#include <stdlib.h>

#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/cluster/cluster_map.h"
#include "mds/file/chain_stat.h"
#include "mds/mds.h"

#define WAIT_MS 50u

/* Waits until the request can be sent. It names the head of the other chain, which may change,
 * so the caller fills it in only then. */
static int wait_ready(struct mds *m, uint32_t from, const struct chain *to)
{
	uint64_t until_us = loop_deadline_ms(m->params.oss_timeout_ms);

	while (!oss_ready(&m->oss, from) || cluster_chain_head(&m->cluster, to) == NULL) {
		if (loop_now_us() >= until_us)
			return -LE_TARGET_DOWN;
		TRY(mds_sleep_ms(m, WAIT_MS));
	}
	return 0;
}

int chunk_copy(struct mds *m, const struct chunk_copy *cc, struct oss_copy_rep *rep)
{
	struct cluster *c = &m->cluster;
	struct chain *from = cluster_layout_chain(c, cc->from, cc->at);
	struct chain *to = cluster_layout_chain(c, cc->to, cc->idx == COPY_NONE ? 0 : cc->to_idx);
	struct oss_copy_req req = {.ino = cc->ino,
				   .gen = cc->from->gen,
				   .idx = cc->idx,
				   .chunk_size = cc->from->chunk_size,
				   .to_gen = cc->to->gen};
	struct bytes chains;
	int rc;

	if (from == NULL || to == NULL)
		return -LE_CORRUPT_STORE;
	if (((from->flags | to->flags) & CHAIN_LOST) != 0)
		return -LE_GIVEN_UP;
	TRY(wait_ready(m, from->id, to));
	if (!ino_equal(cc->ino, cc->to_ino)) {
		req.to_ino = cc->to_ino;
		req.to_idx = cc->to_idx;
	}
	req.to_cap = data_cap(m, cc->to_ino, cc->to->gen, SESSION_COPY);
	req.to_chain = to->id;
	req.to_epoch = to->epoch;
	req.to_target = cluster_chain_head(c, to)->info.id;
	TRY(cluster_chains_encode(c, &to, 1, &chains, &req.targets));
	rc = oss_call_once(&m->oss, from->id, OP_oss_copy, &req, rep,
			   loop_deadline_ms(m->params.oss_timeout_ms));
	free((void *)(uintptr_t)chains.data);
	return rc;
}
