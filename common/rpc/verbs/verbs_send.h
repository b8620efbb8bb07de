/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending: credits, frames, transfers from and to peers' memory. Inside of common/rpc/verbs only.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_SEND_H
#define LEAT_COMMON_RPC_VERBS_VERBS_SEND_H

#include "common/rpc/verbs/verbs_impl.h"

/* Posts the staged work requests by one doorbell. */
void verbs_flush(struct verbs_loop *vl);
/* Sends BYE, the last message; false if it cannot be sent now. */
bool verbs_link_bye(struct verbs_link *k);
/* Sends what the link owes its peer: TRIED, or credits if they are half of those given. What
 * cannot be sent now stays owed. */
void verbs_link_pay(struct verbs_link *k);
/* Sends a message on an idle link, so that a dead peer is detected. */
void verbs_link_ping(struct verbs_link *k);
/* Checks that the peer is alive, for a caller that waits in silence; see probe in transport.h. */
void verbs_link_probe(struct verbs_link *k);
/* Sends TRY, the message of maximum size; the peer's answer sets `tried` and wakes `cm`. False if
 * no buffer is free. */
bool verbs_link_try(struct verbs_link *k);
int verbs_send(struct link *base, const struct link_tx *tx, uint64_t deadline_us) CHECK_RESULT;
int verbs_recv_bulk(struct link *base, const struct link_rx *rx, const struct slot_vec *vec,
		    uint32_t n) CHECK_RESULT;

#endif
