/*
 * The metadata server's operations. Each is a line in MDS_OPS and two field lists. Kinds:
 *   READ   changes nothing: may be repeated
 *   WRITE  a mutation: carries (session, slot, seq), is executed exactly once
 *   CTRL   sessions, map, heartbeats: idempotent by content
 * Errors are the status of the reply frame; a failed request has an empty body.
 */
#ifndef LEAT_PROTO_MDS_PROTO_H
#define LEAT_PROTO_MDS_PROTO_H

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
	M(0x0150, mds_lease_return, CTRL) \
	M(0x0151, mds_export_set, CTRL) \
	M(0x0152, mds_export_get, CTRL) \
	M(0x0153, mds_peer_rights, CTRL)

/* Server to client, over the client's own connection. */
#define MDS_CALLBACKS(M) \
	M(0x0181, cb_map_changed, CTRL) \
	M(0x0182, cb_recall, CTRL) \
	M(0x0183, cb_unlocked, CTRL) \
	M(0x0184, cb_cut, CTRL) \
	M(0x0185, cb_owner, CTRL)

/* ---- sessions and cluster ---- */
/* client: random, made once per mount; session: a former one to take up again (0: new). takeover:
 * another process goes on with it: it tells with mds_reclaim what it has open; what else the
 * session has open is closed with done. */
#define mds_session_open_req_FIELDS(F) \
	F(uuid, client) F(bytes, name) F(u64, session) F(u32, slots) F(u8, takeover)
/* incarnation changes when the MDS restarts: reclaim opens, and leases are gone. slots: how many it
 * may use. lease_ms: leases hold for so long after the sending of a request that was answered. */
#define mds_session_open_rep_FIELDS(F) \
	F(u64, session) F(u32, slots) F(u32, ttl_ms) F(u64, incarnation) F(u32, map_epoch) \
	F(u8, reclaim) F(u32, lease_ms) F(u8, judges)
/* judges: users are squashed here, and what the kernel of a client lets root's capabilities do to
 * others' files is not believed: credentials come with all groups, and without CRED_CHECKED. */
/* What the client has to tell: nothing, everything, everything of a takeover. */
enum session_reclaim { RECLAIM_NONE, RECLAIM_ALL, RECLAIM_TAKEOVER };
#define mds_session_close_req_FIELDS(F) F(u64, session)
#define mds_session_close_rep_FIELDS(F)
/* sessions: packed u64 of all live ones; gen changes with the set. newest: the others up to that
 * one have ended. */
#define mds_session_list_req_FIELDS(F) F(u64, have_gen)
#define mds_session_list_rep_FIELDS(F) F(u64, gen) F(bytes, sessions) F(u64, newest)
/* Keeps the session alive. */
#define mds_ping_req_FIELDS(F) F(u32, map_epoch)
#define mds_ping_rep_FIELDS(F) F(u32, map_epoch) F(u64, incarnation)
/* opens: packed (u64 ino, u32 open flags, u32 count) of all files this session has open, with
 * RECLAIM_SHARED among the flags of inodes on which it has the lease of ATTR_SHARED (n_unshared: of
 * so many, told so far, it could not be kept), or RECLAIM_HIDDEN if it has written what no object
 * server has seen (it has a write lease again, to be recalled); locks: packed (u64 ino, file_lock)
 * of those it has, behind the opens of their files. done: the last one. locks_from, in a takeover:
 * 0 or 1 + how many locks are known; held: the next ones as the server has them, packed alike;
 * locks_next: what locks_from is to be next, 0: these were all. */
#define mds_reclaim_req_FIELDS(F) \
	F(bytes, opens) F(bytes, locks) F(u8, done) F(u32, locks_from)
#define mds_reclaim_rep_FIELDS(F) \
	F(u32, n_lost) F(u32, n_unshared) F(bytes, held) F(u32, locks_next)
#define RECLAIM_SHARED (1u << 31)
#define RECLAIM_HIDDEN (1u << 30)
/* targets, chains, tables: encoded target_info, chain_info, table_info one behind the other. A
 * large map comes in pages: next, when not 0, is `from` of the next request; pages of different
 * epochs do not belong together. */
#define mds_map_get_req_FIELDS(F) F(u32, have_epoch) F(u32, from)
#define mds_map_get_rep_FIELDS(F) \
	F(u32, epoch) F(uuid, cluster) F(bytes, targets) F(bytes, chains) F(bytes, tables) F(u32, next)
/*
 * target 0: first registration. commits: the store's commit counter, must not go back. addrs
 * "host:port host:port". holds: packed (u32 chain, u32 epoch) of all chains it has adopted.
 * In the reply and that of heartbeats: chains are encoded chain_info of the chains that the target
 * is a member of (in any state), to be adopted (E row) where the epoch is newer; what it holds
 * and is not among them it is no member of any more. targets: encoded target_info of their
 * members. lease_ms: how long after the sending of an answered heartbeat it may serve. chain,
 * epoch: its chain of one member. fence_ms, read_ms: as for heartbeats.
 */
#define mds_target_register_req_FIELDS(F) \
	F(uuid, cluster) F(uuid, uuid) F(u32, target) F(u64, commits) F(bytes, addrs) \
	F(u32, loop) F(bytes, host) F(u64, capacity) F(u64, used) F(u64, free) F(u64, incarnation) \
	F(bytes, holds) F(bytes, rack)
#define mds_target_register_rep_FIELDS(F) \
	F(u32, target) F(u32, chain) F(u32, epoch) F(u32, map_epoch) F(u32, heartbeat_ms) \
	F(bytes, chains) F(u32, lease_ms) F(u32, chains_epoch) F(bytes, targets) F(u32, fence_ms) \
	F(u32, read_ms)
/* chains_epoch: as the last answer with chains told it; the reply has chains only when it is
 * another one now. resync: packed (u32 chain, u32 target, u64 chunks done, u64 chunks in all) of
 * the members that this target fills just now. sessions_gen: in the reply the present set of live
 * sessions, in the request the one by which the target judges, with nothing under way of those that
 * have ended. fence_ms: so long after the sending of an answered heartbeat it may take changes of
 * clients, if it knows that set; read_ms: so long it may serve them at all, also reads (0: reads go
 * on while nobody is heard; no network has less rights than others); in the request what the target
 * goes by. */
#define mds_target_heartbeat_req_FIELDS(F) \
	F(u32, target) F(uuid, uuid) F(u64, commits) F(u64, capacity) F(u64, used) F(u64, free) \
	F(u64, incarnation) F(u32, chains_epoch) F(bytes, resync) F(u64, sessions_gen) \
	F(u32, read_ms)
#define mds_target_heartbeat_rep_FIELDS(F) \
	F(u32, epoch) F(u32, map_epoch) F(u64, sessions_gen) F(bytes, chains) F(u32, lease_ms) \
	F(u32, chains_epoch) F(bytes, targets) F(u32, fence_ms) F(u32, read_ms)
/* From the source of a resync: this SYNCING member is complete. epoch: of the chain, at the source;
 * -LE_STALE_EPOCH when it is another one now: go on as that one says. */
#define mds_chain_synced_req_FIELDS(F) F(u32, chain) F(u32, epoch) F(u32, target)
#define mds_chain_synced_rep_FIELDS(F) F(u32, epoch)
/* A target cannot trust its store: all its members are taken out, and filled anew when it
 * registers under another uuid. */
#define mds_target_bad_req_FIELDS(F) F(u32, target) F(uuid, uuid) F(u64, incarnation)
#define mds_target_bad_rep_FIELDS(F)
/* `leat target`: what is one of enum target_admin; REBALANCE names no target and goes on as long
 * as it is asked for again every few seconds. left: how many copies of chains are still to be
 * moved. */
enum target_admin {
	TARGET_ADMIN_DRAIN = 1,
	TARGET_ADMIN_UNDRAIN,
	TARGET_ADMIN_REMOVE,
	TARGET_ADMIN_ADD, /* take a removed one back */
	TARGET_ADMIN_REBALANCE,
};
#define mds_target_admin_req_FIELDS(F) F(u32, what) F(u32, target)
#define mds_target_admin_rep_FIELDS(F) F(u32, left)
/*
 * `leat fsck`. A page of one kind of record, in the order of the keys, out of a snapshot of the
 * store. snapshot 0: a new one (rep tells its number); there is one at a time, and it goes when it
 * has not been read for a minute: -LE_STALE. from: `next` of the page before (empty: the
 * beginning). rows: fsck_inode (FSCK_INODES), fsck_entry (FSCK_ENTRIES), packed u64 inode numbers
 * (FSCK_ORPHANS), packed u64 inode number, u32 generation (FSCK_REMOVALS). next_ino: numbers from
 * there on are newer than the snapshot.
 */
enum fsck_kind { FSCK_INODES = 1, FSCK_ENTRIES, FSCK_ORPHANS, FSCK_REMOVALS };
/* busy: somebody has it open, or works on its data, just now. cut: its data has been made shorter
 * since its blocks were counted. damaged: nothing but its number is known. */
#define fsck_inode_FIELDS(F) \
	F(ino, ino) F(u32, mode) F(u32, nlink) F(u32, flags) F(u64, size) F(u64, blocks) \
	F(u64, change) F(ino, parent) F(u64, entries) F(layout, layout) F(u8, busy) F(u8, cut) \
	F(u8, damaged)
#define fsck_entry_FIELDS(F) F(ino, dir) F(u64, cookie) F(ino, ino) F(u8, type) F(bytes, name)
#define mds_fsck_page_req_FIELDS(F) F(u64, snapshot) F(u32, kind) F(bytes, from) F(u32, max)
#define mds_fsck_page_rep_FIELDS(F) \
	F(u64, snapshot) F(bytes, rows) F(bytes, next) F(u64, next_ino) F(u64, n_inodes)
/*
 * One repair, checked against the present state and done at most once: done 0: there is nothing to
 * repair (any more); -LE_STALE: the inode has changed since `change`, look again. ENTRY: the entry
 * (dir, cookie) of the inode, which does not exist, goes. COUNTS: nlink, entries, parent become
 * these. NAME: an inode without a name goes to /lost+found with nlink; ORPHAN: one without links
 * goes; FALSE_ORPHAN: one that has a name, or is none, is no orphan. CHUNKS: data of (ino, gen)
 * that no inode has, on one chain, goes. SIZE: is asked of the chains. TOTAL: the number of inodes
 * in snapshot `change` is `entries`.
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
 * Which node holds which staged copies: known to the MDS while nodes keep telling, never durable.
 * set: all that the node has, in the place of what it told before; forgotten after ttl_ms. rows:
 * residency_row. addrs: where it hands out chunks ("host:port ..."), empty: nowhere.
 * get: rows: residency_node of the copies of `what` (an id, "name@version", empty: all), from
 * number `from` on; next: of the next page, 0: that was all. state: enum leat_stage_state.
 */
#define residency_row_FIELDS(F) F(bytes, id) F(bytes, name) F(u8, state) F(u64, bytes) F(u64, done)
#define residency_node_FIELDS(F) \
	F(bytes, node) F(bytes, addrs) F(bytes, id) F(bytes, name) F(u8, state) F(u64, bytes) \
	F(u64, done) F(u32, age_ms)
#define mds_residency_set_req_FIELDS(F) F(bytes, node) F(bytes, addrs) F(u32, ttl_ms) F(bytes, rows)
#define mds_residency_set_rep_FIELDS(F)
#define mds_residency_get_req_FIELDS(F) F(bytes, what) F(u32, from)
#define mds_residency_get_rep_FIELDS(F) F(bytes, rows) F(u32, next)
/* inos: packed u64 of inodes that the session caches no more. */
#define mds_lease_return_req_FIELDS(F) F(bytes, inos)
#define mds_lease_return_rep_FIELDS(F)
/* json: a JSON object for `leat status` (sessions, rates, store, recovery). */
#define mds_status_req_FIELDS(F)
#define mds_status_rep_FIELDS(F) F(bytes, json)

/* ---- names ---- */
/* dir, new_dir: the directories as the operation left them (ino 0: not told, or not changed). */
#define mds_lookup_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name)
/* dir: that of the directory. attr.ino 0: there is no such name, and dir is leased (else it is
 * -LE_NOENT). cap: to read a regular file, if cred may (ino 0: none). */
#define mds_lookup_rep_FIELDS(F) F(attr, attr) F(attr, dir) F(cap, cap)
/* prepared: of a file with ATTR_PREPARED (common/proto/ranges.h). */
#define mds_getattr_req_FIELDS(F) F(cred, cred) F(ino, ino)
#define mds_getattr_rep_FIELDS(F) F(attr, attr) F(bytes, prepared)
/* mask: enum attr_mask, values in attr. With SET_SIZE the reply comes when chunks are trimmed. */
#define mds_setattr_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, mask) F(attr, attr)
#define mds_setattr_rep_FIELDS(F) F(attr, attr)
/* Regular file, created or (without O_EXCL) found, and opened with flags. created tells which.
 * told: the inode of that name, if the client knows it and the MDS knows whether it has it open
 * (delegated opens, client/delegation.h), or TOLD_ALL: that of any; else the MDS asks, where that
 * matters. */
#define TOLD_ALL UINT64_MAX
#define mds_create_req_FIELDS(F) \
	F(cred, cred) F(ino, parent) F(bytes, name) F(u32, mode) F(u32, flags) F(ino, told)
#define mds_create_rep_FIELDS(F) F(attr, attr) F(cap, cap) F(u8, created) F(attr, dir)
/* A regular file without a name, opened for writing with flags (O_EXCL: never to get one by link).
 * parent: the directory whose layout and group it takes, and in which one may make files. */
#define mds_tmpfile_req_FIELDS(F) F(cred, cred) F(ino, parent) F(u32, mode) F(u32, flags)
#define mds_tmpfile_rep_FIELDS(F) F(attr, attr) F(cap, cap)
/* Any type but directory and symlink, not opened. */
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
/* told: as in mds_create. */
#define mds_unlink_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name) F(ino, told)
/* attr of what was unlinked (nlink 0: gone or an orphan). */
#define mds_unlink_rep_FIELDS(F) F(attr, attr) F(attr, dir)
#define mds_rmdir_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name)
#define mds_rmdir_rep_FIELDS(F) F(attr, dir) F(ino, removed)
/* flags of linux/fs.h: RENAME_EXCHANGE, or RENAME_NOREPLACE and RENAME_WHITEOUT. told: as in
 * mds_create, of what has new_name. */
#define mds_rename_req_FIELDS(F) F(cred, cred) F(ino, parent) F(bytes, name) F(ino, new_parent) \
	F(bytes, new_name) F(u32, flags) F(ino, told)
/* attr of the moved; replaced: inode that lost its name, or that has the other now (0: none);
 * whiteout: what has the old name now. */
#define mds_rename_rep_FIELDS(F) \
	F(attr, attr) F(ino, replaced) F(attr, dir) F(attr, new_dir) F(ino, whiteout)
enum readdir_flags { READDIR_PLUS = 1 };
/* Entries after cookie (0: from the start), at most max_bytes of encoded dirent_wire. last: the
 * cookie of the last of them. */
#define mds_readdir_req_FIELDS(F) \
	F(cred, cred) F(ino, ino) F(u64, cookie) F(u32, max_bytes) F(u32, flags)
#define mds_readdir_rep_FIELDS(F) F(bytes, entries) F(u8, eof) F(u64, change) F(u64, last)
#define mds_access_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, mask)
#define mds_access_rep_FIELDS(F)

/* ---- open files ---- */
/* flags: O_ACCMODE, O_TRUNC, O_APPEND of open(2). Opens are counted per (session, inode, writing or
 * not). The first open for writing marks the inode unsettled in the same batch; read opens write
 * nothing. */
/* OPEN_ORPHAN: an inode without a name may be opened too: by a client that has just looked it up,
 * and was told -LE_STALE because a rename came in between. The MDS keeps what a rename replaced
 * for some seconds. */
enum open_flags { OPEN_ORPHAN = 1 << 30 };
#define mds_open_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, flags)
#define mds_open_rep_FIELDS(F) F(attr, attr) F(cap, cap)
/* Ends one open. For a writer that wrote: dirty 1 with the file's size and mtime as this client
 * knows them and used bytes (UINT64_MAX: like the size). The last writer's close settles it. */
/* attr: as the close left it; ino 0: it is gone. */
/* CLOSE_LAZY: nobody waits for it, so it need not be durable at once; whoever looks at the inode
 * then makes the MDS hurry. */
/* CLOSE_ASK: some of this client's writes have failed or got no answer: its size is not to be
 * believed, the chains shall be asked. */
/* CLOSE_CUT: it was cut while this client had it open: the same, and it knows what it did. */
/* CLOSE_ATIME: it was read, and by the mount's rules that is the file's access time now;
 * CLOSE_STRICT: even if it has got a recent one meanwhile (attr_atime_due). */
/* CLOSE_UNCOUNTED: an open that the MDS was never told of. */
enum close_flags {
	CLOSE_LAZY = 1 << 29,
	CLOSE_ASK = 1 << 28,
	CLOSE_ATIME = 1 << 27,
	CLOSE_STRICT = 1 << 26,
	CLOSE_UNCOUNTED = 1 << 25,
	CLOSE_CUT = 1 << 24,
};
#define mds_close_req_FIELDS(F) \
	F(ino, ino) F(u32, flags) F(u8, dirty) F(u64, size) F(i64, mtime_ns) F(u64, used)
#define mds_close_rep_FIELDS(F) F(attr, attr)
/* Reserves [off, off + len) at the end of the file for one O_APPEND write, durably, unless the file
 * is cut (cb_cut). size: the size as this client knows it (its own writes). change, cuts: of the
 * file. had_end: it had a place that ends there, under a session that has ended, when the file had
 * had_cuts (0: none): it gets the same one, if that is its own still. had_there: some of it may be
 * written there: it gets the same one or none, -LE_EXIST. had_lost: somebody has
 * written there, and the append has not: it gets another one, and if nothing was reserved behind
 * the former one that is given back. -LE_BADF: the session does not have it open for writing; a new
 * one opens it first, or hears why it may not. */
#define mds_append_req_FIELDS(F) \
	F(ino, ino) F(u64, len) F(u64, size) F(u64, had_end) F(u32, had_cuts) F(u8, had_there) \
	F(u8, had_lost)
#define mds_append_rep_FIELDS(F) F(u64, off) F(u64, change) F(u32, cuts)
/* mode of fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE[|KEEP_SIZE]. */
#define mds_fallocate_req_FIELDS(F) F(cred, cred) F(ino, ino) F(u32, mode) F(u64, off) F(u64, len)
#define mds_fallocate_rep_FIELDS(F) F(attr, attr)

/*
 * copy_file_range of whole chunks, without moving them through the client, from one file that the
 * session has open to another that it has open for writing: [off, off + len) to to_off, as much of
 * it as is done at once (len of the reply). to_size: of the target, as this client knows it.
 * -LE_NOTSUP: not this range, or not now; nothing was done.
 */
#define mds_copy_req_FIELDS(F) \
	F(cred, cred) F(ino, ino) F(u64, off) F(ino, to) F(u64, to_off) F(u64, len) F(u64, to_size)
#define mds_copy_rep_FIELDS(F) F(attr, attr) F(u64, len)

/*
 * Sets, changes or (type NONE) takes away the owner's lock on a range of a file that the session
 * has open. -LE_LOCKED: somebody else has a lock that forbids it; with LOCK_WAIT the session is
 * told by cb_unlocked when it may try again, until it has got it or says LOCK_CANCEL; -LE_DEADLK
 * when the two would wait for each other. -LE_NOT_READY while locks may still be reclaimed.
 */
enum lock_flags { LOCK_WAIT = 1, LOCK_CANCEL = 2 };
#define mds_lock_req_FIELDS(F) F(ino, ino) F(file_lock, lock) F(u32, flags)
#define mds_lock_rep_FIELDS(F)
/* The first lock that forbids this one; type NONE: there is none. */
#define mds_lock_test_req_FIELDS(F) F(ino, ino) F(file_lock, lock)
#define mds_lock_test_rep_FIELDS(F) F(file_lock, lock)

/* ---- extended attributes, layout, space ---- */
#define mds_getxattr_req_FIELDS(F) F(cred, cred) F(ino, ino) F(bytes, name)
#define mds_getxattr_rep_FIELDS(F) F(bytes, value)
/* flags: XATTR_CREATE, XATTR_REPLACE; XATTR_KILL_SGID: with an access list, whoever sets it has no
 * right to keep S_ISGID. */
enum xattr_flags { XATTR_KILL_SGID = 1 << 16 };
#define mds_setxattr_req_FIELDS(F) \
	F(cred, cred) F(ino, ino) F(bytes, name) F(bytes, value) F(u32, flags)
#define mds_setxattr_rep_FIELDS(F)
/* names: each with its NUL, as listxattr(2) gives them. */
#define mds_listxattr_req_FIELDS(F) F(cred, cred) F(ino, ino)
#define mds_listxattr_rep_FIELDS(F) F(bytes, names)
#define mds_removexattr_req_FIELDS(F) F(cred, cred) F(ino, ino) F(bytes, name)
#define mds_removexattr_rep_FIELDS(F)
/* ino: where; with a quota, what that leaves. */
#define mds_statfs_req_FIELDS(F) F(ino, ino)
#define mds_statfs_rep_FIELDS(F) \
	F(u64, total) F(u64, free) F(u64, avail) F(u64, inodes) F(u64, inodes_free)
/* Of a directory (default for what is made in it) or of a file without data. Zero members keep the
 * old value. */
#define mds_layout_set_req_FIELDS(F) F(cred, cred) F(ino, ino) F(layout, layout)
#define mds_layout_set_rep_FIELDS(F) F(attr, attr)

/*
 * Quotas of directory trees. set: of the tree below the directory ino, which becomes a project of
 * its own unless it is one (made: what lies below has to be given its number, by SET_PROJECT);
 * root's alone. mask: which limits are set (0: none). get: of what ino belongs to, -LE_NODATA
 * without. space: the session is about to write so many bytes that may need space; the answer is
 * how many it may, -LE_DQUOT. They are reserved until the file's last writer closes it.
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
#define mds_quota_get_req_FIELDS(F) F(ino, ino)
#define mds_quota_get_rep_FIELDS(F) \
	F(u32, project) F(ino, root) F(u64, bytes) F(u64, inodes) F(u64, bytes_soft) \
	F(u64, bytes_hard) F(u64, inodes_soft) F(u64, inodes_hard) F(i64, bytes_over_ns) \
	F(i64, inodes_over_ns) F(u64, reserved) F(u32, grace_s)
#define mds_space_req_FIELDS(F) F(ino, ino) F(u64, bytes)
#define mds_space_rep_FIELDS(F) F(u64, bytes)

/* `leat export`: what clients of a network may do (mds/exports.h). ADD takes the place of a row of
 * the same network, REMOVE looks only at that. -LE_BUSY: it would take rights from who asks;
 * target: from that object server, so nothing is changed either (0: it is). unheard: packed u32
 * numbers of the targets that have not said that they refuse reads of sessions that have ended.
 * rows: export_row one behind the other, those that count first first. */
enum export_change {
	EXPORT_ADD = 1,
	EXPORT_REMOVE = 2,
};
#define mds_export_set_req_FIELDS(F) F(u32, what) F(export_row, row)
#define mds_export_set_rep_FIELDS(F) F(u32, n) F(u32, target) F(bytes, unheard)
#define mds_export_get_req_FIELDS(F)
#define mds_export_get_rep_FIELDS(F) F(bytes, rows)
/* What clients at that address (as a transport names them: "10.1.2.3:700") may do less than who
 * asks, by the rows of both: an agent, which does not hand on rights that its node alone has. */
enum peer_less {
	PEER_READS_LESS = 1,  /* its users are others' there */
	PEER_WRITES_LESS = 2, /* it only reads */
};
#define mds_peer_rights_req_FIELDS(F) F(bytes, addr)
#define mds_peer_rights_rep_FIELDS(F) F(u32, less)

/* ---- callbacks ---- */
#define cb_map_changed_req_FIELDS(F) F(u32, epoch)
#define cb_map_changed_rep_FIELDS(F)
/* The session's lease on it ends with the answer: nothing of it is cached any more, and, of a write
 * lease, what was written is seen by all. Also asked when the client has none (any more). */
#define cb_recall_req_FIELDS(F) F(ino, ino)
#define cb_recall_rep_FIELDS(F)
/* Somebody of this session who waits for a lock on the file may try again. */
#define cb_unlocked_req_FIELDS(F) F(ino, ino)
#define cb_unlocked_rep_FIELDS(F)
/* The file is about to be cut: a place that an append was given with this change counter or an
 * older one is void. Answered when nothing is being written at such a place. */
#define cb_cut_req_FIELDS(F) F(ino, ino) F(u64, change)
#define cb_cut_rep_FIELDS(F)
/* The inode, which the client has open, has another owner or group. Answered when its kernel has
 * been told, or cannot be. */
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
