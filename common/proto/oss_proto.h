/*
 * The object server's operations; the frame's target field says which target. Kinds as in
 * mds_proto.h. Every data request carries a capability and the epoch of the chain.
 */
#ifndef LEAT_PROTO_OSS_PROTO_H
#define LEAT_PROTO_OSS_PROTO_H

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
	M(0x021b, oss_reclaim, CTRL)

/*
 * Bytes [off, off + len) of a chunk. The bulk reply is [off, min(off + len, end)), holes as zeros,
 * compressed blocks as they are stored; pieces (packed struct piece, in order, without gaps) tell
 * what each part is and its checksum: whole blocks with the stored one (the server did not verify
 * these unless READ_VERIFY), parts of blocks unpacked and verified by the server and checksummed
 * anew, with the checksum of the block in stored_sum. A chunk that does not exist: end 0, no bulk.
 * lease: 0, or a number of the session's by which it leases the chunk: what it reads may be seen
 * again without asking until it says oss_release, and for CHUNK_LEASE_MS at most. Until then no
 * write of the chunk by other sessions is accepted or answered that this read may not have seen. To
 * be asked of the chain's head.
 */
enum read_flags { READ_VERIFY = 1 };
#define CHUNK_LEASE_MS 2000u
#define oss_read_req_FIELDS(F) \
	F(cap, cap) F(chunk_id, chunk) F(u32, off) F(u32, len) F(u32, flags) F(u64, lease)
#define oss_read_rep_FIELDS(F) F(u64, version) F(u32, end) F(i64, mtime_ns) F(bytes, pieces)
#define oss_release_req_FIELDS(F) F(cap, cap) F(chunk_id, chunk) F(u64, lease)
#define oss_release_rep_FIELDS(F)
/*
 * Writes the bulk data at off: pieces say where each block or fragment lies and its checksum, in
 * order, without gaps, cut at block boundaries. Seen by all readers when accepted (FRAME_ACCEPTED,
 * PROTOCOL.md), durable when answered. grant_want: bytes of space
 * the client would like to hold in reserve; grant: what it now holds in all on this target.
 * chunk_size: of the layout. WRITE_LAZY: nobody waits for the answer, it may take some
 * milliseconds longer so that others share its commit; oss_sync ends that. WRITE_PACK: the layout
 * asks for compression: the server compresses what it has put together from fragments.
 * mtime_ns: of a copy (below); or when it was written, which programs have been told already: it
 * counts if it is not in the future nor older than WRITTEN_BEFORE_S; 0: the server's clock tells.
 * WRITE_ON_BASE: only when the chunk has version base (0: there is none), else -LE_STALE: a copy
 * that comes late changes nothing. WRITE_PAGES: does not wait for leases of chunks: whoever wants
 * to know that these have ended asks by oss_sync. WRITE_ALONE: nor does this, for nobody else has
 * the file open. WRITE_PLACED: an append, where the metadata server has placed it: only where
 * nobody has written, be it zeros, or over what it writes itself, else -LE_EXIST: somebody has
 * written there since.
 */
#define WRITTEN_BEFORE_S 60
enum write_flags {
	WRITE_LAZY = 1,
	WRITE_PACK = 2,
	WRITE_ON_BASE = 4,
	WRITE_PAGES = 8,
	WRITE_ALONE = 16,
	WRITE_PLACED = 32
};
#define oss_write_req_FIELDS(F) \
	F(cap, cap) \
	F(chunk_id, chunk) F(u32, chunk_size) F(u32, off) F(u32, len) F(bytes, pieces) \
		F(u32, flags) F(u64, grant_want) F(i64, mtime_ns) F(u64, base)
#define oss_write_rep_FIELDS(F) F(u64, version) F(u32, end) F(i64, mtime_ns) F(u64, grant)
/* Of one inode generation, on this target: nothing at or beyond file offset size survives. shown
 * (of oss_punch too): others have leases on the file's chunks, and may show what it was until these
 * have ended (oss_sync). Not waited for here: a read that waits until the file is not being cut any
 * more keeps pages from going. at_ns (of both): by this server's clock they were not changed later.
 */
#define oss_trim_req_FIELDS(F) F(cap, cap) F(ino, ino) F(u32, gen) F(u32, chunk_size) F(u64, size)
#define oss_trim_rep_FIELDS(F) F(u64, n_chunks) F(u8, shown) F(i64, at_ns)
/* [off, off + len) of the file reads as zeros afterwards; whole blocks give their space back. Ends
 * stay. */
#define oss_punch_req_FIELDS(F) \
	F(cap, cap) F(ino, ino) F(u32, gen) F(u32, chunk_size) F(u64, off) F(u64, len)
#define oss_punch_rep_FIELDS(F) F(u64, n_chunks) F(u8, shown) F(i64, at_ns)
/* files: packed (u64 ino, u32 gen): all their chunks go. Sent by the MDS. */
#define oss_remove_req_FIELDS(F) F(bytes, files)
#define oss_remove_rep_FIELDS(F) F(u64, n_chunks)
/* size: largest file offset behind a written byte (0: no chunk), used: stored bytes, mtime: newest.
 * covered: of the prepared ranges (common/proto/ranges.h) what is stored, in units of 4 KiB. */
#define oss_stat_req_FIELDS(F) \
	F(cap, cap) F(ino, ino) F(u32, gen) F(u32, chunk_size) F(bytes, prepared)
#define oss_stat_rep_FIELDS(F) \
	F(u64, size) F(u64, used) F(i64, mtime_ns) F(u64, n_chunks) F(u64, covered)
/* Chunks of the frame's chain from id on, at most max: chunk_summary one behind the other (version
 * 0: its record is damaged). sum: content sum, xxh3 of end (u32), mtime (i64), and length (u32)
 * and checksum (u64) of every block up to the last one that is no hole. more: there are others. */
#define chunk_summary_FIELDS(F) \
	F(chunk_id, chunk) F(u64, version) F(u32, end) F(u64, used) F(i64, mtime_ns) F(u64, sum)
#define oss_list_req_FIELDS(F) F(chunk_id, from) F(u32, max)
#define oss_list_rep_FIELDS(F) F(bytes, chunks) F(u8, more)
/* The pieces of a whole chunk with their stored checksums and holes, no data: for manifests and
 * SEEK_HOLE. */
#define oss_sums_req_FIELDS(F) F(cap, cap) F(chunk_id, chunk)
#define oss_sums_rep_FIELDS(F) F(u64, version) F(u32, end) F(bytes, pieces)
/* want: bytes the session would like to hold in all (0 gives everything back). */
#define oss_grant_req_FIELDS(F) F(u64, want)
#define oss_grant_rep_FIELDS(F) F(u64, grant)
/* What was accepted before is durable when this is answered, and what other sessions had leased of
 * ino's chunks (0: of none) is not shown any more. lost: of what the session itself had sent, and
 * was accepted, some may have gone with a former process of the target: it has not said since that
 * it has repeated all that (oss_reclaim). */
#define oss_sync_req_FIELDS(F) F(ino, ino)
#define oss_sync_rep_FIELDS(F) F(u8, lost)
#define oss_status_req_FIELDS(F)
#define oss_status_rep_FIELDS(F) F(bytes, json)

/*
 * A server that was not ended in order has lost changes that somebody may have seen. Until every
 * session that changes chunks there has said DONE_ALL it carries out only what is repeated
 * (FRAME_AGAIN), at most for its grace time; until every one has said DONE_SEEN, only what had been
 * accepted (FRAME_SEEN), for what had not may have been sent when that was seen already. done: what
 * of all that the session may have sent to an earlier process of this target, or of another member
 * of its chains, is not to be repeated any more: what was accepted, or all of it.
 * incarnation: of the process, another one with each start. leases: those of the session's leases
 * of chunks whose numbers are below have ended: a process had them that has ended.
 */
enum reclaim_done { DONE_NOTHING, DONE_SEEN, DONE_ALL };
#define oss_reclaim_req_FIELDS(F) F(u8, done) F(u64, leases)
#define oss_reclaim_rep_FIELDS(F) F(u64, incarnation)

/* ---- between the members of a chain (ossd/chain/README.md) ---- */

/*
 * From the MDS: chain_info of chains that this target is or was a member of, to be adopted where
 * the epoch is newer; answered when they are durable. targets: target_info of their members, of
 * which id and addrs are used.
 */
#define oss_chain_set_req_FIELDS(F) F(bytes, chains) F(bytes, targets)
#define oss_chain_set_rep_FIELDS(F)
/*
 * A version of a chunk for the next member. base: the version it is made of, 0: there was no
 * chunk. end, mtime_ns, sum (content sum) are those of the new record. WRITE: pieces are whole
 * blocks, their data is the bulk, one behind the other. PUNCH: [off, off + len) becomes
 * zeros. TRIM: cut at end.
 * REMOVE: no record is left. ABORT: versions from this one to upto (0: all behind it) are taken
 * back, base is the newest again; what has a higher number was made after that. ANSWER: no
 * chunk, only the answer. session, slot, seq, op, answer: the request that this
 * version answers (seq 0: none). committed: the newest version of the chunk that the sender knows
 * to be committed. gaps, of WRITE: what nobody has written of the chunk, u32 off, u32 end each
 * (ossd/chunk/chunk_gaps.h). Answered twice: ACCEPTED when all members behind hold it in memory,
 * the reply when it is durable there.
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
/* versions: version_note of what the sender has committed, passed on to the member behind.
 * COMMIT_HURRY: somebody waits for what is pending. leases_ms, from the head: for so long there may
 * be leases of the chain's chunks (oss_read), whoever is head then. */
#define version_note_FIELDS(F) F(chunk_id, chunk) F(u64, version)
enum commit_flags { COMMIT_HURRY = 1 };
#define oss_commit_req_FIELDS(F) F(u32, flags) F(bytes, versions) F(u32, leases_ms)
#define oss_commit_rep_FIELDS(F)
/* Asked of the head about chunks with versions that nobody has spoken of for long. answers: one
 * version_state for each of versions (version_note). committed, newest: 0: there is no chunk;
 * newest VERSION_LOST: there should be one, but it is lost, or its record cannot be read. */
#define VERSION_LOST UINT64_MAX
#define version_state_FIELDS(F) F(u64, committed) F(u64, newest)
#define oss_resolve_req_FIELDS(F) F(bytes, versions)
#define oss_resolve_rep_FIELDS(F) F(bytes, answers)

/*
 * Resync, from the tail to a SYNCING member. ask: synced_epoch is the last epoch in which it knew
 * itself SYNC (0: never), incarnation changes with every start; chunks: chunk_id of those that may
 * have been under way when it stopped, from `from` on.
 */
#define oss_resync_ask_req_FIELDS(F) F(chunk_id, from) F(u32, max)
#define oss_resync_ask_rep_FIELDS(F) \
	F(u64, incarnation) F(u32, synced_epoch) F(bytes, chunks) F(u8, more)
/* The source holds the chunk still: it is to become of that version and content sum (version 0:
 * there is none; VERSION_LOST: it is lost, and nobody has it); what differs is fetched from target
 * `source`. Durable when answered. */
enum resync_done { RESYNC_SAME, RESYNC_COPIED, RESYNC_REMOVED };
#define oss_resync_chunk_req_FIELDS(F) F(chunk_id, chunk) F(u64, version) F(u64, sum) F(u32, source)
#define oss_resync_chunk_rep_FIELDS(F) F(u64, incarnation) F(u8, done) F(u64, bytes)
/* rows: resync_row of answers given in the chain; floor: highest version of a removed chunk;
 * doubts: with the last message, which has no rows: what the source may have lost
 * (ossd/chunk/ledger.h). */
#define resync_row_FIELDS(F) F(u64, session) F(u32, slot) F(u64, seq) F(u16, op) F(bytes, reply)
#define oss_resync_rows_req_FIELDS(F) F(bytes, rows) F(u64, floor) F(bytes, doubts)
#define oss_resync_rows_rep_FIELDS(F) F(u64, incarnation)
/*
 * A chunk as it is stored, from block `first` on, for other members: if it has that version.
 * record: as in the index (ossd/chunk/chunk_record.h). The bulk has the stored bytes of blocks
 * first..next-1 that are no holes, each padded to 4 KiB, not verified by the server. max: bytes.
 */
#define oss_fetch_req_FIELDS(F) F(chunk_id, chunk) F(u64, version) F(u32, first) F(u32, max)
#define oss_fetch_rep_FIELDS(F) F(bytes, record) F(u32, next)

/*
 * From the MDS to the head of a chain: chunk idx of generation gen of the inode is written anew as
 * generation to_gen on the chain to_chain, by writes (oss_write) to its head to_target, under
 * session SESSION_COPY and to_cap, without numbers: nobody else writes that generation, so doing it
 * twice does no harm, and each write is only on what was there before (WRITE_ON_BASE), so that one
 * which is delayed until others write there is refused. targets: target_info of to_target. Durable
 * when answered. idx COPY_NONE: nothing is copied. next: the next chunk of that generation on the
 * asked chain, COPY_NONE: there is none. to_ino, unless 0: it becomes chunk to_idx of that file,
 * written now (mds_copy, which sees to it that nobody writes there), at_ns at the latest. -LE_BUSY:
 * the other chain is not as the MDS said: ask again with what is known then.
 */
#define COPY_NONE UINT64_MAX
#define SESSION_COPY (1ull << 62)
#define oss_copy_req_FIELDS(F) \
	F(ino, ino) F(u32, gen) F(u64, idx) F(u32, chunk_size) F(cap, to_cap) F(u32, to_gen) \
		F(u32, to_chain) F(u32, to_epoch) F(u32, to_target) F(bytes, targets) F(ino, to_ino) \
		F(u64, to_idx)
#define oss_copy_rep_FIELDS(F) F(u64, next) F(u64, bytes) F(i64, at_ns)

/*
 * Many small oss_read of one chain at once, of one file or several. caps: cap, one for each file;
 * parts: readv_part, bytes [off, off + len) of chunk idx of the file of the cap with that number.
 * results: readv_result, one for each part, in order; pieces: those of all parts, one part behind
 * the other. In the bulk each part has exactly len bytes, so that it can be received where it shall
 * lie: `sent` bytes as oss_read would answer them, zeros behind. A part that fails says why in
 * status, has no pieces and harms no other: it is to be asked for by oss_read (-LE_TOO_BIG: so much
 * is not read at once). At most READV_PARTS_MAX parts, of READV_BULK_MAX bytes together.
 */
#define READV_PARTS_MAX 64u
#define READV_BULK_MAX (1u << 20)
#define readv_part_FIELDS(F) F(u32, cap) F(u64, idx) F(u32, off) F(u32, len)
#define readv_result_FIELDS(F) F(i32, status) F(u32, sent) F(u32, n_pieces)
#define oss_readv_req_FIELDS(F) F(bytes, caps) F(bytes, parts)
#define oss_readv_rep_FIELDS(F) F(bytes, results) F(bytes, pieces)

/* Starts or stops the scrub of the target, or only asks. Counts are of the present or last one:
 * blocks that were damaged, repaired, not repaired, chunks of other members that differed, chunks
 * that were not compared with a member. moved: members of chains have changed meanwhile, so that
 * some may not have been compared by anybody. */
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
