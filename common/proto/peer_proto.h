/*
 * What nodes ask of each other while they stage: chunks of data sets, and jobs for their agents.
 * Kinds as in mds_proto.h. Every connection has the cluster key behind it; bytes of chunks are
 * believed only as far as the asker's own manifest confirms them.
 */
#ifndef LEAT_PROTO_PEER_PROTO_H
#define LEAT_PROTO_PEER_PROTO_H

#include "common/proto/oss_proto.h"

#define PEER_OPS(M) \
	M(0x0301, peer_chunk, READ) \
	M(0x0302, peer_stage, CTRL) \
	M(0x0303, peer_status, READ) \
	M(0x0304, peer_damaged, CTRL)

/*
 * Chunk `chunk` of the data set `id` (64 hex digits), at most 1 MiB, as the bulk reply. wait_ms:
 * how long it may take until it is there; demand: the asker takes the node for the one that reads
 * this chunk from the source, so it does that now; without it, only a chunk that is on its way is
 * waited for. -LE_AGAIN: not here (yet), or the node's job has failed; -LE_NOT_READY: its job is
 * about to begin, or to end; -LE_NOENT: the node has nothing to do with the data set (yet).
 * from: who asks, as members of the job are named. Instead of bytes the answer to a demand may be
 * `ask`: the member that has the chunk, or is getting it, and is to be asked without demand. Did
 * that one not give it, the demand is repeated with `again` and answered with bytes.
 * off, len: only these bytes of the chunk (len 0: all of it), for loaders, which want samples; not
 * with demand. A node of an older release sends all of it.
 */
#define peer_chunk_req_FIELDS(F) \
	F(bytes, id) F(u64, chunk) F(u32, wait_ms) F(u8, demand) F(bytes, from) F(u8, again) \
	F(u32, off) F(u32, len)
#define peer_chunk_rep_FIELDS(F) F(u32, len) F(bytes, ask)
/*
 * To an agent. START: make a copy of `what` (an alias, or a directory of the namespace), as `leat
 * stage in` does; members: addresses of all agents that make it ("host:port host:port ..."), self
 * is the place of this one among them; where they are not named, expect is how many there will be,
 * which are waited for a while; placement: which files each holds, enum placement, with that many
 * copies of each; several STARTs of the same are one job. The answer says which: `job`, one more
 * for each that this agent begins. CANCEL: who asked for that job wants it no more (0: for the
 * newest of `what`); it ends when all have said so. The others: what `leat stage VERB` does. to:
 * one of the agent's directories, empty: the first. code: enum leat_stage_code, 0: begun or done.
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
/* The agent's job of that number as a JSON object (0: the newest for `what`); -LE_NOENT: it has
 * none. Neither: the agent. */
#define peer_status_req_FIELDS(F) F(bytes, what) F(u64, job)
#define peer_status_rep_FIELDS(F) F(bytes, json)
/* To the agent of the same machine, by a loader that may not write the copy `id` itself: that chunk
 * was wrong when it was read. The agent looks, and puts it right. -LE_BUSY: it has been told of too
 * many at once. */
#define peer_damaged_req_FIELDS(F) F(bytes, id) F(u64, chunk)
#define peer_damaged_rep_FIELDS(F)

PEER_OPS(MSG_STRUCTS)
enum peer_op { PEER_OPS(MSG_NUMBER) };

#endif
