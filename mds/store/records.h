/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records on disk: the values of the keys in keys.h, declared once as field lists (wire.h).
 * Fields are only ever appended; missing ones read as zero.
 */
#ifndef LEAT_MDS_STORE_RECORDS_H
#define LEAT_MDS_STORE_RECORDS_H

#include "common/proto/types.h"

#define STORE_FORMAT 5u
#define DIR_BLOCKS   8u    /* blocks that each directory counts, whatever it holds */
#define RECORD_MAX   8192u /* upper bound of encoded records, except tables and replay rows */

/*
 * append_end: end of the ranges that appends have reserved. It is separate from attr.size, so that
 * reserved bytes that were never written are not visible. parent, place: directory and cookie of
 * the name that the inode was last given (0: none yet). entries: of a directory. mode 0: no such
 * inode (in memory only). gen_used: the highest data generation that a conversion has begun to
 * write, if above that of the layout. acl, acl_default: store/acl.h. xattr_names: total length of
 * the names of attributes with their NULs; xattr_bytes: total length of their values. prepared:
 * mds/file/preallocated.h; unwritten: the part of it that blocks includes although nothing is
 * stored there yet.
 */
enum inode_rec_flags {
	INODE_TOMBS = 1, /* a directory that has or had tombstones */
	INODE_TRUNCATING = 2,   /* the file was truncated after the chains last reported its blocks,
				 * so fsck does not rely on them */
	INODE_LINKABLE = 4, /* created without a name; link may give it one */
};
#define inode_rec_FIELDS(F)                                                                        \
	F(attr, attr)                                                                              \
	F(u64, append_end)                                                                         \
	F(ino, parent) F(u64, entries) F(u32, n_xattrs) F(u32, flags) F(bytes, symlink) \
		F(u32, gen_used) F(bytes, acl) F(bytes, acl_default)                               \
		F(u32, xattr_names) F(u64, xattr_bytes)                                            \
		F(bytes, preallocated) F(u64, unwritten) F(u64, place)
WIRE_STRUCT(inode_rec)

/* ino 0: a tombstone. It only marks that higher collision indexes may be in use. */
enum dentry_rec_flags {
	DENTRY_MORE = 1 /* a higher collision index is or was in use */
};
#define dentry_rec_FIELDS(F) F(ino, ino) F(u8, type) F(u8, flags) F(bytes, name)
WIRE_STRUCT(dentry_rec)

/*
 * A change of many chunks in progress, which is finished after a crash. op, session, slot, seq: the
 * request that it completes (0: none); part: that request has more to do afterwards, so its reply
 * is not recorded with the end of the intent. mask and attr: what setattr changes with it.
 * prepares: the punched hole is preallocated afterwards. oss_slot: the slot that, with the number
 * of the record, identifies the change at object servers.
 */
enum intent_kind {
	INTENT_TRIM = 1,
	INTENT_PUNCH = 2,
	INTENT_CONVERT = 3, /* layout: that of the new chunks, which are removed after a crash */
};
#define intent_rec_FIELDS(F)                                                                       \
	F(u8, kind)                                                                                \
	F(ino, ino)                                                                                \
	F(layout, layout) F(u64, off) F(u64, len) F(u32, mask) F(attr, attr) F(u16, op)            \
		F(u64, session) F(u32, slot) F(u64, seq) F(u8, part) F(u64, extend)                \
		F(u8, prepares) F(u32, oss_slot)
WIRE_STRUCT(intent_rec)

/* A directory tree that is being converted: the number of copies that all files below it will
 * have. */
#define convert_rec_FIELDS(F) F(u32, replicas)
WIRE_STRUCT(convert_rec)

#define removal_rec_FIELDS(F) F(ino, ino) F(layout, layout)
WIRE_STRUCT(removal_rec)

/* The quota of a project (store/quota.h). root: its directory (0: removed, and the last inodes are
 * leaving). over: since when the soft limit has been exceeded (0: it is not). A limit of 0 means
 * none. */
#define quota_rec_FIELDS(F)                                                                        \
	F(ino, root)                                                                               \
	F(u64, bytes)                                                                              \
	F(u64, inodes) F(u64, bytes_soft) F(u64, bytes_hard) F(u64, inodes_soft)                   \
		F(u64, inodes_hard) F(i64, bytes_over_ns) F(i64, inodes_over_ns)
WIRE_STRUCT(quota_rec)

#define session_rec_FIELDS(F) F(uuid, client) F(bytes, name) F(u32, slots)
WIRE_STRUCT(session_rec)

/* op 0: the operation with that number is only partly done: the file with the id in reply has been
 * truncated. */
#define replay_rec_FIELDS(F) F(u64, seq) F(u16, op) F(i32, status) F(bytes, reply)
WIRE_STRUCT(replay_rec)

#define cluster_rec_FIELDS(F)                                                                      \
	F(u32, format) F(uuid, cluster) F(u64, dentry_seed) F(u64, incarnation) F(u32, map_epoch)
WIRE_STRUCT(cluster_rec)

/* next_project: the highest number used so far. unwritten: sum over all inodes. */
#define counters_rec_FIELDS(F)                                                                     \
	F(u64, next_ino) F(u64, next_session) F(u64, n_inodes) F(u32, next_project)                \
		F(u64, unwritten)
WIRE_STRUCT(counters_rec)

/* chain: its chain of class 1. down_ns: since when it has been away (0: it is not). */
#define target_rec_FIELDS(F) F(target_info, info) F(u64, commits) F(u32, chain) F(i64, down_ns) \
	F(u64, incarnation)
WIRE_STRUCT(target_rec)

/* Targets (packed u32 ids) that are being given up as lost; accept: enum lose_accept. */
#define give_up_rec_FIELDS(F) F(u8, accept) F(bytes, targets)
WIRE_STRUCT(give_up_rec)

#endif
