/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata server's operations. Each is a line in MDS_OPS and two field lists. Kinds:
 *
 *   READ   changes nothing: may be repeated
 *   WRITE  a mutation: carries (session, slot, seq), is executed exactly once
 *   CTRL   sessions, map, heartbeats: idempotent by content
 *
 * A client sends a message under its session, unless the comment names another sender. `leat X` is
 * the tool with that subcommand. Errors are the status of the reply frame; a failed request has an
 * empty body.
 */
#ifndef LEAT_COMMON_PROTO_MDS_PROTO_H
#define LEAT_COMMON_PROTO_MDS_PROTO_H

#include "common/proto/types.h"

#define MDS_OPS(M) \
	M(0x0101, mds_session_open, CTRL) \
	M(0x0102, mds_session_close, CTRL) \
	M(0x0103, mds_session_list, CTRL) \
	M(0x0104, mds_ping, CTRL) \
	M(0x0105, mds_reclaim, CTRL) \
	M(0x0106, mds_map_get, CTRL) \
	M(0x0107, mds_target_register, CTRL) \
	M(0x0108, mds_target_heartbeat, CTRL) \
	M(0x0109, mds_status, CTRL) \
	M(0x010a, mds_chain_synced, CTRL) \
	M(0x010b, mds_target_bad, CTRL) \
	M(0x010c, mds_target_admin, CTRL) \
	M(0x010d, mds_fsck_page, CTRL) \
	M(0x010e, mds_fsck_repair, CTRL) \
	M(0x010f, mds_target_lose, CTRL) \
	M(0x0140, mds_residency_set, CTRL) \
	M(0x0141, mds_residency_get, CTRL) \
	M(0x0110, mds_lookup, READ) \
	M(0x0111, mds_getattr, READ) \
	M(0x0112, mds_setattr, WRITE) \
	M(0x0113, mds_create, WRITE) \
	M(0x0114, mds_mknod, WRITE) \
	M(0x0115, mds_mkdir, WRITE) \
	M(0x0116, mds_symlink, WRITE) \
	M(0x0117, mds_readlink, READ) \
	M(0x0118, mds_link, WRITE) \
	M(0x0119, mds_unlink, WRITE) \
	M(0x011a, mds_rmdir, WRITE) \
	M(0x011b, mds_rename, WRITE) \
	M(0x011c, mds_readdir, READ) \
	M(0x011d, mds_open, WRITE) \
	M(0x011e, mds_close, WRITE) \
	M(0x011f, mds_append, WRITE) \
	M(0x0120, mds_fallocate, WRITE) \
	M(0x0121, mds_getxattr, READ) \
	M(0x0122, mds_setxattr, WRITE) \
	M(0x0123, mds_listxattr, READ) \
	M(0x0124, mds_removexattr, WRITE) \
	M(0x0125, mds_statfs, READ) \
	M(0x0126, mds_layout_set, WRITE) \
	M(0x0127, mds_access, READ) \
	M(0x0128, mds_lock, WRITE) \
	M(0x0129, mds_lock_test, READ) \
	M(0x0130, mds_tmpfile, WRITE) \
	M(0x0131, mds_copy, WRITE) \
	M(0x0142, mds_quota_set, WRITE) \
	M(0x0143, mds_quota_get, READ) \
	M(0x0144, mds_space, CTRL) \
	M(0x0145, mds_quota_list, READ) \
	M(0x0150, mds_lease_return, CTRL) \
	M(0x0151, mds_export_set, CTRL) \
	M(0x0152, mds_export_get, CTRL) \
	M(0x0153, mds_peer_rights, CTRL)

/* From the metadata server to a client, over the connection that the client has made. */
#define MDS_CALLBACKS(M) \
	M(0x0181, cb_map_changed, CTRL) \
	M(0x0182, cb_recall, CTRL) \
	M(0x0183, cb_unlocked, CTRL) \
	M(0x0185, cb_owner, CTRL)

/* ---- sessions and cluster ---- */
/* From a client before all other requests, on each new connection: opens a session, or resumes one.
 * client: random, made once per mount; session: the session to resume (0: a new one). takeover:
 * another process continues the session. It reports with mds_reclaim what it has open; other opens
 * of the session are closed by the last mds_reclaim (done). */
#define mds_session_open_req_FIELDS(F) \
	F(uuid, client) F(bytes, name) F(u64, session) F(u32, slots) F(u8, takeover)
/* incarnation changes when the MDS restarts: then opens are reclaimed, and leases are void. slots:
 * how many the client may use. ttl_ms: a silent session is evicted after it. lease_ms: leases hold
 * for so long after the sending of a request that was answered. reclaim: enum session_reclaim.
 * now_ns: the metadata server's wall clock. mds_checks_access: the export of the client squashes
 * users. The server does not trust the client's kernel there, which lets root's capabilities reach
 * other users' files: credentials are to contain all groups, and not to have CRED_CHECKED. */
#define mds_session_open_rep_FIELDS(F) \
	F(u64, session) F(u32, slots) F(u32, ttl_ms) F(u64, incarnation) F(u32, map_epoch) \
	F(u8, reclaim) F(u32, lease_ms) F(u8, mds_checks_access) F(i64, now_ns)
/* What the client has to report by mds_reclaim: nothing, all opens and locks, all of a takeover. */
enum session_reclaim { RECLAIM_NONE, RECLAIM_ALL, RECLAIM_TAKEOVER };
/* From a client at unmount: ends the session, with its opens, locks and leases. */
#define mds_session_close_req_FIELDS(F) F(u64, session)
#define mds_session_close_rep_FIELDS(F)
/* From an object server: the sessions that live. gen changes with the set. sessions: packed u64,
 * absent if the set is that of have_gen. newest: other sessions with numbers up to this one have
 * ended. */
#define mds_session_list_req_FIELDS(F) F(u64, have_gen)
#define mds_session_list_rep_FIELDS(F) F(u64, gen) F(bytes, sessions) F(u64, newest)
/* From a client at intervals: keeps the session alive. ahead_us: how far the client's wall clock
 * was ahead of the server's at the last answer, give or take bound_us (0: there was no answer yet).
 * now_ns: the metadata server's wall clock. */
#define mds_ping_req_FIELDS(F) F(u32, map_epoch) F(i64, ahead_us) F(u32, bound_us)
#define mds_ping_rep_FIELDS(F) F(u32, map_epoch) F(u64, incarnation) F(i64, now_ns)
/*
 * From a client after a resume with `reclaim`: what it has open and locked, in several messages;
 * done: in the last one. opens: packed (u64 ino, u32 open flags, u32 count) of its open files.
 * Among the flags: RECLAIM_SHARED, if the session has a shared lease (ATTR_SHARED);
 * RECLAIM_UNFLUSHED, if it has written data that no object server has accepted: it gets a write
 * lease again, which the MDS recalls before another client reads the file. locks: packed (u64
 * ino, file_lock), after the opens of their files. locks_from, in a takeover: 0, or 1 + the
 * number of locks received so far.
 *
 * n_lost: opens or locks of this message that could not be restored. n_unshared: how many shared
 * leases of this reclaim so far were not given again. held: the next locks that the server has
 * for the session, packed like `locks`; locks_next: locks_from of the next request, 0: these
 * were all.
 */
#define mds_reclaim_req_FIELDS(F) \
	F(bytes, opens) F(bytes, locks) F(u8, done) F(u32, locks_from)
#define mds_reclaim_rep_FIELDS(F) \
	F(u32, n_lost) F(u32, n_unshared) F(bytes, held) F(u32, locks_next)
#define RECLAIM_SHARED (1u << 31)
#define RECLAIM_UNFLUSHED (1u << 30)
/* From clients and tools: the cluster map. targets, chains, tables: encoded target_info,
 * chain_info, table_info, one after the other; empty if have_epoch is the present epoch. A large
 * map comes in pages: next, unless 0, is `from` of the next request. Pages of different epochs do
 * not belong together. */
#define mds_map_get_req_FIELDS(F) F(u32, have_epoch) F(u32, from)
#define mds_map_get_rep_FIELDS(F) \
	F(u32, epoch) F(uuid, cluster) F(bytes, targets) F(bytes, chains) F(bytes, tables) F(u32, next)
/*
 * From an object server, for each target, after a start and on each new connection. target 0: first
 * registration. commits: the commit counter of the store, which must not decrease. addrs:
 * "host:port host:port". holds: packed (u32 chain, u32 epoch) of all chains that the target has
 * adopted.
 *
 * In the reply and in that of heartbeats: chains are encoded chain_info of the chains that the
 * target is a member of, in any state. The target adopts them (E row) where the epoch is newer. It
 * is no longer a member of chains that it holds and that are not among them. targets: encoded
 * target_info of the members of these chains. lease_ms: how long after the sending of an answered
 * heartbeat the target may serve. chain, epoch: its chain of one member. fence_ms, read_ms: as in
 * the reply to a heartbeat.
 */
#define mds_target_register_req_FIELDS(F) \
	F(uuid, cluster) F(uuid, uuid) F(u32, target) F(u64, commits) F(bytes, addrs) \
	F(u32, loop) F(bytes, host) F(u64, capacity) F(u64, used) F(u64, free) F(u64, incarnation) \
	F(bytes, holds) F(bytes, rack)
#define mds_target_register_rep_FIELDS(F) \
	F(u32, target) F(u32, chain) F(u32, epoch) F(u32, map_epoch) F(u32, heartbeat_ms) \
	F(bytes, chains) F(u32, lease_ms) F(u32, chains_epoch) F(bytes, targets) F(u32, fence_ms) \
	F(u32, read_ms) F(i64, now_ns)
/* From an object server at intervals of heartbeat_ms, for each target. chains_epoch: that of the
 * last reply with chains; the reply has chains only if the present one differs. resync: packed (u32
 * chain, u32 target, u64 chunks done, u64 chunks in all) of the members that this target fills at
 * present. sessions_gen: in the reply the present set of live sessions (mds_session_list); in the
 * request the set that the target has applied, with no change in flight of sessions that have
 * ended. fence_ms: how long after the sending of an answered heartbeat the target may execute
 * changes of clients, if it has that set. read_ms: how long it may serve clients at all, reads
 * included; 0: it serves reads without limit, since no export restricts clients. In the request:
 * the read_ms that the target applies. now_ns: the metadata server's wall clock, by which
 * capabilities expire. wall_ns: the target's; ahead_us: how far it was ahead of the server's at the
 * last answer, give or take bound_us (0: there was no answer yet). */
#define mds_target_heartbeat_req_FIELDS(F) \
	F(u32, target) F(uuid, uuid) F(u64, commits) F(u64, capacity) F(u64, used) F(u64, free) \
	F(u64, incarnation) F(u32, chains_epoch) F(bytes, resync) F(u64, sessions_gen) \
	F(u32, read_ms) F(i64, wall_ns) F(i64, ahead_us) F(u32, bound_us)
#define mds_target_heartbeat_rep_FIELDS(F) \
	F(u32, epoch) F(u32, map_epoch) F(u64, sessions_gen) F(bytes, chains) F(u32, lease_ms) \
	F(u32, chains_epoch) F(bytes, targets) F(u32, fence_ms) F(u32, read_ms) F(i64, now_ns)
/* From the source of a resync: this SYNCING member is complete, it may become SYNC. epoch: of the
 * chain, at the source. -LE_STALE_EPOCH: the chain has another epoch now; the source adopts the
 * chain first. The reply has the epoch in which the member is SYNC. */
#define mds_chain_synced_req_FIELDS(F) F(u32, chain) F(u32, epoch) F(u32, target)
#define mds_chain_synced_rep_FIELDS(F) F(u32, epoch)
/* From an object server: the target cannot trust its store. All its members are taken out of their
 * chains, and are filled again when it registers under another uuid. */
#define mds_target_bad_req_FIELDS(F) F(u32, target) F(uuid, uuid) F(u64, incarnation)
#define mds_target_bad_rep_FIELDS(F)
/* From `leat target`. what: enum target_admin. REBALANCE names no target, and continues as long as
 * requests for it arrive every few seconds. left: number of copies of chains that are still to be
 * moved. */
enum target_admin {
	TARGET_ADMIN_DRAIN = 1,
	TARGET_ADMIN_UNDRAIN,
	TARGET_ADMIN_REMOVE,
	TARGET_ADMIN_ADD, /* take a removed target back */
	TARGET_ADMIN_REBALANCE,
	TARGET_ADMIN_RECOVER, /* take a target back that was given up as lost, with what it holds */
};
#define mds_target_admin_req_FIELDS(F) F(u32, what) F(u32, target)
#define mds_target_admin_rep_FIELDS(F) F(u32, left)
/*
 * From `leat target remove --lost`: gives up targets (packed u32 ids) together, because they will
 * not come back. LOSE_START begins, or joins a run in progress for the same targets. LOSE_SURVEY
 * returns the progress of run `id`; -LE_STALE: the server does not have that run, for instance
 * after a restart: the tool starts again. The server searches all inodes for files that would lose
 * data. If it finds some that `accept` (enum lose_accept) does not allow, it gives up no target
 * (LOSE_REFUSED).
 *
 * n_seen of n_inodes: how many are searched. n_files: how many files lose data. files: encoded
 * lost_file from number `from` on, as many as fit and at most `max`, path empty if the file has no
 * name. next: `from` of the next request, 0: the last page. status: the error of LOSE_FAILED.
 * -LE_NO_TARGET: a target does not exist, or only some of them are given up already; -LE_BUSY: a
 * target is up, or another run is in progress; -LE_INVAL.
 */
enum lose_what {
	LOSE_START = 1,
	LOSE_SURVEY,
	LOSE_NAME, /* return the path of inode number `from` in files */
};
enum lose_accept {
	LOSE_NO_DATA,  /* no file may lose data */
	LOSE_ANY_DATA, /* files may lose data */
	LOSE_NO_COPY,  /* no file may have data on their chains, even if other members have it */
};
enum lose_state { LOSE_NONE, LOSE_RUNNING, LOSE_REFUSED, LOSE_DONE, LOSE_FAILED };
#define mds_target_lose_req_FIELDS(F) \
	F(u8, what) F(u8, accept) F(bytes, targets) F(u64, id) F(u64, from) F(u32, max)
#define mds_target_lose_rep_FIELDS(F) \
	F(u64, id) F(u8, state) F(i32, status) F(u64, n_seen) F(u64, n_inodes) F(u64, n_files) \
	F(bytes, files) F(u64, next)
#define lost_file_FIELDS(F) F(ino, ino) F(bytes, path)
#define WIRE_CTYPE_lost_file struct lost_file
WIRE_STRUCT(lost_file)
/*
 * From `leat fsck`: a page of records of one kind, in the order of the keys, from a snapshot of the
 * store. snapshot 0: take a new one (its number is in the reply). There is one snapshot at a time.
 * The server drops it when it has not been read for a minute: -LE_STALE. from: `next` of the
 * previous page (empty: the beginning). rows: fsck_inode (FSCK_INODES), fsck_entry (FSCK_ENTRIES),
 * packed u64 inode numbers (FSCK_ORPHANS), packed u64 inode number, u32 generation (FSCK_REMOVALS).
 * next_ino: inode numbers from this one on are newer than the snapshot.
 */
enum fsck_kind { FSCK_INODES = 1, FSCK_ENTRIES, FSCK_ORPHANS, FSCK_REMOVALS };
/* busy: a session has the file open, or an operation works on its data. cut: the file was truncated
 * since its blocks were counted. damaged: only the number of the inode is readable. lost: it had
 * data on chains that were given up. */
#define fsck_inode_FIELDS(F) \
	F(ino, ino) F(u32, mode) F(u32, nlink) F(u32, flags) F(u64, size) F(u64, blocks) \
	F(u64, change) F(ino, parent) F(u64, entries) F(layout, layout) F(u8, busy) F(u8, cut) \
	F(u8, damaged) F(u8, lost)
#define fsck_entry_FIELDS(F) F(ino, dir) F(u64, cookie) F(ino, ino) F(u8, type) F(bytes, name)
#define mds_fsck_page_req_FIELDS(F) F(u64, snapshot) F(u32, kind) F(bytes, from) F(u32, max)
#define mds_fsck_page_rep_FIELDS(F) \
	F(u64, snapshot) F(bytes, rows) F(bytes, next) F(u64, next_ino) F(u64, n_inodes)
/*
 * From `leat fsck`: one repair, checked against the present state and done at most once. done 0:
 * there is nothing to repair. -LE_STALE: the inode has changed since `change`: read it again.
 * ENTRY: removes the entry (dir, cookie) of an inode that does not exist. COUNTS: sets nlink,
 * entries and parent. NAME: gives an inode without a name one in /lost+found, and nlink; ORPHAN:
 * removes an inode without links; FALSE_ORPHAN: an inode that has a name, or does not exist, is
 * no longer an orphan. CHUNKS: removes data of (ino, gen) that belongs to no inode from one
 * chain. SIZE: takes the size from the chains. TOTAL: the number of inodes in snapshot `change`
 * is `entries`.
 */
enum fsck_repair {
	FSCK_REPAIR_ENTRY = 1,
	FSCK_REPAIR_COUNTS,
	FSCK_REPAIR_NAME,
	FSCK_REPAIR_ORPHAN,
	FSCK_REPAIR_FALSE_ORPHAN,
	FSCK_REPAIR_CHUNKS,
	FSCK_REPAIR_SIZE,
	FSCK_REPAIR_TOTAL,
};
#define mds_fsck_repair_req_FIELDS(F) \
	F(u32, what) F(ino, ino) F(u64, change) F(ino, dir) F(u64, cookie) F(u32, nlink) \
	F(u64, entries) F(ino, parent) F(u32, gen) F(u32, chain)
#define mds_fsck_repair_rep_FIELDS(F) F(u8, done)
/*
 * Which node holds which staged copies. The MDS has this in memory only, as long as nodes repeat
 * it.
 *
 * set, from the agent of a node at intervals: all its copies, which replace those of its
 * previous message, and are dropped after ttl_ms. rows: residency_row. addrs: where the agent
 * serves chunks ("host:port ..."), empty: nowhere.
 *
 * get, from clients, agents and tools: rows: residency_node of the copies of `what` (an id,
 * "name@version", empty: all), from number `from` on; next: `from` of the next page, 0: the last
 * page. state: enum leat_stage_state.
 */
#define residency_row_FIELDS(F) F(bytes, id) F(bytes, name) F(u8, state) F(u64, bytes) F(u64, done)
#define residency_node_FIELDS(F) \
	F(bytes, node) F(bytes, addrs) F(bytes, id) F(bytes, name) F(u8, state) F(u64, bytes) \
	F(u64, done) F(u32, age_ms)
#define mds_residency_set_req_FIELDS(F) F(bytes, node) F(bytes, addrs) F(u32, ttl_ms) F(bytes, rows)
#define mds_residency_set_rep_FIELDS(F)
#define mds_residency_get_req_FIELDS(F) F(bytes, what) F(u32, from)
#define mds_residency_get_rep_FIELDS(F) F(bytes, rows) F(u32, next)
/* From a client at intervals: it has dropped these inodes from its cache, so their leases end.
 * inos: packed u64. */
#define mds_lease_return_req_FIELDS(F) F(bytes, inos)
#define mds_lease_return_rep_FIELDS(F)
/* From `leat status`. json: a JSON object (sessions, rates, store, recovery). */
#define mds_status_req_FIELDS(F) F(u32, flags) /* STATUS_MEMORY */
#define mds_status_rep_FIELDS(F) F(bytes, json)

/* ---- names ---- */
/* In replies, dir and new_dir are the directories as the operation left them (ino 0: not included,
 * or not changed). */
#define mds_lookup_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name)
/* The inode of a name, and the directory (dir). attr.ino 0: the name does not exist, and the
 * session has a lease on dir (without a lease: -LE_NOENT). cap: to read a regular file, if cred may
 * (ino 0: none). */
#define mds_lookup_rep_FIELDS(F) F(attr, attr) F(attr, dir) F(cap, cap)
/* prepared: the preallocated ranges of a file with ATTR_PREPARED (common/proto/ranges.h). */
#define mds_getattr_req_FIELDS(F) F(cred, cred) F(ino, ino)
#define mds_getattr_rep_FIELDS(F) F(attr, attr) F(bytes, preallocated)
/* mask: enum attr_mask; the values are in attr. With SET_SIZE the reply comes after all chains have
 * trimmed their chunks. */
#define mds_setattr_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, mask) F(attr, attr)
#define mds_setattr_rep_FIELDS(F) F(attr, attr)
/* Returns whether a file opened with these flags (O_* of Linux) may be written through. */
static inline bool open_flags_write(uint32_t flags)
{
	return (flags & 3u) != 0; /* O_WRONLY, O_RDWR */
}

/* Creates a regular file, or (without O_EXCL) finds it, and opens it with flags. created: whether
 * it is new. reported_ino: the inode of that name, if the client has it cached and has reported
 * whether it has it open (client/ops/delegated_open.h); REPORTED_ALL: the client has reported all
 * its opens. Otherwise the MDS queries the client by cb_recall where that matters. */
#define REPORTED_ALL UINT64_MAX
#define mds_create_req_FIELDS(F) \
	F(cred, cred) F(ino, parent) F(bytes, name) F(u32, mode) F(u32, flags) F(ino, reported_ino)
#define mds_create_rep_FIELDS(F) F(attr, attr) F(cap, cap) F(u8, created) F(attr, dir)
/* Makes a regular file without a name, open for writing with flags (O_EXCL: no link may name it
 * later). parent: the directory whose layout and group it gets; cred must be allowed to create
 * files there. */
#define mds_tmpfile_req_FIELDS(F) F(cred, cred) F(ino, parent) F(u32, mode) F(u32, flags)
#define mds_tmpfile_rep_FIELDS(F) F(attr, attr) F(cap, cap)
/* Makes any type but directory and symlink, and does not open it. */
#define mds_mknod_req_FIELDS(F) \
	F(cred, cred) F(ino, parent) F(bytes, name) F(u32, mode) F(u32, rdev)
#define mds_mknod_rep_FIELDS(F) F(attr, attr) F(attr, dir)
#define mds_mkdir_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name) F(u32, mode)
#define mds_mkdir_rep_FIELDS(F) F(attr, attr) F(attr, dir)
#define mds_symlink_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name) F(bytes, target)
#define mds_symlink_rep_FIELDS(F) F(attr, attr) F(attr, dir)
#define mds_readlink_req_FIELDS(F) F(cred, cred) F(ino, ino)
#define mds_readlink_rep_FIELDS(F) F(bytes, target)
#define mds_link_req_FIELDS(F) F(cred, cred) F(ino, ino) F(ino, parent) F(bytes, name)
#define mds_link_rep_FIELDS(F) F(attr, attr) F(attr, dir)
/* reported_ino: as in mds_create. */
#define mds_unlink_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name) F(ino, reported_ino)
/* attr: of the unlinked inode (nlink 0: removed, or an orphan). */
#define mds_unlink_rep_FIELDS(F) F(attr, attr) F(attr, dir)
#define mds_rmdir_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name)
#define mds_rmdir_rep_FIELDS(F) F(attr, dir) F(ino, removed) /* the removed directory */
/* flags of linux/fs.h: RENAME_EXCHANGE, or RENAME_NOREPLACE and RENAME_WHITEOUT. reported_ino: as
 * in mds_create, of the inode with new_name. */
#define mds_rename_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name) F(ino, new_parent) \
	F(bytes, new_name) F(u32, flags) F(ino, reported_ino)
/* attr: of the moved inode; replaced: the inode that lost its name, or has the other name after an
 * exchange (0: none); whiteout: the inode that has the old name now. */
#define mds_rename_rep_FIELDS(F) \
	F(attr, attr) F(ino, replaced) F(attr, dir) F(attr, new_dir) F(ino, whiteout)
enum readdir_flags { READDIR_PLUS = 1 };
/* The entries after cookie (0: from the start), at most max_bytes of encoded dirent_wire. last: the
 * cookie of the last entry in the reply; change: of the directory. */
#define mds_readdir_req_FIELDS(F) \
	F(cred, cred) F(ino, ino) F(u64, cookie) F(u32, max_bytes) F(u32, flags)
#define mds_readdir_rep_FIELDS(F) F(bytes, entries) F(u8, eof) F(u64, change) F(u64, last)
/* mask: as in access(2). Status 0: cred has these rights. */
#define mds_access_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, mask)
#define mds_access_rep_FIELDS(F)

/* ---- open files ---- */
/*
 * flags: O_ACCMODE, O_TRUNC, O_APPEND of open(2). The MDS counts opens per (session, inode,
 * writing or not). The first open for writing marks the inode unsettled in the same batch; opens
 * for reading write nothing.
 *
 * OPEN_ORPHAN: the inode may have no name; without the flag its open returns -LE_STALE. For an open
 * that certainly belongs to a lookup (mds/file/orphan_delay.h), and for one that the client has
 * already: to report a delegated open, to renew a capability, in a new session.
 */
enum open_flags { OPEN_ORPHAN = 1 << 30 };
#define mds_open_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, flags)
#define mds_open_rep_FIELDS(F) F(attr, attr) F(cap, cap)
/*
 * Ends one open. A writer that wrote sets dirty to 1, with the file's size, mtime and used bytes
 * (UINT64_MAX: like the size) as its client has them. The close of the last writer settles the
 * file. The reply has the attributes after the close; ino 0: the inode is removed.
 *
 * CLOSE_LAZY: no program waits for it, so it may become durable later. A request for the inode
 * makes the MDS commit it earlier. CLOSE_MUST_QUERY: some writes of this client have failed or
 * got no answer, so its size may be wrong: the MDS queries the chains. CLOSE_TRUNCATED: the file
 * was truncated while this client had it open: the MDS queries the chains, though no write has
 * failed. CLOSE_ATIME: the file was read, and by the rules of the mount this sets its access
 * time; CLOSE_STRICT: even if the record has a recent one (attr_atime_due). CLOSE_UNCOUNTED: the
 * open was not reported to the MDS.
 */
enum close_flags {
	CLOSE_LAZY = 1 << 29,
	CLOSE_MUST_QUERY = 1 << 28,
	CLOSE_ATIME = 1 << 27,
	CLOSE_STRICT = 1 << 26,
	CLOSE_UNCOUNTED = 1 << 25,
	CLOSE_TRUNCATED = 1 << 24,
};
#define mds_close_req_FIELDS(F) \
	F(ino, ino) F(u32, flags) F(u8, dirty) F(u64, size) F(i64, mtime_ns) F(u64, used)
#define mds_close_rep_FIELDS(F) F(attr, attr)
/*
 * Reserves [off, off + len) at the end of the file for one O_APPEND write, durably, unless the file
 * is truncated (cb_recall with LEASE_APPEND). size: the file's size at this client, its own writes
 * included. change, n_truncations: of the file.
 *
 * had_end: the client had a reservation that ends there, under a session that has ended, when the
 * file had had_truncations (0: none). It gets the same one, if the file was not truncated since.
 * had_there: data may be written there already: it gets the same reservation or none, -LE_EXIST.
 * had_lost: another client has written there, and the append has not: it gets another reservation,
 * and the former one is released if nothing was reserved after it. -LE_BADF: the session does not
 * have the file open for writing; a new session opens it first, or gets the error of that open.
 */
#define mds_append_req_FIELDS(F) \
	F(ino, ino) F(u64, len) F(u64, size) F(u64, had_end) F(u32, had_truncations) F(u8, had_there) \
	F(u8, had_lost)
#define mds_append_rep_FIELDS(F) F(u64, off) F(u64, change) F(u32, n_truncations)
/* mode of fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE[|KEEP_SIZE]. */
#define mds_fallocate_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, mode) F(u64, off) F(u64, len)
#define mds_fallocate_rep_FIELDS(F) F(attr, attr)

/*
 * copy_file_range of whole chunks, without moving them through the client, from one file that the
 * session has open to another that it has open for writing: [off, off + len) to to_off. len of the
 * reply: how much was copied; the client sends the rest again. to_size: of the target file, as this
 * client has it. -LE_NOTSUP: not this range, or not now; nothing was copied.
 */
#define mds_copy_req_FIELDS(F) \
	F(cred, cred) F(ino, ino) F(u64, off) F(ino, to) F(u64, to_off) F(u64, len) F(u64, to_size)
#define mds_copy_rep_FIELDS(F) F(attr, attr) F(u64, len)

/*
 * Sets, changes or (type NONE) removes the owner's lock on a range of a file that the session has
 * open. -LE_LOCKED: a conflicting lock of another owner exists. With LOCK_WAIT the server then
 * sends cb_unlocked when the client may try again, until the lock is set or the client sends
 * LOCK_CANCEL; -LE_DEADLK: the two owners would wait for each other. -LE_NOT_READY while locks may
 * still be reclaimed.
 */
enum lock_flags { LOCK_WAIT = 1, LOCK_CANCEL = 2 };
#define mds_lock_req_FIELDS(F) F(ino, ino) F(file_lock, lock) F(u32, flags)
#define mds_lock_rep_FIELDS(F)
/* Returns the first lock that conflicts with this one; type NONE: there is none. */
#define mds_lock_test_req_FIELDS(F) F(ino, ino) F(file_lock, lock)
#define mds_lock_test_rep_FIELDS(F) F(file_lock, lock)

/* ---- extended attributes, layout, space ---- */
#define mds_getxattr_req_FIELDS(F) F(cred, cred) F(ino, ino) F(bytes, name)
#define mds_getxattr_rep_FIELDS(F) F(bytes, value)
/* flags: XATTR_CREATE, XATTR_REPLACE; XATTR_KILL_SGID: the setting of an access list clears
 * S_ISGID, because the caller has no right to keep it. */
enum xattr_flags { XATTR_KILL_SGID = 1 << 16 };
#define mds_setxattr_req_FIELDS(F) \
	F(cred, cred) F(ino, ino) F(bytes, name) F(bytes, value) F(u32, flags)
#define mds_setxattr_rep_FIELDS(F)
/* names: each with its NUL, as listxattr(2) gives them. */
#define mds_listxattr_req_FIELDS(F) F(cred, cred) F(ino, ino)
#define mds_listxattr_rep_FIELDS(F) F(bytes, names)
#define mds_removexattr_req_FIELDS(F) F(cred, cred) F(ino, ino) F(bytes, name)
#define mds_removexattr_rep_FIELDS(F)
/* Space of the file system; below a directory with a quota, what the quota leaves. ino: where. */
#define mds_statfs_req_FIELDS(F) F(ino, ino)
#define mds_statfs_rep_FIELDS(F) \
	F(u64, total) F(u64, free) F(u64, avail) F(u64, inodes) F(u64, inodes_free)
/* Sets the layout of a directory (the default for what is created in it) or of a file without data.
 * Zero members keep the old value. */
#define mds_layout_set_req_FIELDS(F) F(cred, cred) F(ino, ino) F(layout, layout)
#define mds_layout_set_rep_FIELDS(F) F(attr, attr)

/*
 * Quotas of directory trees. set, by root only: sets the limits in mask for the tree below
 * directory ino, which becomes a separate project unless it is one. made: it is new, and the client
 * has to give the project's number to what lies below, by SET_PROJECT. mask 0: no limits. get: the
 * quota that ino counts to, -LE_NODATA without one. space: the session is about to write so many
 * bytes that may need space; the reply says how many it may write, -LE_DQUOT. They stay reserved
 * until the file's last writer closes it.
 */
enum quota_mask {
	QUOTA_BYTES_SOFT = 1,
	QUOTA_BYTES_HARD = 2,
	QUOTA_INODES_SOFT = 4,
	QUOTA_INODES_HARD = 8,
	QUOTA_REMOVE = 16,
};
#define mds_quota_set_req_FIELDS(F) \
	F(cred, cred) F(ino, ino) F(u32, mask) F(u64, bytes_soft) F(u64, bytes_hard) \
	F(u64, inodes_soft) F(u64, inodes_hard)
#define mds_quota_set_rep_FIELDS(F) F(attr, attr) F(u8, made)
#define quota_state_FIELDS(F) \
	F(u32, project) F(ino, root) F(u64, bytes) F(u64, inodes) F(u64, bytes_soft) \
	F(u64, bytes_hard) F(u64, inodes_soft) F(u64, inodes_hard) F(i64, bytes_over_ns) \
	F(i64, inodes_over_ns) F(u64, reserved)
#define WIRE_CTYPE_quota_state struct quota_state
WIRE_STRUCT(quota_state)
#define mds_quota_get_req_FIELDS(F) F(ino, ino)
#define mds_quota_get_rep_FIELDS(F) F(quota_state, quota) F(u32, grace_s)
/*
 * All quotas, by their numbers. after: `next` of the previous page (0: the beginning); next 0:
 * the last page. rows: quota_row, one after the other, as many as fit: a page without rows need
 * not be the last one. path: of the tree's directory, empty if it cannot be found. Root gets all
 * quotas; other users get those with a path that leads through directories that they may list
 * and search, because they could not name any other. now_ns: the server's clock, by which the
 * *_over_ns are.
 */
#define quota_row_FIELDS(F) F(quota_state, quota) F(bytes, path)
#define WIRE_CTYPE_quota_row struct quota_row
WIRE_STRUCT(quota_row)
#define mds_quota_list_req_FIELDS(F) F(cred, cred) F(u32, after)
#define mds_quota_list_rep_FIELDS(F) F(bytes, rows) F(u32, next) F(u32, grace_s) F(i64, now_ns)
#define mds_space_req_FIELDS(F) F(ino, ino) F(u64, bytes)
#define mds_space_rep_FIELDS(F) F(u64, bytes)

/*
 * From `leat export`: what clients of a network may do (mds/access/exports.h). ADD replaces a row
 * of the same network; REMOVE uses only the network. -LE_BUSY: the change would restrict the sender
 * itself. target: the change would restrict this object server, so it was not made (0: it was
 * made). unheard: packed u32 numbers of the targets that have not confirmed that they refuse reads
 * of ended sessions. rows: export_row, one after the other, those with precedence first.
 */
enum export_change {
	EXPORT_ADD = 1,
	EXPORT_REMOVE = 2,
};
#define mds_export_set_req_FIELDS(F) F(u32, what) F(export_row, row)
#define mds_export_set_rep_FIELDS(F) F(u32, n) F(u32, target) F(bytes, unheard)
#define mds_export_get_req_FIELDS(F)
#define mds_export_get_rep_FIELDS(F) F(bytes, rows)
/* From an agent: what clients at that address (as a transport names it: "10.1.2.3:700") may do less
 * than the agent itself, by the rows of both. So an agent does not pass on rights that only its own
 * node has. */
enum peer_less {
	PEER_READS_LESS = 1,  /* their users are squashed otherwise */
	PEER_WRITES_LESS = 2, /* they only read */
};
#define mds_peer_rights_req_FIELDS(F) F(bytes, addr)
#define mds_peer_rights_rep_FIELDS(F) F(u32, less)

/* ---- callbacks ---- */
/* The cluster map has this epoch now. The client then reads the new map (mds_map_get). */
#define cb_map_changed_req_FIELDS(F) F(u32, epoch)
#define cb_map_changed_rep_FIELDS(F)
/*
 * What a session may do with an inode: bits of one lease (mds/lease/leases.h). LEASE_READ: cache
 * attributes, data and names. LEASE_SHARED: cache the attributes that writers do not change.
 * LEASE_WRITE: delay writes, and compute size and times. LEASE_APPEND: write in the ranges that
 * mds_append has reserved.
 */
enum lease_mode {
	LEASE_READ = 1 << 0,
	LEASE_SHARED = 1 << 1,
	LEASE_WRITE = 1 << 2,
	LEASE_APPEND = 1 << 3,
	LEASE_CACHING = LEASE_READ | LEASE_SHARED | LEASE_WRITE,
};
/*
 * These modes of the session's lease on the inode end with the answer.
 * LEASE_CACHING: the client answers when it no longer caches anything of the inode and, of a write
 * lease, when its writes are visible to all clients. The server also sends it to a session without
 * a lease, to learn whether the client has the file open.
 * LEASE_APPEND: the file is about to be truncated. Reservations that were given with this change
 * counter or an older one are void. The client answers when it has no write in flight to such a
 * reservation. Other modes: change is 0.
 */
#define cb_recall_req_FIELDS(F) F(ino, ino) F(u8, modes) F(u64, change)
#define cb_recall_rep_FIELDS(F)
/* An owner of this session that waits for a lock on the file may try again. */
#define cb_unlocked_req_FIELDS(F) F(ino, ino)
#define cb_unlocked_rep_FIELDS(F)
/* An inode that the client has open has another owner or group. The client answers when it has
 * notified its kernel, or cannot. */
#define cb_owner_req_FIELDS(F) F(ino, ino)
#define cb_owner_rep_FIELDS(F)

#define MSG_STRUCTS(num, name, kind) \
	WIRE_STRUCT(name##_req) \
	WIRE_STRUCT(name##_rep)
#define MSG_NUMBER(num, name, kind) OP_##name = num,

#define WIRE_CTYPE_residency_row struct residency_row
WIRE_STRUCT(residency_row)
#define WIRE_CTYPE_residency_node struct residency_node
WIRE_STRUCT(residency_node)
#define WIRE_CTYPE_fsck_inode struct fsck_inode
WIRE_STRUCT(fsck_inode)
#define WIRE_CTYPE_fsck_entry struct fsck_entry
WIRE_STRUCT(fsck_entry)
MDS_OPS(MSG_STRUCTS)
MDS_CALLBACKS(MSG_STRUCTS)
enum mds_op { MDS_OPS(MSG_NUMBER) MDS_CALLBACKS(MSG_NUMBER) };

#endif
