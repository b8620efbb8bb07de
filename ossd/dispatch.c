/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/dispatch.h"

#include "ossd/ops/handlers.h"

const struct rpc_handler ossd_handlers[] = {
	{ OP_oss_read, op_read },     { OP_oss_write, op_write },   { OP_oss_trim, op_trim },
	{ OP_oss_punch, op_punch },   { OP_oss_remove, op_remove }, { OP_oss_stat, op_stat },
	{ OP_oss_list, op_list },     { OP_oss_sums, op_sums },	    { OP_oss_grant, op_grant },
	{ OP_oss_status, op_status }, { OP_oss_sync, op_sync },
	{ OP_oss_chain_set, op_chain_set }, { OP_oss_forward, op_forward },
	{ OP_oss_commit, op_commit }, { OP_oss_resolve, op_resolve },
	{ OP_oss_resync_ask, op_resync_ask }, { OP_oss_resync_chunk, op_resync_chunk },
	{ OP_oss_resync_rows, op_resync_rows }, { OP_oss_fetch, op_fetch },
	{ OP_oss_scrub, op_scrub },   { OP_oss_copy, op_copy },
	{ OP_oss_readv, op_readv },   { OP_oss_release, op_release },
	{ OP_oss_replay_done, op_replay_done }, { OP_oss_next, op_next },
};
const uint32_t n_ossd_handlers = ARRAY_SIZE(ossd_handlers);
