/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs that every part of Leat shares: inode numbers, chunk ids, layouts, attributes,
 * credentials, capabilities, entries of the cluster map.
 */
#ifndef LEAT_COMMON_PROTO_TYPES_H
#define LEAT_COMMON_PROTO_TYPES_H

#include "common/base/compress.h"
#include "common/proto/wire.h"

#define LEAT_NAME_MAX 255
#define LEAT_SYMLINK_MAX 4095
#define LEAT_XATTR_NAME_MAX 255
#define LEAT_XATTR_VALUE_MAX 65536
/* The limits of one inode: of the names as listxattr(2) returns them, and of the values
 * together. */
#define LEAT_XATTR_NAMES_MAX (65536u - 64u) /* 64 KiB with the names of the access lists */
#define LEAT_XATTR_TOTAL_MAX (4u << 20)
#define LEAT_LINK_MAX 4294967295u
#define LEAT_FILE_SIZE_MAX INT64_MAX
#define LEAT_CHUNK_SIZE_MIN (64u << 10)
#define LEAT_CHUNK_SIZE_MAX (64u << 20)
#define LEAT_CHUNK_SIZE_DEFAULT (1u << 20)
#define LEAT_BLOCK_SIZE_MIN (16u << 10)
#define LEAT_BLOCKS_PER_CHUNK_MAX 256u
#define LEAT_BLOCK_SIZE_MAX (LEAT_CHUNK_SIZE_MAX / LEAT_BLOCKS_PER_CHUNK_MAX)
#define LEAT_GROUPS_MAX 1024u

struct ino {
	uint64_t v;
};
#define WIRE_CTYPE_ino struct ino
WIRE_DECLARE_(ino, struct ino)

#define LEAT_ROOT_INO ((struct ino){ 1 })
static inline bool ino_equal(struct ino a, struct ino b)
{
	return a.v == b.v;
}

/* Returns the block size of a chunk: 16 KiB, or more where there would be more than 256 blocks. */
static inline uint32_t chunk_block_size(uint32_t chunk_size)
{
	uint32_t bs = chunk_size / LEAT_BLOCKS_PER_CHUNK_MAX;
	return bs < LEAT_BLOCK_SIZE_MIN ? LEAT_BLOCK_SIZE_MIN : bs;
}

/* Chunk idx of generation gen of an inode's data. Ordered by (ino, gen, idx). */
#define chunk_id_FIELDS(F) F(ino, ino) F(u32, gen) F(u64, idx)
#define WIRE_CTYPE_chunk_id struct chunk_id
WIRE_STRUCT(chunk_id)

/*
 * Where a file's data lies: on chains of the class `replicas` (the number of members that they are
 * to have). Version `table` of the chain table gives the number of chains of that class. Chunk i is
 * on the chain at position layout_chain_index(), counted in the order of their ids. In a directory:
 * the default for what is created in it. width 0 in a directory: as many chains as the table has,
 * at most placement_width_max.
 */
#define layout_FIELDS(F) \
	F(u32, table) F(u32, width) F(u32, seed) F(u32, chunk_size) F(u8, storage_class) F(u8, replicas) \
	F(u8, compression) F(u8, flags) F(u32, gen)
#define WIRE_CTYPE_layout struct layout
WIRE_STRUCT(layout)
enum {
	LAYOUT_F_INHERITED = 1, /* of a directory: inherited from its parent, not set on itself */
	/* In requests only: convert existing files to this number of copies too; stop that. */
	LAYOUT_F_CONVERT = 2,
	LAYOUT_F_STOP = 4,
};
/* How clients write the file's whole blocks. In mds_layout_set, where 0 keeps the old value,
 * COMPRESSION_OFF means no compression. */
enum layout_compression { COMPRESSION_NONE = 0, COMPRESSION_LZ4 = 1, COMPRESSION_OFF = 2 };

/* Returns the position of chunk idx among the n_chains of the layout's table: the stripe is `width`
 * consecutive chains from a start that the seed determines. */
static inline uint32_t layout_chain_index(const struct layout *l, uint32_t n_chains, uint64_t idx)
{
	return (uint32_t)((l->seed + idx % l->width) % n_chains);
}

/* change counts changes of all members but blocks, atime and flags of a reply. n_truncations counts
 * those that removed data: where data was there may be a hole, or the end of the file. chains_ns:
 * mtime includes what the chains have written up to this time (attr_chains_time). */
#define attr_FIELDS(F) \
	F(ino, ino) F(u32, mode) F(u32, nlink) F(u32, uid) F(u32, gid) F(u32, rdev) F(u32, flags) \
	F(u64, size) F(u64, blocks) F(i64, atime_ns) F(i64, mtime_ns) F(i64, ctime_ns) F(i64, btime_ns) \
	F(u64, change) F(layout, layout) F(u32, project) F(u32, n_truncations) \
	F(i64, chains_ns)
#define WIRE_CTYPE_attr struct attr
WIRE_STRUCT(attr)
enum attr_flags {
	ATTR_UNSETTLED = 1, /* has writers: the chains have size, mtime and blocks */
	ATTR_SEALED = 2,    /* immutable for ever: may be cached without limit */
	ATTR_PLAIN = 4,     /* has no extended attributes and no access lists */
	ATTR_FILE_CAPS = 8, /* has security.capability, which a write or chown removes */
	/* chattr(1): no change; only appends, or in a directory only new names; reads do not set
	 * the access time; dump(8) skips the file. */
	ATTR_IMMUTABLE = 16,
	ATTR_APPEND = 32,
	ATTR_NOATIME = 64,
	ATTR_NODUMP = 128,
	/* fallocate has preallocated ranges; blocks includes their unwritten parts. While the file
	 * has writers, mds_getattr returns the ranges (`prepared`). */
	ATTR_PREPARED = 1 << 17,
	/* In a reply, never in a record: the session has a lease on the inode with these
	 * attributes; */
	ATTR_LEASED = 1 << 30,
	/* a shared lease: it has the file open, others may write, and the chains have newer size,
	 * blocks, mtime and data; */
	ATTR_SHARED = 1 << 29,
	/* the file is being truncated: some of its bytes may be missing on the chains. */
	ATTR_TRUNCATING = 1 << 28,
};
/* Returns whether mtime_ns, the newest write that the chains or their writers report, is the file's
 * mtime: it is later than all that a->mtime_ns includes. Both are times of the chains' clocks, so
 * the order of a write and a utimes in quick succession is kept. */
static inline bool attr_chains_time(const struct attr *a, int64_t mtime_ns)
{
	return mtime_ns > a->chains_ns;
}
/* Sets the file's times to the time of that write. */
static inline void attr_take_written(struct attr *a, int64_t mtime_ns)
{
	a->mtime_ns = a->chains_ns = mtime_ns;
	if (a->ctime_ns < mtime_ns)
		a->ctime_ns = mtime_ns;
}
/* Returns whether a read now sets the access time, by the rules of relatime. */
static inline bool attr_atime_due(const struct attr *a, int64_t now_ns)
{
	return a->atime_ns <= a->mtime_ns || a->atime_ns <= a->ctime_ns ||
	       now_ns - a->atime_ns >= 86400 * 1000000000ll;
}
/* The flags that SET_FLAGS sets, all together. */
#define ATTR_SETTABLE (ATTR_IMMUTABLE | ATTR_APPEND | ATTR_NOATIME | ATTR_NODUMP)

/* Which members of attr a setattr changes. */
enum attr_mask {
	SET_MODE = 1,
	SET_UID = 2,
	SET_GID = 4,
	SET_SIZE = 8,
	SET_ATIME = 16,
	SET_MTIME = 32,
	SET_ATIME_NOW = 64,
	SET_MTIME_NOW = 128,
	SET_CTIME = 256,
	SET_SEALED = 512,
	SET_KILL_SUID = 1024, /* a write: clear S_ISUID, and S_ISGID with group execution */
	SET_KILL_CAPS = 2048, /* a write, by any user: removes security.capability */
	SET_FLAGS = 4096,     /* ATTR_SETTABLE */
	SET_PROJECT = 8192,   /* the quota that it counts to; by root only */
};

/* The user of a request. groups: packed little-endian u32, at most LEAT_GROUPS_MAX. */
#define cred_FIELDS(F) F(u32, uid) F(u32, gid) F(u32, flags) F(bytes, groups) F(u32, umask)
#define WIRE_CTYPE_cred struct cred
WIRE_STRUCT(cred)
enum cred_flags {
	CRED_CHECKED = 1, /* the kernel of a trusted mount has checked permissions already */
};

/* What clients of a network may do. The network is encoded as in common/base/network.h. */
#define export_row_FIELDS(F) \
	F(u64, net_hi) F(u64, net_lo) F(u8, bits) F(u32, flags) F(u32, anon_uid) F(u32, anon_gid)
#define WIRE_CTYPE_export_row struct export_row
WIRE_STRUCT(export_row)
enum export_flags {
	EXPORT_READ_ONLY = 1,
	EXPORT_SQUASH_ROOT = 2, /* root and its group are anon_uid, anon_gid */
	EXPORT_SQUASH_ALL = 4,  /* all users are */
};
#define EXPORT_FLAGS (EXPORT_READ_ONLY | EXPORT_SQUASH_ROOT | EXPORT_SQUASH_ALL)

/* A right to one inode's data, signed by the MDS, verified by object servers (rpc/cap.h). */
#define cap_FIELDS(F) \
	F(ino, ino) \
	F(u32, gen) F(u32, rights) F(u32, epoch) F(u64, session) F(i64, expiry_s) F(u64, mac_lo) \
		F(u64, mac_hi)
#define WIRE_CTYPE_cap struct cap
WIRE_STRUCT(cap)
enum cap_rights { CAP_READ = 1, CAP_WRITE = 2 };

/* ---- locks of fcntl(2) and flock(2) ---- */
/* On the bytes first to last (inclusive). owner: the number that the mount's kernel uses. */
#define file_lock_FIELDS(F) \
	F(u64, owner) F(u64, first) F(u64, last) F(u32, pid) F(u8, kind) F(u8, type)
#define WIRE_CTYPE_file_lock struct file_lock
WIRE_STRUCT(file_lock)
enum file_lock_kind { FILE_LOCK_POSIX = 0, FILE_LOCK_FLOCK = 1 };
enum file_lock_type { FILE_LOCK_READ = 0, FILE_LOCK_WRITE = 1, FILE_LOCK_NONE = 2 };

/* ---- cluster map ---- */
#define LEAT_REPLICAS_MAX 3u
/* More than the class only while a member is being replaced. */
#define CHAIN_MEMBERS_MAX 8u

enum target_state { TARGET_NEW, TARGET_UP, TARGET_DOWN };
enum target_flags {
	TARGET_DRAINING = 1, /* its members are being moved away; it gets no new ones */
	TARGET_REMOVED = 2,  /* no longer part of the cluster; its number is not used again */
	TARGET_BAD = 4,      /* it cannot trust its store: what it held is lost */
	TARGET_GIVEN_UP = 8, /* removed as lost: no chain waits for what it held */
};
/* host, rack: failure domains. */
#define target_info_FIELDS(F) \
	F(u32, id) F(u32, state) F(uuid, uuid) F(bytes, addrs) F(u32, loop) F(u64, capacity) F(u64, used) \
	F(u64, free) F(bytes, host) F(u32, epoch) F(u32, flags) F(bytes, rack)
#define WIRE_CTYPE_target_info struct target_info
WIRE_STRUCT(target_info)

enum member_state {
	MEMBER_OUT = 0,     /* absent: gets no versions */
	MEMBER_SYNCING = 1, /* gets all new versions, and is being filled */
	MEMBER_SYNC = 2,    /* holds everything that was ever acknowledged */
};
/* members: packed u32 target ids; states: packed u8 (enum member_state), one for each. SYNC members
 * come first: the first member is the head, the last SYNC one the tail. replicas: the class. lead:
 * the target that is to be the head when all its members are SYNC. flags: enum chain_flags. */
enum chain_flags {
	/* Its last complete members were given up, with data of files on them. No target serves it.
	 * Its members, all OUT, are those that were complete. */
	CHAIN_LOST = 1,
	/* Of a lost chain: a truncation or punch that had begun was not executed there, so its
	 * members hold bytes that no file has. */
	CHAIN_UNCUT = 2,
};
#define chain_info_FIELDS(F) \
	F(u32, id) F(u32, epoch) F(bytes, members) F(bytes, states) F(u32, replicas) \
	F(u32, lead) F(u32, flags)
#define WIRE_CTYPE_chain_info struct chain_info
WIRE_STRUCT(chain_info)

/* members and states as an array, checked: sizes agree, at most CHAIN_MEMBERS_MAX, SYNC members
 * first, no target twice. */
struct chain_member {
	uint32_t target;
	enum member_state state;
};
/* Decodes info's members. Returns their number, or -LE_BAD_MESSAGE. */
int chain_members_get(const struct chain_info *info,
		      struct chain_member ret_m[CHAIN_MEMBERS_MAX]) CHECK_RESULT;
/* Encodes members into buf. info's bytes point into buf. */
#define CHAIN_MEMBERS_BUF (5u * CHAIN_MEMBERS_MAX)
void chain_members_put(const struct chain_member *m, uint32_t n, uint8_t buf[CHAIN_MEMBERS_BUF],
		       struct chain_info *info);

/* The first n chains of the class, by id. Version numbers start at 1. A version never changes. */
#define table_info_FIELDS(F) F(u32, version) F(u32, replicas) F(u32, n)
#define WIRE_CTYPE_table_info struct table_info
WIRE_STRUCT(table_info)

/* One directory entry of a readdir reply. The whole attr only with READDIR_PLUS, else attr.ino and
 * the type bits of attr.mode. */
#define dirent_wire_FIELDS(F) F(u64, cookie) F(bytes, name) F(attr, attr)
#define WIRE_CTYPE_dirent_wire struct dirent_wire
WIRE_STRUCT(dirent_wire)

/*
 * One block or part of a block in a data request or reply: plain bytes [off, off + len) of the
 * chunk. PIECE_LZ4: a whole block that compress_block (common/base/compress.h) has packed into
 * stored_len bytes. The bulk has the pieces one after the other, each with piece_space bytes.
 */
enum piece_flags { PIECE_HOLE = 1, PIECE_FRAGMENT = 2, PIECE_LZ4 = 4 };
struct piece {
	uint32_t off, len;
	uint32_t stored_len;
	uint32_t flags;
	uint64_t sum;	     /* xxh3 of the plain bytes; 0 for holes */
	/* with PIECE_LZ4: of the stored bytes; with PIECE_FRAGMENT in a reply: of the plain bytes
	 * of the whole block; else 0 */
	uint64_t stored_sum;
};
#define PIECE_WIRE_SIZE 32u
/* A piece is packed in `bytes` fields, PIECE_WIRE_SIZE each. */
void piece_encode(const struct piece *p, uint8_t out[PIECE_WIRE_SIZE]);
void piece_decode(const uint8_t in[PIECE_WIRE_SIZE], struct piece *ret_piece);
/* Returns the number of a piece's bytes in the bulk: packed ones are padded to whole units. For
 * pieces from outside call piece_packed_check first. */
static inline uint32_t piece_space(const struct piece *p)
{
	return p->flags & PIECE_LZ4 ? compress_space(p->stored_len) : p->len;
}
/* Returns whether a piece with PIECE_LZ4 is a whole block that packing has made smaller by at least
 * a unit. */
static inline bool piece_packed_check(const struct piece *p, uint32_t block_size)
{
	return p->flags == PIECE_LZ4 && p->len == block_size && p->off % block_size == 0 &&
	       p->stored_len > 0 && p->stored_len <= block_size - COMPRESS_UNIT;
}

/* Flag of mds_status and oss_status: include what the process's memory is used for. */
#define STATUS_MEMORY 1u

#endif
