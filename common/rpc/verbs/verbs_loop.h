/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Per-loop state (struct verbs_loop), groups of links with a completion queue, completions. Inside
 * of common/rpc/verbs only.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_LOOP_H
#define LEAT_COMMON_RPC_VERBS_VERBS_LOOP_H

#include "common/rpc/verbs/verbs_impl.h"

/* Returns the state of the current loop; creates it at the first use. */
int verbs_loop_get(struct verbs *v, struct verbs_loop **ret_hub) CHECK_RESULT;
/* Counts a link or listener. The first one starts the watch of events, the poller and the
 * keep-alive timer on the loop. */
int verbs_loop_use(struct verbs_loop *vl) CHECK_RESULT;
/* Ends the count; the last one stops what the first has started. */
void verbs_loop_unuse(struct verbs_loop *vl);
void verbs_loop_free(struct verbs_loop *vl);
/* Finds a place for the link in a group of its device. */
int verbs_group_join(struct verbs_link *k) CHECK_RESULT;
/* Frees the link's place; destroys the group if it is worn out and this was its last link. */
void verbs_group_leave(struct verbs_link *k);
/* Handles completions, up to a limit per call. Not reentrant. */
void verbs_group_poll(struct verbs_group *g);
/* Like verbs_group_poll, until the queue is empty. */
void verbs_group_drain(struct verbs_group *g);
/* Frees a receive buffer that no link uses any longer. Only a shared queue takes it back here. */
void verbs_rx_drop(struct verbs_group *g, uint32_t buf);
/* Posts the freed buffers to the shared receive queue. */
void verbs_group_repost(struct verbs_group *g);

static inline uint8_t *verbs_buf(const struct verbs_group *g, uint32_t buf)
{
	return g->memory + (uint64_t)buf * g->buf_size;
}

uint32_t verbs_tx_get(struct verbs_group *g); /* VERBS_NO_BUF: none free */
void verbs_tx_put(struct verbs_group *g, uint32_t buf);

#endif
