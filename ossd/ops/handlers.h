/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations, each in the file of its name. A handler runs in the fiber of its request on the
 * target's loop; r->arg is the struct target. in is the decoded request, out the reply to encode.
 * Returns 0 or the status of the reply. May yield.
 */
#ifndef LEAT_OSSD_OPS_HANDLERS_H
#define LEAT_OSSD_OPS_HANDLERS_H

#include "common/rpc/rpc.h"

int op_read(struct rpc_req *r, const void *in, void *out);
int op_replay_done(struct rpc_req *r, const void *in, void *out);
int op_release(struct rpc_req *r, const void *in, void *out);
int op_write(struct rpc_req *r, const void *in, void *out);
int op_trim(struct rpc_req *r, const void *in, void *out);
int op_punch(struct rpc_req *r, const void *in, void *out);
int op_remove(struct rpc_req *r, const void *in, void *out);
int op_stat(struct rpc_req *r, const void *in, void *out);
int op_list(struct rpc_req *r, const void *in, void *out);
int op_sums(struct rpc_req *r, const void *in, void *out);
int op_grant(struct rpc_req *r, const void *in, void *out);
int op_status(struct rpc_req *r, const void *in, void *out);
int op_sync(struct rpc_req *r, const void *in, void *out);
int op_chain_set(struct rpc_req *r, const void *in, void *out);
int op_forward(struct rpc_req *r, const void *in, void *out);
int op_commit(struct rpc_req *r, const void *in, void *out);
int op_resolve(struct rpc_req *r, const void *in, void *out);
int op_resync_ask(struct rpc_req *r, const void *in, void *out);
int op_resync_chunk(struct rpc_req *r, const void *in, void *out);
int op_resync_rows(struct rpc_req *r, const void *in, void *out);
int op_fetch(struct rpc_req *r, const void *in, void *out);
int op_copy(struct rpc_req *r, const void *in, void *out);
int op_readv(struct rpc_req *r, const void *in, void *out);
int op_next(struct rpc_req *r, const void *in, void *out);
int op_scrub(struct rpc_req *r, const void *in, void *out);

#endif
