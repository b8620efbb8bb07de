/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by oss_read and oss_readv. Owned by the target's loop.
 */
#ifndef LEAT_OSSD_OPS_READ_H
#define LEAT_OSSD_OPS_READ_H

#include "ossd/chain/chain.h"
#include "ossd/chunk/chunk_read.h"

/* Reads a chunk after the request was admitted: waits for pending changes if this target is head,
 * reads, and repairs damage. Sets cr->admit. Yields. */
int op_read_chunk(struct rpc_req *r, struct chain *c, struct chunk_read *cr) CHECK_RESULT;

#endif
