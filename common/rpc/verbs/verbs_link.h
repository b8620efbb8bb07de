/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links: queue pairs, shutdown, receiving. Inside of common/rpc/verbs only.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_LINK_H
#define LEAT_COMMON_RPC_VERBS_VERBS_LINK_H

#include "common/rpc/verbs/verbs_impl.h"

/* Creates a link for an id with a resolved address. */
int verbs_link_create(struct verbs_loop *vl, struct rdma_cm_id *id, struct verbs_link **ret_link)
	CHECK_RESULT;
/* Makes the queue pair, in a group of the device that the address is routed to. -LE_NETDOWN,
 * -LE_OVERLOAD, -LE_NODEV, -LE_NOMEM */
int verbs_link_queue_pair(struct verbs_link *k) CHECK_RESULT;
/* Schedules the link to be broken, once no code on the stack uses it. */
void verbs_link_doom(struct verbs_link *k, const char *reason, int status);
/* Ends the queue pair: the peer is dead, or the link is unusable. */
void verbs_link_break(struct verbs_link *k, const char *reason, int status);
/* Destroys the queue pair before it returns. Not from within verbs_group_poll. */
void verbs_link_end_qp(struct verbs_link *k);
/* Sends BYE, and ends the queue pair once all messages have completed, at most 500 ms later;
 * immediately if BYE cannot be sent. */
void verbs_link_shutdown(struct verbs_link *k);
/* Frees a link whose queue pair was destroyed. */
void verbs_link_free(struct verbs_link *k);
/* Handle completions: of the request with number upto, of a received message in buf. */
void verbs_link_sent(struct verbs_link *k, uint32_t upto, const struct ibv_wc *wc);
void verbs_link_received(struct verbs_link *k, uint32_t buf, uint32_t len);
/* What a completion's status means for the connection. */
const char *verbs_wc_reason(enum ibv_wc_status status);
int verbs_recv(struct link *base, struct link_rx *ret_rx) CHECK_RESULT;
struct verbs_link *verbs_link_of(struct link *base);

#endif
