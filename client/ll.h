/*
 * The low-level interface of the client: inode-based, fiber-blocking. fuse/ sits on it, libleat's
 * public calls sit on it, and the simulator drives it. Everything here runs in fibers of the
 * loop that made the client, which owns all of its state.
 *
 * Errors are negative statuses; every call ends within the client's request deadline
 * (params.request_timeout_ms, retries and reconnects included) or when the fiber is interrupted
 * (-LE_INTR). Time-outs become -LE_IO for applications (status_errno does not know that;
 * ll does it here).
 */
#ifndef LEAT_CLIENT_LL_H
#define LEAT_CLIENT_LL_H

#include "client/params.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/slot.h"

struct client;
struct ll_file;

/* The most that one ll_read or ll_write moves. */
#define LL_IO_MAX (1u << 20)
/* Size of the slots of ll_slots(): LL_IO_MAX bytes and a page in front or behind. */
#define LL_SLOT_SIZE (LL_IO_MAX + 4096u)

/*
 * What a process that goes on in the place of another one needs to know, in memory that outlives
 * both, zeroed at first: client/kept.h. Its layout is a matter between releases; the caller sees to
 * it that both know the same.
 */
#define LL_KEPT_CALLS 128
#define LL_KEPT_MARKS 4096
enum ll_kept_state {
	KEPT_CLEAN,
	KEPT_WRITTEN, /* programs were told that it is written; servers may not have it */
	KEPT_SHOWN,   /* servers have it, not all of it durable yet */
	KEPT_LOST,    /* some of it has failed, which not everybody has heard */
};
struct ll_kept {
	struct uuid id;
	uint64_t session, incarnation; /* 0: none yet */
	uint32_t generation;           /* counts the processes */
	/* By slot of the session: the change that was made for a request of the kernel. */
	struct ll_kept_call {
		uint64_t unique, seq; /* unique 0: none */
		uint32_t generation;
		uint16_t op;
	} calls[LL_KEPT_CALLS];
	struct ll_kept_mark {
		uint64_t ino;
		uint32_t state;
	} marks[LL_KEPT_MARKS];
};

struct client_options {
	struct transport *transport;
	struct rpc_key key;
	const char *mds_addrs;
	/* Of this node or mount, for the servers' logs; NULL: host name and pid. */
	const char *name;
	/* Targets of this host or failure domain are near; NULL: host name. */
	const char *host;
	struct client_params params;
	/* Kernel caches to drop (fuse): attributes, with data the pages too. Returns when it is
	 * done; called from a fiber, yields only with data. May be NULL. */
	void (*invalidate)(void *arg, struct ino ino, bool data);
	/* Another client has given an inode that is open here to another owner or group, by which
	 * the kernel judges: returns when it knows, or cannot be told; -LE_NOT_READY: the next
	 * process is to be asked. Yields. May be NULL. */
	int (*owner_changed)(void *arg, struct ino ino);
	void *arg;
	/* What ll_read and ll_pread do to a file's access time, once it is closed. */
	enum ll_atime {
		LL_ATIME_NONE,
		LL_ATIME_RELATIVE, /* changes it if it is not newer than the last change, or a day
				    * old */
		LL_ATIME_STRICT,
	} atime;
	/* NULL: nothing outlives the process. Called before the session is taken up again:
	 * ll_resume_file for everything that was open. */
	struct ll_kept *kept;
	int (*resume)(void *arg, struct client *c);
};

/* While a fiber serves a request of the kernel, which it numbers: a change that is made for it gets
 * the same answer if it comes again to a later process. Ended when the kernel has its answer. */
struct ll_request {
	struct client *c;
	struct list link; /* of a client with memory that outlives it (kept) */
	uint64_t unique;
	int slot;
	bool repeats; /* its slot has a number that a former process gave to the change */
	struct fiber *waiting; /* while it asks for a change that may be withdrawn; else NULL */
	bool withdrawn;
	bool changed; /* something */
};
void ll_request_begin(struct ll_request *r, struct client *c, uint64_t unique);
void ll_request_end(struct ll_request *r);
/* Whoever made it is gone. Of names and attributes what has not been changed for it yet is not
 * changed any more: -LE_INTR. From another fiber. */
void ll_request_withdraw(struct ll_request *r);
/* The number of the running fiber's; 0: it has none. */
uint64_t ll_request_unique(void);
/* Of what a former process has read nothing is shown any more: its leases of chunks end. */
void ll_former_pages_gone(struct client *c);
/* A file that a former process had open; from the resume call only. */
int ll_resume_file(struct client *c, struct ino ino, const struct cred *cred, uint32_t flags,
		   struct ll_file **ret_file) CHECK_RESULT;
/* Locks of that owner were taken by this file. */
void ll_resume_owner(struct ll_file *f, uint64_t owner);
/* Waits until everything that was written is durable, or has failed, and every close has been told:
 * -LE_TIMEDOUT. Nothing may be written meanwhile. Yields, but not when it returns 0 at last. */
int ll_drain(struct client *c, uint64_t deadline_us) CHECK_RESULT;

/* On the current loop, in a fiber: connects, opens a session, gets the map. Fails after
 * params.mount_timeout_ms. */
int client_create(const struct client_options *opts, struct client **ret_client) CHECK_RESULT;
/* Flushes, closes the session. All files must have been released. Yields. */
void client_destroy(struct client *c);

/* The metadata server judges users' rights itself: no CRED_CHECKED, and all their groups. */
bool ll_judged(const struct client *c);

/* ---- names. cred is borrowed; ret_attr may be NULL ---- */
int ll_lookup(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct attr *ret_attr) CHECK_RESULT;
/* Settled: for files with writers the size, mtime and blocks come from this client's own open file,
 * else from the chains. ATTR_LEASED in flags: it holds until the client says that it does not. Of a
 * directory that was removed: what was known of it last, without links; -LE_STALE if nothing was.
 */
int ll_getattr(struct client *c, const struct cred *cred, struct ino ino,
	       struct attr *ret_attr) CHECK_RESULT;
/* Mode, owner and flags alone are right, which saves asking the chains. */
int ll_getattr_rights(struct client *c, const struct cred *cred, struct ino ino,
		      struct attr *ret_attr) CHECK_RESULT;
/* What is known of the inode is kept until ll_unhold: a directory that is removed meanwhile still
 * has its attributes, without links. False: no memory, and nothing to give back. */
bool ll_hold(struct client *c, struct ino ino);
void ll_unhold(struct client *c, struct ino ino);
/* file: an open one to which this belongs (ftruncate), or NULL. Flushes dirty data first where the
 * size changes. */
/* For how long the kernel may cache such attributes; that the name in the directory is that inode,
 * or, of 0, that there is none; and the data of a file, until the invalidate call. 0, false: not at
 * all. */
uint64_t ll_attr_us(struct client *c, const struct attr *attr);
uint64_t ll_name_us(struct client *c, struct ino dir, struct bytes name, struct ino ino);
bool ll_leased(struct client *c, struct ino ino);
int ll_setattr(struct client *c, const struct cred *cred, struct ino ino, struct ll_file *file,
	       uint32_t mask, const struct attr *attr, struct attr *ret_attr) CHECK_RESULT;
int ll_mknod(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, uint32_t rdev, struct attr *ret_attr) CHECK_RESULT;
int ll_mkdir(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, struct attr *ret_attr) CHECK_RESULT;
int ll_symlink(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	       struct bytes target, struct attr *ret_attr) CHECK_RESULT;
/* buf of at least LEAT_SYMLINK_MAX + 1; NUL-terminated. */
int ll_readlink(struct client *c, const struct cred *cred, struct ino ino, char *buf,
		size_t size) CHECK_RESULT;
int ll_link(struct client *c, const struct cred *cred, struct ino ino, struct ino parent,
	    struct bytes name, struct attr *ret_attr) CHECK_RESULT;
int ll_unlink(struct client *c, const struct cred *cred, struct ino parent,
	      struct bytes name) CHECK_RESULT;
int ll_rmdir(struct client *c, const struct cred *cred, struct ino parent,
	     struct bytes name) CHECK_RESULT;
/* Flushes the moved file's dirty data first. flags: RENAME_EXCHANGE, or RENAME_NOREPLACE and
 * RENAME_WHITEOUT. */
int ll_rename(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct ino new_parent, struct bytes new_name, uint32_t flags) CHECK_RESULT;
int ll_access(struct client *c, const struct cred *cred, struct ino ino,
	      uint32_t mask) CHECK_RESULT;

struct ll_dirent {
	uint64_t cookie; /* pass it to go on behind this entry */
	struct bytes name;
	struct attr attr; /* plus: everything (settled where cheap; flags say ATTR_UNSETTLED
			     otherwise), else ino and type in mode */
};
/* Entries behind cookie (0: start, without . and ..). each() must not yield; non-zero (> 0) ends
 * it. Returns 0, ret_eof tells whether the directory has ended. Fetches at least one batch when
 * there is more. */
int ll_readdir(struct client *c, const struct cred *cred, struct ino ino, uint64_t cookie,
	       bool plus, int (*each)(void *arg, const struct ll_dirent *e), void *arg,
	       bool *ret_eof) CHECK_RESULT;

/* Of an entry that ll_readdir gave: is it known to be so still? With its attributes as of now. */
bool ll_still_listed(struct client *c, struct ino dir, struct bytes name, struct attr *attr);

/* The caller, who was given the names of that directory alone, looks at one: the first time its
 * entries are fetched with attributes behind his back, as long as he goes on looking. */
void ll_look_ahead(struct client *c, const struct cred *cred, struct ino dir, bool first);

/* flags of ll_setxattr: XATTR_CREATE, XATTR_REPLACE, and XATTR_KILL_SGID
 * (common/proto/mds_proto.h). value buffer size 0: only the size. Returns the length, or a negative
 * status (-LE_RANGE). A directory that was removed, and of which something is known, has none. */
int64_t ll_getxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		    void *buf, size_t size) CHECK_RESULT;
int64_t ll_listxattr(struct client *c, const struct cred *cred, struct ino ino, void *buf,
		     size_t size) CHECK_RESULT;
int ll_setxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		struct bytes value, uint32_t flags) CHECK_RESULT;
int ll_removexattr(struct client *c, const struct cred *cred, struct ino ino,
		   struct bytes name) CHECK_RESULT;
struct ll_statfs {
	uint64_t total, free, avail, inodes, inodes_free;
};
/* Of the place where ino is: what its quota leaves, if it has one. */
int ll_statfs(struct client *c, struct ino ino, struct ll_statfs *ret_st) CHECK_RESULT;
/* Quotas of directory trees, as in mds_proto.h. */
struct mds_quota_set_req;
struct mds_quota_get_rep;
int ll_quota_set(struct client *c, const struct mds_quota_set_req *req, struct attr *ret_attr,
		 bool *ret_made) CHECK_RESULT;
int ll_quota_get(struct client *c, struct ino ino, struct mds_quota_get_rep *ret_q) CHECK_RESULT;
int ll_layout_set(struct client *c, const struct cred *cred, struct ino ino,
		  const struct layout *layout, struct attr *ret_attr) CHECK_RESULT;

/* ---- files ---- */
/* flags of open(2): O_ACCMODE, O_TRUNC, O_APPEND, O_DIRECT, O_SYNC, O_DSYNC; and LL_FOUND: the
 * caller has looked the name up for this open, so what a rename has replaced since then is opened
 * all the same, where -LE_STALE would be the answer. ret_changed: data cached by the kernel from an
 * earlier open of this client must be dropped (the change counter moved). */
enum ll_open_flags {
	LL_FOUND = 1 << 30
};
int ll_open(struct client *c, const struct cred *cred, struct ino ino, uint32_t flags,
	    struct ll_file **ret_file, struct attr *ret_attr, bool *ret_changed) CHECK_RESULT;
/* Just opened, with nothing of it cached that could be used: who has it will most likely read it.
 * Prefetches small files while most of them are read. Does not yield. */
void ll_expect_read(struct ll_file *f);
int ll_create(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      uint32_t mode, uint32_t flags, struct ll_file **ret_file,
	      struct attr *ret_attr) CHECK_RESULT;
/* O_TMPFILE: no name; ll_link gives it one unless flags have O_EXCL. */
int ll_tmpfile(struct client *c, const struct cred *cred, struct ino parent, uint32_t mode,
	       uint32_t flags, struct ll_file **ret_file, struct attr *ret_attr) CHECK_RESULT;
/* close(2) of one descriptor: all dirty data of the file is with the servers and seen by every
 * client, though not durable yet; reports a write-behind error once. */
int ll_flush(struct ll_file *f) CHECK_RESULT;
/* The same, and durable. */
int ll_fsync(struct ll_file *f, bool data_only) CHECK_RESULT;
/* The last reference: tells the MDS without waiting for it. Never fails. */
void ll_release(struct ll_file *f);
struct ino ll_file_ino(const struct ll_file *f);
/* Data in slots, in order: the reader's view, without a copy. */
#define LL_VECS_MAX 40u
struct ll_data {
	struct slot_vec vec[LL_VECS_MAX];
	uint32_t n;
	uint64_t len; /* short at the end of the file */
};
/* At most LL_IO_MAX per call. Verified. Holes come as slots of zeros. */
int ll_read(struct ll_file *f, uint64_t off, uint32_t len, struct ll_data *ret_data) CHECK_RESULT;
void ll_data_release(struct ll_data *d);
/* The same for who shows what was read again without asking, though nobody promises that it stays
 * (ll_leased): until the leases are given back, which has to be within a moment, no other client's
 * write that this has not seen ends. ret_leases: NULL when it fails. */
struct ll_chunk_leases;
int ll_read_leased(struct ll_file *f, uint64_t off, uint32_t len, struct ll_data *ret_data,
		   struct ll_chunk_leases **ret_leases) CHECK_RESULT;
/* Behind the caller's back; outside of fibers, too. */
void ll_release_leases(struct ll_chunk_leases *l);
/* It is open with O_DIRECT, and has been read without by this mount since somebody has it open: its
 * writes are not the only ones to know of pages. */
bool ll_past_pages(const struct ll_file *f);
/* For callers with memory of their own: any length; copies out. Returns bytes read. */
int64_t ll_pread(struct ll_file *f, void *buf, uint64_t len, uint64_t off) CHECK_RESULT;

/* Many reads at once, of one file or several: small ones that the same server answers go in one
 * request. done: as ll_pread returns it. sums: what is known of the blocks' checksums, noted of
 * what was read; NULL: not wanted. */
struct block_sums;
struct ll_part {
	struct ll_file *file;
	void *buf;
	uint64_t off;
	uint32_t len;
	int64_t done;
	struct block_sums *sums;
};
void ll_pread_many(struct client *c, struct ll_part *parts, uint32_t n);

/* Data that lies in slots (the caller's references are kept by it, the client takes its own while
 * it needs them; the bytes must not change until then, that is until slot refs fall back). With
 * O_APPEND off is ignored. Returns len: accepted (written behind against a space grant; errors come
 * at flush), with O_SYNC, O_DSYNC, O_DIRECT or without grant: durable. */
int64_t ll_write(struct ll_file *f, uint64_t off, const struct slot_vec *vec,
		 uint32_t n) CHECK_RESULT;
/* Whether they go to the end, of a file that was opened with O_APPEND: fcntl(F_SETFL) changes that.
 */
void ll_set_append(struct ll_file *file, bool append);
/* The same of what a program has changed in a mapping: at off, also with O_APPEND, and accepted
 * also while others show what was there before; ll_fsync and ll_flush wait until they do not. */
int64_t ll_write_pages(struct ll_file *f, uint64_t off, const struct slot_vec *vec,
		       uint32_t n) CHECK_RESULT;
/* Both copy from memory first. Any length. */
int64_t ll_pwrite(struct ll_file *f, const void *buf, uint64_t len, uint64_t off) CHECK_RESULT;
int64_t ll_pwrite_pages(struct ll_file *f, const void *buf, uint64_t len,
			uint64_t off) CHECK_RESULT;
int ll_fallocate(struct ll_file *f, uint32_t mode, uint64_t off, uint64_t len) CHECK_RESULT;
/* As copy_file_range(2), by the servers among themselves: how much, at least one byte. -LE_NOTSUP:
 * this cannot be done so (chunks must fit, nobody else may write, the target must end before). */
int64_t ll_copy(struct ll_file *f, uint64_t off, struct ll_file *to, uint64_t to_off,
		uint64_t len) CHECK_RESULT;
/* whence SEEK_DATA or SEEK_HOLE: the offset, or -LE_NXIO. */
int64_t ll_seek(struct ll_file *f, uint64_t off, int whence) CHECK_RESULT;

/*
 * Locks of fcntl(2) and flock(2), among all mounts. type NONE gives back; that cannot fail but for
 * want of memory, or with -LE_NOLCK where it would make two of one and there are too many. wait:
 * until it is free, however long that takes; -LE_INTR. Else -LE_LOCKED; -LE_DEADLK, -LE_NOLCK. What
 * was cached of the file's data is forgotten (the kernel's pages are the caller's to drop), and
 * what was written before a lock is given back is seen by all. Closing the file does not give back
 * what other open files of the same owner took. Yields.
 */
int ll_lock(struct ll_file *f, const struct file_lock *want, bool wait) CHECK_RESULT;
/* Gives back what was taken by this open file and is still there (OFD locks). ll_release does that
 * too. Yields. */
void ll_unlock_all(struct ll_file *f);
/* A lock that is in the way of this one, or type NONE. */
int ll_lock_test(struct ll_file *f, const struct file_lock *want,
		 struct file_lock *ret_lock) CHECK_RESULT;

/* Slots for writers (fuse reads requests into them). */
struct slot_pool *ll_slots(struct client *c);

/* A snapshot for `leat status`, metrics and tests. */
struct ll_stats {
	uint64_t session;
	uint32_t map_epoch, n_targets, n_targets_up;
	uint64_t read_bytes, written_bytes, read_ops, write_ops, meta_ops, retries, checksum_errors;
	/* reads that were asked of a second member too, those that it won, and requests given to
	 * another member because one failed */
	uint64_t hedges, hedges_won, failovers;
	uint64_t many_ops; /* requests for many reads at once */
	uint64_t late_writes; /* lost with an object server, and not repeated in time */
	uint64_t delegated_opens; /* for reading, under a lease: nobody was asked */
	uint64_t dirty_bytes, grant_bytes;
	uint32_t slots_total, slots_free, n_inodes, n_open;
};
void ll_stats(struct client *c, struct ll_stats *ret_stats);
/* Which cluster this is. */
struct uuid ll_cluster(const struct client *c);

/* The connections of this client, added to a report. The same as JSON (common/rpc/net_report.h)
 * from number `from` on, into buf of at least 1024 bytes: its length. And what all of them carried,
 * added to totals. */
struct net_report;
struct rpc_net_totals;
void ll_net_add(struct client *c, struct net_report *r);
size_t ll_net(struct client *c, uint32_t from, char *buf, size_t size);
void ll_net_totals(struct client *c, struct rpc_net_totals *totals);

/* The plain checksums of a file's blocks, imported without reading data (for manifests): each(off,
 * len, sum, hole) in file order; must not yield. */
int ll_sums(struct ll_file *f,
	    int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
	    void *arg) CHECK_RESULT;

#endif
