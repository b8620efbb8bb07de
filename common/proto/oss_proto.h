/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object server's operations; the frame's target field names the target. Kinds as in
 * mds_proto.h. A client sends a message to the head of the chain, or a read to any SYNC member,
 * unless the comment says otherwise. Every data request carries a capability and the epoch of the
 * chain.
 */
#ifndef LEAT_COMMON_PROTO_OSS_PROTO_H
#define LEAT_COMMON_PROTO_OSS_PROTO_H

#include "common/proto/mds_proto.h"

#define OSS_OPS(M) \
	M(0x0201, oss_read, READ) \
	M(0x0202, oss_write, WRITE) \
	M(0x0203, oss_trim, WRITE) \
	M(0x0204, oss_punch, WRITE) \
	M(0x0205, oss_remove, WRITE) \
	M(0x0206, oss_stat, READ) \
	M(0x0207, oss_list, READ) \
	M(0x0208, oss_sums, READ) \
	M(0x0209, oss_grant, CTRL) \
	M(0x020a, oss_status, CTRL) \
	M(0x020b, oss_sync, CTRL) \
	M(0x020c, oss_chain_set, CTRL) \
	M(0x020d, oss_forward, CTRL) \
	M(0x020e, oss_commit, CTRL) \
	M(0x020f, oss_resolve, CTRL) \
	M(0x0210, oss_resync_ask, CTRL) \
	M(0x0211, oss_resync_chunk, CTRL) \
	M(0x0212, oss_resync_rows, CTRL) \
	M(0x0213, oss_fetch, READ) \
	M(0x0214, oss_scrub, CTRL) \
	M(0x0218, oss_copy, READ) \
	M(0x0219, oss_readv, READ) \
	M(0x021a, oss_release, READ) \
	M(0x021b, oss_replay_done, CTRL) \
	M(0x021c, oss_next, READ)

/*
 * Reads bytes [off, off + len) of a chunk. The bulk reply is [off, min(off + len, end)): holes as
 * zeros, compressed blocks as they are stored. pieces (packed struct piece, in order, without gaps)
 * describe each part and have its checksum. Whole blocks have the stored checksum, which the server
 * verified only with READ_VERIFY. Parts of blocks were unpacked and verified by the server and have
 * a new checksum; stored_sum is that of the block. A chunk that does not exist: end 0, no bulk.
 *
 * lease: 0, or a number of the session under which it leases the chunk. The client may then use the
 * data again without a request until it sends oss_release, and for CHUNK_LEASE_MS at most. Until
 * then the server accepts and answers no write of the chunk by another session that this read may
 * not have returned. Only the head of the chain gives leases.
 */
enum read_flags { READ_VERIFY = 1 };
#define CHUNK_LEASE_MS 2000u
#define oss_read_req_FIELDS(F) \
	F(cap, cap) F(chunk_id, chunk) F(u32, off) F(u32, len) F(u32, flags) F(u64, lease)
#define oss_read_rep_FIELDS(F) F(u64, version) F(u32, end) F(i64, mtime_ns) F(bytes, pieces)
/* From a client that no longer uses the data that it read under this lease number. */
#define oss_release_req_FIELDS(F) F(cap, cap) F(chunk_id, chunk) F(u64, lease)
#define oss_release_rep_FIELDS(F)
/*
 * Writes the bulk data at off. pieces: where each block or fragment lies and its checksum, in
 * order, without gaps, split at block boundaries. The write is visible to all readers when it is
 * accepted (FRAME_ACCEPTED, PROTOCOL.md) and durable when it is answered. grant_want: bytes of
 * space that the client requests in reserve; grant: what it has in all on this target. chunk_size:
 * of the layout.
 *
 * mtime_ns: in a copy (below), that of the source; or the time of a write that has already returned
 * to its program: it counts if it is neither in the future nor older than WRITTEN_BEFORE_S; 0: the
 * server takes the time of its clock. base: for WRITE_ON_BASE.
 *
 * WRITE_LAZY: no program waits for the answer, so it may take some milliseconds longer and share a
 * group commit; oss_sync ends the delay. WRITE_PACK: the layout has compression: the server
 * compresses blocks that it has assembled from fragments. WRITE_ON_BASE: only if the chunk has
 * version base (0: it does not exist), else -LE_STALE: a delayed copy changes nothing. WRITE_PAGES:
 * the answer does not wait for leases of chunks; oss_sync waits for their end. WRITE_ALONE: the
 * answer does not wait for leases either, because no other client has the file open.
 * WRITE_RESERVED: an append to the range that the metadata server has reserved: only where no
 * client has written, zeros included, or over this session's own data, else -LE_EXIST: another
 * session has written there since.
 */
#define WRITTEN_BEFORE_S 60
enum write_flags {
	WRITE_LAZY = 1,
	WRITE_PACK = 2,
	WRITE_ON_BASE = 4,
	WRITE_PAGES = 8,
	WRITE_ALONE = 16,
	WRITE_RESERVED = 32
};
#define oss_write_req_FIELDS(F) \
	F(cap, cap) \
	F(chunk_id, chunk) F(u32, chunk_size) F(u32, off) F(u32, len) F(bytes, pieces) \
		F(u32, flags) F(u64, grant_want) F(i64, mtime_ns) F(u64, base)
#define oss_write_rep_FIELDS(F) F(u64, version) F(u32, end) F(i64, mtime_ns) F(u64, grant)
/* From the metadata server, for a truncation: of one inode generation, no byte at or beyond file
 * offset size survives on this target. shown (of oss_punch too): other sessions have leases on the
 * file's chunks, and may use the old data until the leases have ended. The metadata server waits
 * for that with oss_sync, and not here: a read that waits until the file is no longer being
 * truncated keeps its pages locked. at_ns (of both): the time of the change by this server's clock;
 * it was not later. */
#define oss_trim_req_FIELDS(F) F(cap, cap) F(ino, ino) F(u32, gen) F(u32, chunk_size) F(u64, size)
#define oss_trim_rep_FIELDS(F) F(u64, n_chunks) F(u8, shown) F(i64, at_ns)
/* From the metadata server, for a hole: [off, off + len) of the file reads as zeros afterwards; the
 * space of whole blocks is freed. Chunks keep their ends. */
#define oss_punch_req_FIELDS(F) \
	F(cap, cap) F(ino, ino) F(u32, gen) F(u32, chunk_size) F(u64, off) F(u64, len)
#define oss_punch_rep_FIELDS(F) F(u64, n_chunks) F(u8, shown) F(i64, at_ns)
/* From the metadata server: removes all chunks of files, packed (u64 ino, u32 gen). */
#define oss_remove_req_FIELDS(F) F(bytes, files)
#define oss_remove_rep_FIELDS(F) F(u64, n_chunks)
/* From clients and the metadata server: what this chain stores of a file. size: largest file offset
 * after a written byte (0: no chunk), used: stored bytes, mtime_ns: the newest. covered: how much
 * of the preallocated ranges (prepared, common/proto/ranges.h) is stored, in units of 4 KiB. */
#define oss_stat_req_FIELDS(F) \
	F(cap, cap) F(ino, ino) F(u32, gen) F(u32, chunk_size) F(bytes, preallocated)
#define oss_stat_rep_FIELDS(F) \
	F(u64, size) F(u64, used) F(i64, mtime_ns) F(u64, n_chunks) F(u64, covered)
/* From `leat fsck` and object servers: the chunks of the frame's chain from id on, at most max:
 * chunk_summary, one after the other (version 0: the record is damaged). sum: content sum, the xxh3
 * of end (u32), mtime (i64), and length (u32) and checksum (u64) of every block up to the last one
 * that is no hole. more: there are further chunks. */
#define chunk_summary_FIELDS(F) \
	F(chunk_id, chunk) F(u64, version) F(u32, end) F(u64, used) F(i64, mtime_ns) F(u64, sum)
#define oss_list_req_FIELDS(F) F(chunk_id, from) F(u32, max)
#define oss_list_rep_FIELDS(F) F(bytes, chunks) F(u8, more)
/* The pieces of a whole chunk with their stored checksums and holes, without data: for manifests
 * and SEEK_HOLE. */
#define oss_sums_req_FIELDS(F) F(cap, cap) F(chunk_id, chunk)
#define oss_sums_rep_FIELDS(F) F(u64, version) F(u32, end) F(bytes, pieces)
/*
 * For SEEK_DATA, to the head: the first chunk of the file on the frame's chain, from index `from`
 * to `last`, that exists or may exist. Chunks that are lost or in doubt count, and so do chunks
 * without data that were not removed. COPY_NONE: none of the chunks that were accepted before this
 * request.
 */
#define oss_next_req_FIELDS(F) F(cap, cap) F(ino, ino) F(u32, gen) F(u64, from) F(u64, last)
#define oss_next_rep_FIELDS(F) F(u64, next)
/* Sets the space that the session holds in reserve on this target. want: bytes in all (0 releases
 * everything); grant: what it has now. */
#define oss_grant_req_FIELDS(F) F(u64, want)
#define oss_grant_rep_FIELDS(F) F(u64, grant)
/* For fsync, and from the metadata server after oss_trim and oss_punch. The answer comes when all
 * that was accepted before is durable, and leases of other sessions on chunks of ino (0: of no
 * file) have ended. lost: writes of this session that were accepted may be lost, because a former
 * process of the target had them, and the session has not yet reported that it has repeated them
 * (oss_replay_done). */
#define oss_sync_req_FIELDS(F) F(ino, ino)
#define oss_sync_rep_FIELDS(F) F(u8, lost)
/* From `leat status`. json: a JSON object. */
#define oss_status_req_FIELDS(F) F(u32, flags) /* STATUS_MEMORY */
#define oss_status_rep_FIELDS(F) F(bytes, json)

/*
 * From a client, to a server that was not closed in order. The server has lost changes that other
 * clients may have read. Until every session that changes chunks there has reported DONE_ALL, and
 * for its grace period at most, the server executes only repetitions (FRAME_AGAIN). Until every
 * session has reported DONE_SEEN it executes only changes that had been accepted (FRAME_SEEN),
 * because others may have been sent after a client had read the accepted ones.
 *
 * done: which requests that the session may have sent to an earlier process of this target, or of
 * another member of its chains, it will not repeat any more: the accepted ones, or all. leases: the
 * session's leases of chunks with lower numbers have ended, because their process has ended.
 * incarnation: of the server's process, a new one with each start.
 */
enum replay_stage { DONE_NOTHING, DONE_SEEN, DONE_ALL };
#define oss_replay_done_req_FIELDS(F) F(u8, done) F(u64, leases)
#define oss_replay_done_rep_FIELDS(F) F(u64, incarnation)

/* ---- between the members of a chain (ossd/chain/README.md) ---- */

/*
 * From the metadata server when chains change: chain_info of chains that this target is or was a
 * member of. The target adopts them where the epoch is newer, and answers when they are durable.
 * targets: target_info of their members, of which id and addrs are used.
 */
#define oss_chain_set_req_FIELDS(F) F(bytes, chains) F(bytes, targets)
#define oss_chain_set_rep_FIELDS(F)
/*
 * From a SYNC member to the next member: one version of a chunk. base: the version that it is made
 * from, 0: there was no chunk. end, mtime_ns, sum (content sum): of the new record. WRITE: pieces
 * are whole blocks, their data is the bulk, one after the other. PUNCH: [off, off + len) becomes
 * zeros. TRIM: the chunk is shortened to end. REMOVE: the record is deleted. ABORT: versions from
 * this one to upto (0: all later ones) are undone, and base is the newest again; a version with a
 * higher number was made after that. ANSWER: no chunk, only the answer. session, slot, seq, op,
 * answer: the request that this version answers (seq 0: none). committed: the newest version of the
 * chunk that the sender has recorded as committed. gaps, of WRITE: bytes of the chunk that were
 * never written, u32 off, u32 end each (ossd/chunk/chunk_gaps.h). The receiver answers twice:
 * ACCEPTED when all members downstream have the version in memory, the reply when it is durable
 * there.
 */
enum forward_kind {
	FORWARD_WRITE = 1,
	FORWARD_TRIM,
	FORWARD_PUNCH,
	FORWARD_REMOVE,
	FORWARD_ABORT,
	FORWARD_ANSWER,
};
enum forward_flags { FORWARD_LAZY = 1 };
#define oss_forward_req_FIELDS(F) \
	F(u32, kind) F(u32, flags) F(chunk_id, chunk) F(u64, version) F(u64, base) \
		F(u64, committed) F(u32, chunk_size) F(u32, end) F(i64, mtime_ns) F(u64, sum) \
			F(u32, off) F(u32, len) F(bytes, pieces) F(u64, session) F(u32, slot) \
				F(u64, seq) F(u16, op) F(bytes, answer) F(u64, upto) F(bytes, gaps)
#define oss_forward_rep_FIELDS(F)
/* From a member to the next one. versions: version_note of versions that the sender has committed.
 * A receiver passes them on. COMMIT_EXPEDITE: a request waits for pending versions. leases_ms, from
 * the head: for so long there may be leases of the chain's chunks (oss_read), also under another
 * head. */
#define version_note_FIELDS(F) F(chunk_id, chunk) F(u64, version)
enum commit_flags { COMMIT_EXPEDITE = 1 };
#define oss_commit_req_FIELDS(F) F(u32, flags) F(bytes, versions) F(u32, leases_ms)
#define oss_commit_rep_FIELDS(F)
/* From a member to the head, about chunks with versions that have been pending for long. answers:
 * one version_state for each of versions (version_note). committed, newest: 0: there is no chunk.
 * newest VERSION_LOST: the chunk is lost, or its record cannot be read. */
#define VERSION_LOST UINT64_MAX
#define version_state_FIELDS(F) F(u64, committed) F(u64, newest)
#define oss_resolve_req_FIELDS(F) F(bytes, versions)
#define oss_resolve_rep_FIELDS(F) F(bytes, answers)

/*
 * Resync, from the tail to a SYNCING member. oss_resync_ask starts it. synced_epoch: the last epoch
 * in which the member was SYNC (0: never). incarnation changes with every start. chunks: chunk_id
 * of the chunks that may have been in flight when the member stopped, from `from` on.
 */
#define oss_resync_ask_req_FIELDS(F) F(chunk_id, from) F(u32, max)
#define oss_resync_ask_rep_FIELDS(F) \
	F(u64, incarnation) F(u32, synced_epoch) F(bytes, chunks) F(u8, more)
/* The tail blocks changes of the chunk meanwhile. The chunk is to have that version and content sum
 * at the member (version 0: there is no chunk; VERSION_LOST: it is lost, and no member has it). The
 * member fetches blocks that differ from target `source` (oss_fetch), and answers when they are
 * durable. */
enum resync_done { RESYNC_SAME, RESYNC_COPIED, RESYNC_REMOVED };
#define oss_resync_chunk_req_FIELDS(F) F(chunk_id, chunk) F(u64, version) F(u64, sum) F(u32, source)
#define oss_resync_chunk_rep_FIELDS(F) F(u64, incarnation) F(u8, done) F(u64, bytes)
/* rows: resync_row of answers given in the chain. floor: highest version of a removed chunk.
 * doubts, with the last message, which has no rows: what the source may have lost
 * (ossd/chunk/chunk_inventory.h). */
#define resync_row_FIELDS(F) F(u64, session) F(u32, slot) F(u64, seq) F(u16, op) F(bytes, reply)
#define oss_resync_rows_req_FIELDS(F) F(bytes, rows) F(u64, floor) F(bytes, uncertain)
#define oss_resync_rows_rep_FIELDS(F) F(u64, incarnation)
/*
 * From another member: a chunk as it is stored, from block `first` on, if it has that version.
 * record: as in the index (ossd/chunk/chunk_record.h). The bulk has the stored bytes of blocks
 * first..next-1 that are no holes, each padded to 4 KiB, not verified by the server. max: bytes of
 * bulk.
 */
#define oss_fetch_req_FIELDS(F) F(chunk_id, chunk) F(u64, version) F(u32, first) F(u32, max)
#define oss_fetch_rep_FIELDS(F) F(bytes, record) F(u32, next)

/*
 * From the metadata server to the head of a chain: copies chunk idx of generation gen of the inode
 * to generation to_gen on the chain to_chain, by writes (oss_write) to the head of that chain,
 * to_target, under session SESSION_COPY and to_cap. The writes have no sequence numbers: no session
 * writes that generation, so a repetition does no harm. Each write is WRITE_ON_BASE, so a delayed
 * one is refused after others have written there. targets: target_info of to_target. The answer
 * comes when the copy is durable. idx COPY_NONE: nothing is copied. next: the next chunk of that
 * generation on the source chain, COPY_NONE: there is none. to_ino, unless 0: the copy becomes
 * chunk to_idx of that file, with the present time (mds_copy, which ensures that no client writes
 * there), at_ns at the latest. -LE_BUSY: the other chain has changed: send the request again with
 * the present map.
 */
#define COPY_NONE UINT64_MAX
#define SESSION_COPY (1ull << 62)
#define oss_copy_req_FIELDS(F) \
	F(ino, ino) F(u32, gen) F(u64, idx) F(u32, chunk_size) F(cap, to_cap) F(u32, to_gen) \
		F(u32, to_chain) F(u32, to_epoch) F(u32, to_target) F(bytes, targets) F(ino, to_ino) \
		F(u64, to_idx)
#define oss_copy_rep_FIELDS(F) F(u64, next) F(u64, bytes) F(i64, at_ns)

/*
 * Many small oss_read of one chain in one message, of one file or several. caps: one cap for each
 * file. parts: readv_part, bytes [off, off + len) of chunk idx of the file of cap number `cap`.
 * results: readv_result, one for each part, in order. pieces: those of all parts, one part after
 * the other. In the bulk each part has exactly len bytes, so the client can receive it in place:
 * `sent` bytes as oss_read would return them, then zeros. A part that fails has its error in status
 * and no pieces, and does not affect others: the client reads it by oss_read (-LE_TOO_BIG: the part
 * is too large for this message). At most READV_PARTS_MAX parts, of READV_BULK_MAX bytes together.
 */
#define READV_PARTS_MAX 64u
#define READV_BULK_MAX (1u << 20)
#define readv_part_FIELDS(F) F(u32, cap) F(u64, idx) F(u32, off) F(u32, len)
#define readv_result_FIELDS(F) F(i32, status) F(u32, sent) F(u32, n_pieces)
#define oss_readv_req_FIELDS(F) F(bytes, caps) F(bytes, parts)
#define oss_readv_rep_FIELDS(F) F(bytes, results) F(bytes, pieces)

/* From `leat scrub`: starts or stops the scrub of the target, or only returns its state. Counts are
 * of the present or last scrub: blocks that were damaged, repaired, not repaired, chunks of other
 * members that differed, chunks that were not compared with a member. moved: members of chains have
 * changed meanwhile, so some chunks may not have been compared at all. */
enum scrub_what { SCRUB_STATUS, SCRUB_START, SCRUB_STOP };
#define oss_scrub_req_FIELDS(F) F(u32, what)
#define oss_scrub_rep_FIELDS(F) \
	F(u8, running) F(u64, chunks) F(u64, bytes) F(u64, used) F(u64, damaged) F(u64, repaired) \
		F(u64, unrepaired) F(u64, differing) F(i64, began_ns) F(i64, ended_ns) \
			F(u64, uncompared) F(u8, moved)

#define WIRE_CTYPE_resync_row struct resync_row
WIRE_STRUCT(resync_row)
#define WIRE_CTYPE_readv_part struct readv_part
WIRE_STRUCT(readv_part)
#define WIRE_CTYPE_readv_result struct readv_result
WIRE_STRUCT(readv_result)
#define WIRE_CTYPE_version_note struct version_note
WIRE_STRUCT(version_note)
#define WIRE_CTYPE_version_state struct version_state
WIRE_STRUCT(version_state)
#define WIRE_CTYPE_chunk_summary struct chunk_summary
WIRE_STRUCT(chunk_summary)
OSS_OPS(MSG_STRUCTS)
enum oss_op { OSS_OPS(MSG_NUMBER) };

#endif
