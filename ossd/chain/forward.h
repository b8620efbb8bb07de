/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a version to the next members: the next SYNC one; at the tail every SYNCING one for which
 * the chunk is covered (resync.h). Each version has a fiber as long as it is pending and not
 * durable there. It retries when the connection breaks, the member is slow, or the epoch changes.
 */
#ifndef LEAT_OSSD_CHAIN_FORWARD_H
#define LEAT_OSSD_CHAIN_FORWARD_H

#include "ossd/chain/commit.h"

/* Starts the fiber that sends the version. Without a next member, marks the version as durable
 * downstream. Call after join. Does not yield. */
void forward_start(struct version *v);
/* Notifies the members downstream that the versions from in->version to in->upto of in->chunk are
 * aborted, and that in->base is the newest. Returns 0 when that is durable there. epoch: the one
 * in which they were aborted here. Fails with -LE_STALE_EPOCH when another target is, or may have
 * been, head. Yields. */
int forward_abort(struct chain *c, const struct oss_forward_req *in, uint32_t epoch) CHECK_RESULT;

#endif
