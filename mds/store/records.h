/*
 * What is on disk: the values behind the keys of keys.h, written once as field lists (wire.h).
 * Fields are only ever appended; missing ones read as zero.
 */
#ifndef LEAT_MDS_STORE_RECORDS_H
#define LEAT_MDS_STORE_RECORDS_H

#include "common/proto/types.h"

#define STORE_FORMAT 5u
#define DIR_BLOCKS   8u    /* what each directory counts, whatever it holds */
#define RECORD_MAX   8192u /* no encoded record but tables and replay rows is longer */

/*
 * append_end: how far appends have been reserved; apart from attr.size so that nobody reads
 * reserved bytes that were never written. parent, place: directory and cookie of the name that it
 * was given last (0: none yet). entries: of a directory. mode 0: no such inode (in memory only).
 * gen_used: highest data generation that a conversion has begun to write, if that is above the
 * layout's. acl, acl_default: store/acl.h. xattr_names: the lengths of all names of attributes with
 * their NULs; xattr_bytes: of their values. prepared: mds/prepared.h; unwritten: bytes of that
 * which blocks counts since nothing is stored there.
 */
enum inode_rec_flags {
	INODE_TOMBS = 1, /* a directory that has (had) tombstones */
	INODE_CUT = 2,   /* a file made shorter since the chains told its blocks: fsck does not take
			  * them at their word */
	INODE_LINKABLE = 4, /* made without a name, link may give it one */
};
#define inode_rec_FIELDS(F)                                                                        \
	F(attr, attr)                                                                              \
	F(u64, append_end)                                                                         \
	F(ino, parent) F(u64, entries) F(u32, n_xattrs) F(u32, flags) F(bytes, symlink) \
		F(u32, gen_used) F(bytes, acl) F(bytes, acl_default)                               \
		F(u32, xattr_names) F(u64, xattr_bytes)                                            \
		F(bytes, prepared) F(u64, unwritten) F(u64, place)
WIRE_STRUCT(inode_rec)

/* ino 0: a tombstone, which only tells that higher collision indexes may be in use. */
enum dentry_rec_flags {
	DENTRY_MORE = 1 /* a higher collision index is or was in use */
};
#define dentry_rec_FIELDS(F) F(ino, ino) F(u8, type) F(u8, flags) F(bytes, name)
WIRE_STRUCT(dentry_rec)

/*
 * A change of many chunks under way, finished after a crash. op, session, slot, seq: whose answer
 * it is (0: nobody's); part: who asked has more to do then, and is not answered yet. mask and attr:
 * what setattr changes with it. prepares: the hole is prepared then. oss_slot: with the record's
 * number, what the object servers know it by.
 */
enum intent_kind {
	INTENT_TRIM = 1,
	INTENT_PUNCH = 2,
	INTENT_CONVERT = 3, /* layout: what is being written; thrown away after a crash */
};
#define intent_rec_FIELDS(F)                                                                       \
	F(u8, kind)                                                                                \
	F(ino, ino)                                                                                \
	F(layout, layout) F(u64, off) F(u64, len) F(u32, mask) F(attr, attr) F(u16, op)            \
		F(u64, session) F(u32, slot) F(u64, seq) F(u8, part) F(u64, extend)                \
		F(u8, prepares) F(u32, oss_slot)
WIRE_STRUCT(intent_rec)

/* A tree that is being converted: what all files below it shall have. */
#define convert_rec_FIELDS(F) F(u32, replicas)
WIRE_STRUCT(convert_rec)

#define removal_rec_FIELDS(F) F(ino, ino) F(layout, layout)
WIRE_STRUCT(removal_rec)

/* Of a project (store/quota.h). root: its directory (0: removed, the last inodes are leaving).
 * over: since when the soft limit is exceeded (0: it is not). Limits of 0: none. */
#define quota_rec_FIELDS(F)                                                                        \
	F(ino, root)                                                                               \
	F(u64, bytes)                                                                              \
	F(u64, inodes) F(u64, bytes_soft) F(u64, bytes_hard) F(u64, inodes_soft)                   \
		F(u64, inodes_hard) F(i64, bytes_over_ns) F(i64, inodes_over_ns)
WIRE_STRUCT(quota_rec)

#define session_rec_FIELDS(F) F(uuid, client) F(bytes, name) F(u32, slots)
WIRE_STRUCT(session_rec)

/* op 0: the operation of that number is done in part only: the file whose id is in reply is cut. */
#define replay_rec_FIELDS(F) F(u64, seq) F(u16, op) F(i32, status) F(bytes, reply)
WIRE_STRUCT(replay_rec)

#define cluster_rec_FIELDS(F)                                                                      \
	F(u32, format) F(uuid, cluster) F(u64, dentry_seed) F(u64, incarnation) F(u32, map_epoch)
WIRE_STRUCT(cluster_rec)

/* next_project: the highest number given out. unwritten: of all inodes. */
#define counters_rec_FIELDS(F)                                                                     \
	F(u64, next_ino) F(u64, next_session) F(u64, n_inodes) F(u32, next_project)                \
		F(u64, unwritten)
WIRE_STRUCT(counters_rec)

/* chain: its chain of class 1. down_ns: since when it is away (0: it is not). */
#define target_rec_FIELDS(F) F(target_info, info) F(u64, commits) F(u32, chain) F(i64, down_ns) \
	F(u64, incarnation)
WIRE_STRUCT(target_rec)

#endif
