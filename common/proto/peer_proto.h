/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between nodes that stage data sets: requests for chunks, and jobs for agents. Kinds as
 * in mds_proto.h. Every connection is authenticated with the cluster key. A receiver uses bytes of
 * a chunk only after its own manifest has confirmed them.
 */
#ifndef LEAT_COMMON_PROTO_PEER_PROTO_H
#define LEAT_COMMON_PROTO_PEER_PROTO_H

#include "common/proto/oss_proto.h"

#define PEER_OPS(M) \
	M(0x0301, peer_chunk, READ) \
	M(0x0302, peer_stage, CTRL) \
	M(0x0303, peer_status, READ) \
	M(0x0304, peer_damaged, CTRL)

/*
 * From an agent or loader to an agent: returns chunk `chunk` of the data set `id` (64 hex digits),
 * at most 1 MiB, as the bulk reply. wait_ms: how long the agent may wait until it has the chunk.
 * demand: the sender takes this node for the owner of the chunk, so the agent reads it from the
 * source now; without demand it waits only for a chunk in flight. from: the sender, by the name of
 * its member of the job. off, len: only these bytes of the chunk (len 0: all of it), for loaders,
 * which need samples; not with demand. A node of an older release sends the whole chunk.
 *
 * Instead of bytes, the reply to a demand may have `ask`: the member that has the chunk, or is
 * receiving it. The sender requests the chunk there, without demand. If that fails, it repeats the
 * demand with `again`, and the owner replies with bytes. -LE_AGAIN: the node does not have the
 * chunk (yet), or its job has failed; -LE_NOT_READY: its job is about to begin, or to end;
 * -LE_NOENT: the node has no job or copy of the data set (yet).
 */
#define peer_chunk_req_FIELDS(F) \
	F(bytes, id) F(u64, chunk) F(u32, wait_ms) F(u8, demand) F(bytes, from) F(u8, again) \
	F(u32, off) F(u32, len)
#define peer_chunk_rep_FIELDS(F) F(u32, len) F(bytes, ask)
/*
 * From `leat stage` and the stage library to an agent.
 *
 * START makes a copy of `what` (an alias, or a directory of the namespace), as `leat stage in`
 * does. members: addresses of all agents that make it ("host:port host:port ..."); self: the index
 * of the receiver among them. Without members, expect is their number, and the agent waits a while
 * for that many. placement: which files each member holds, enum placement, with `copies` copies of
 * each. Several STARTs with equal parameters are one job; the reply has its number, `job`: each job
 * that the agent begins gets the next one. CANCEL: the client that requested job (0: the newest of
 * `what`) no longer wants it; a job ends when all its clients have cancelled it. The other verbs do
 * what `leat stage VERB` does. to: one of the agent's directories, empty: the first. code: enum
 * leat_stage_code, 0: the job has begun, or the verb is done.
 */
enum peer_verb {
	PEER_START = 1,
	PEER_CANCEL,
	PEER_EVICT,
	PEER_PIN,
	PEER_UNPIN,
	PEER_LEASE,
	PEER_RELEASE,
};
enum peer_stage_flags { PEER_READBACK = 1, PEER_MAKE_ROOM = 2, PEER_UNPACK = 4 };
#define peer_stage_req_FIELDS(F) \
	F(u8, verb) F(bytes, what) F(bytes, to) F(bytes, catalog) F(bytes, members) F(u32, self) \
	F(bytes, order) F(u64, window) F(bytes, lease) F(u64, ttl_s) F(u64, max_rate) \
	F(u64, capacity) F(u64, timeout_ms) F(u32, flags) F(u32, expect) F(u8, placement) F(u32, copies) \
	F(u64, job)
#define peer_stage_rep_FIELDS(F) F(u32, code) F(bytes, message) F(u64, job)
/* From `leat stage` to an agent. json: the job of that number as a JSON object (job 0: the newest
 * for `what`), -LE_NOENT: it has none; with neither job nor `what`: the agent itself. */
#define peer_status_req_FIELDS(F) F(bytes, what) F(u64, job)
#define peer_status_rep_FIELDS(F) F(bytes, json)
/* From a loader to the agent of the same machine, if the loader may not write to the copy `id`: the
 * chunk was damaged when the loader read it. The agent verifies and repairs the chunk. -LE_BUSY:
 * too many reports are in its queue. */
#define peer_damaged_req_FIELDS(F) F(bytes, id) F(u64, chunk)
#define peer_damaged_rep_FIELDS(F)

PEER_OPS(MSG_STRUCTS)
enum peer_op { PEER_OPS(MSG_NUMBER) };

#endif
