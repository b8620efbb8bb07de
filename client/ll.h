/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The low-level interface of the client: calls on inodes and open files that block a fiber. The
 * mount (fuse/), libleat's public calls and the simulator use it. Call it in fibers of the loop
 * that created the client, unless the comment says otherwise. That loop owns the client's state.
 *
 * Calls return 0 or more, or a negative status. A call ends within the client's request deadline
 * (params.request_timeout_ms), which includes retries and reconnects; a time-out is -LE_IO. It
 * returns -LE_INTR when the fiber is interrupted. Calls yield, unless the comment says otherwise.
 */
#ifndef LEAT_CLIENT_LL_H
#define LEAT_CLIENT_LL_H

#include "client/params.h"
#include "common/base/memory.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/slot.h"

struct client;
struct ll_file;

/* The maximum length of one ll_read or ll_write, in bytes. */
#define LL_IO_MAX (1u << 20)
/* Size of the slots of ll_slots(): LL_IO_MAX bytes and one page before or after them. */
#define LL_SLOT_SIZE (LL_IO_MAX + 4096u)

#define LL_RESTART_CALLS 128
#define LL_RESTART_MARKS 4096
/* The state of a marked file's data. */
enum ll_restart_mark_state {
	MARK_CLEAN,
	MARK_WRITTEN, /* acknowledged to programs, but perhaps not accepted by the servers */
	MARK_VISIBLE, /* accepted by the servers, but not all of it durable */
	MARK_LOST,    /* some of it lost, which not every open file has reported yet */
};
/*
 * Restart memory: the state that the next process needs to take over from this one. It outlives
 * both processes, and is zeroed at first (client/servers/restart_log.h). Each release may have
 * another layout; the caller checks that both processes use the same one.
 */
struct ll_restart_state {
	struct uuid id;
	uint64_t session, incarnation; /* 0: none yet */
	uint32_t generation;           /* counts processes */
	/* For each request slot of the session: the kernel request that holds it for a change. */
	struct ll_restart_call {
		uint64_t unique, seq; /* unique 0: none */
		uint32_t generation;
		uint16_t op;
	} calls[LL_RESTART_CALLS];
	struct ll_restart_mark {
		uint64_t ino;
		uint32_t state;
	} marks[LL_RESTART_MARKS];
};

struct client_options {
	struct transport *transport;
	struct rpc_key key;
	const char *mds_addrs;
	/* Name of this node or mount in the servers' logs. NULL: host name and pid. */
	const char *name;
	/* Targets that report this host (failure domain) are near. NULL: host name. */
	const char *host;
	struct client_params params;
	/* Drops what the kernel caches of an inode: the attributes, and with `data` the pages.
	 * Returns when that is done. Called in a fiber; may yield only with `data`. May be NULL. */
	void (*invalidate)(void *arg, struct ino ino, bool data);
	/* Notifies the kernel that another client has changed the owner or group of an inode that
	 * is open here. (The kernel checks access by them.) Returns 0 when the kernel has been
	 * notified or cannot be notified; -LE_NOT_READY if the MDS must notify the next process
	 * instead. Yields. May be NULL. */
	int (*owner_changed)(void *arg, struct ino ino);
	void *arg;
	/* How ll_read and ll_pread change a file's access time. It is sent with the close. */
	enum ll_atime {
		LL_ATIME_NONE,
		LL_ATIME_RELATIVE, /* Updates the access time if it is older than the last change,
				    * or a day old (relatime). */
		LL_ATIME_STRICT,
	} atime;
	/* Log when the metadata server becomes unreachable, and when it is reachable again: for a
	 * client without a user who would notice. */
	bool reports_unreachable;
	/* Restart memory. NULL: nothing outlives the process. */
	struct ll_restart_state *restart;
	/* Called before the session is resumed. Calls ll_resume_file for each file that was open.
	 * Returns 0 or a status, with which client_create fails. May be NULL. */
	int (*resume)(void *arg, struct client *c);
};

/* A kernel request that the running fiber serves. A change that is made for it is executed once,
 * even if the kernel repeats the request at the next process. The caller owns the struct, from
 * ll_request_begin until the kernel has its reply. */
struct ll_request {
	struct client *c;
	struct list link;      /* in client.requests, with restart memory */
	uint64_t unique;       /* the kernel's number of the request */
	int slot;              /* the request slot of its change; negative: none */
	bool repeats;          /* Slot and sequence are those of the previous process's change. */
	struct fiber *waiting; /* the fiber, while its change can be cancelled; else NULL */
	bool cancelled;        /* A cancellation was requested. */
	bool changed;          /* The request has changed something. */
};
/* Attaches the request to the running fiber. Does not yield. */
void ll_request_begin(struct ll_request *r, struct client *c, uint64_t unique);
/* Detaches the request. Does not yield. */
void ll_request_end(struct ll_request *r);
/* Call from another fiber when the program that waits for the request was killed. Cancels the
 * request's change of names or attributes, in flight or still to come, so that its call returns
 * -LE_INTR. Has no effect on a change that a server has started, nor after a first change. Does not
 * yield. */
void ll_request_cancel(struct ll_request *r);
/* Returns the kernel's number of the running fiber's request, or 0 if there is none. Does not
 * yield. */
uint64_t ll_request_unique(void);
/* Call when the kernel no longer holds any page that the previous process has read. Ends the chunk
 * leases of that process. Does not yield. */
void ll_previous_pages_gone(struct client *c);
/* Opens a file that the previous process had open, without a request. Call it only from
 * client_options.resume. Does not yield. */
int ll_resume_file(struct client *c, struct ino ino, const struct cred *cred, uint32_t flags,
		   struct ll_file **ret_file) CHECK_RESULT;
/* Records that the owner has taken its locks through this open file. Does not yield. */
void ll_resume_owner(struct ll_file *f, uint64_t owner);
/* Waits until all written data is durable or has failed, and every close has been sent. Returns 0;
 * -LE_TIMEDOUT at deadline_us. The caller must not write meanwhile. Does not yield between the last
 * check and the return of 0. */
int ll_drain(struct client *c, uint64_t deadline_us) CHECK_RESULT;

/* Creates a client on the current loop: connects, opens a session and fetches the map. Gives up
 * after params.mount_timeout_ms. */
int client_create(const struct client_options *opts, struct client **ret_client) CHECK_RESULT;
/* Does what client_options.reports_unreachable does, for an existing client. Does not yield. */
void ll_report_unreachable(struct client *c);
/* Returns the reason why the metadata server cannot be reached, as a status. Returns 0 if it can be
 * reached, or if that is not known yet. Needs client_options.reports_unreachable or
 * ll_report_unreachable. Does not yield. */
int ll_unreachable(const struct client *c);
/* Flushes all data, closes the session and frees the client. Release all files before. */
void client_destroy(struct client *c);

/* Returns true if the metadata server checks users' rights. The caller must then send credentials
 * without CRED_CHECKED and with all groups. Does not yield. */
bool ll_mds_checks_access(const struct client *c);

/* ---- names: cred is borrowed; ret_attr may be NULL ---- */
/* Looks up a name. Returns -LE_NOENT if there is none. */
int ll_lookup(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct attr *ret_attr) CHECK_RESULT;
/* Returns settled attributes: for a file with writers, size, mtime and blocks come from this
 * client's writes or from the chains. With ATTR_LEASED in their flags they are valid until
 * client_options.invalidate is called. For a directory that was removed, returns the attributes
 * that were received last, with nlink 0, or -LE_STALE if none are cached. */
int ll_getattr(struct client *c, const struct cred *cred, struct ino ino,
	       struct attr *ret_attr) CHECK_RESULT;
/* Like ll_getattr, but only mode, owner and flags are valid. That saves a query of the chains. */
int ll_getattr_rights(struct client *c, const struct cred *cred, struct ino ino,
		      struct attr *ret_attr) CHECK_RESULT;
/* Keeps the inode in the cache until ll_unhold, so that a directory that is removed meanwhile still
 * has its attributes. Returns false without memory; then do not call ll_unhold. Does not yield. */
bool ll_hold(struct client *c, struct ino ino);
/* Ends one ll_hold. Does not yield. */
void ll_unhold(struct client *c, struct ino ino);
/* Returns for how long the kernel may cache these attributes, in us; 0: not at all. Does not
 * yield. */
uint64_t ll_attr_us(struct client *c, const struct attr *attr);
/* Returns for how long the kernel may cache that the name in the directory belongs to this inode,
 * or with ino 0 that there is no such name. In us; 0: not at all. Does not yield. */
uint64_t ll_name_us(struct client *c, struct ino dir, struct bytes name, struct ino ino);
/* Returns true if the kernel may cache the file's data until client_options.invalidate is called.
 * Does not yield. */
bool ll_leased(struct client *c, struct ino ino);
/* Sets the attributes in mask. file is the open file that the program named (ftruncate), or NULL.
 * Flushes dirty data first if size or mtime change. */
int ll_setattr(struct client *c, const struct cred *cred, struct ino ino, struct ll_file *file,
	       uint32_t mask, const struct attr *attr, struct attr *ret_attr) CHECK_RESULT;
/* Creates a regular file, device, FIFO or socket without opening it. mode includes the type. */
int ll_mknod(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, uint32_t rdev, struct attr *ret_attr) CHECK_RESULT;
/* Creates a directory. */
int ll_mkdir(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, struct attr *ret_attr) CHECK_RESULT;
/* Creates a symbolic link to target. */
int ll_symlink(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	       struct bytes target, struct attr *ret_attr) CHECK_RESULT;
/* Copies the link's target to buf, with a NUL. size must be at least LEAT_SYMLINK_MAX + 1. */
int ll_readlink(struct client *c, const struct cred *cred, struct ino ino, char *buf,
		size_t size) CHECK_RESULT;
/* Adds a name to an inode. Makes an unnamed file's data durable first. */
int ll_link(struct client *c, const struct cred *cred, struct ino ino, struct ino parent,
	    struct bytes name, struct attr *ret_attr) CHECK_RESULT;
/* Removes a name of a file. */
int ll_unlink(struct client *c, const struct cred *cred, struct ino parent,
	      struct bytes name) CHECK_RESULT;
/* Removes an empty directory. */
int ll_rmdir(struct client *c, const struct cred *cred, struct ino parent,
	     struct bytes name) CHECK_RESULT;
/* Renames. Makes dirty data of the moved files durable first. flags: 0, RENAME_EXCHANGE, or
 * RENAME_NOREPLACE and RENAME_WHITEOUT, one or both. */
int ll_rename(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct ino new_parent, struct bytes new_name, uint32_t flags) CHECK_RESULT;
/* Checks the user's rights, as access(2). Returns 0 or -LE_ACCES. */
int ll_access(struct client *c, const struct cred *cred, struct ino ino,
	      uint32_t mask) CHECK_RESULT;

/* An entry of a directory. */
struct ll_dirent {
	uint64_t cookie; /* Pass it to ll_readdir to continue after this entry. */
	struct bytes name;
	/* With `plus`, all attributes; their flags have ATTR_UNSETTLED if settling them would take
	 * a request. Otherwise only ino, and the type in mode. */
	struct attr attr;
};
/* Calls each(arg, entry) for the entries after cookie (0: from the start), except . and .. of the
 * directory. The call ends when each returns more than 0; each must not yield. Sets *ret_eof to
 * whether the directory has ended. */
int ll_readdir(struct client *c, const struct cred *cred, struct ino ino, uint64_t cookie,
	       bool plus, int (*each)(void *arg, const struct ll_dirent *e), void *arg,
	       bool *ret_eof) CHECK_RESULT;

/* Returns true if an entry that ll_readdir has returned is certainly still valid. Then it updates
 * *attr. Does not yield. */
bool ll_still_listed(struct client *c, struct ino dir, struct bytes name, struct attr *attr);

/* Call when a program that has listed the directory without attributes requests those of an entry.
 * With `first`, starts to fetch all entries with attributes in the background. The fetch goes on
 * for as long as the caller keeps calling this. Does not yield. */
void ll_prefetch_attrs(struct client *c, const struct cred *cred, struct ino dir, bool first);

/* Copies the value of an extended attribute to buf and returns its length. With size 0 it only
 * returns the length. Returns -LE_RANGE if buf is too small, -LE_NODATA if there is no such
 * attribute. A removed directory has none. */
int64_t ll_getxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		    void *buf, size_t size) CHECK_RESULT;
/* Copies the names of all extended attributes to buf, each with a NUL, and returns their length.
 * With size 0 it only returns the length. Returns -LE_RANGE if buf is too small. */
int64_t ll_listxattr(struct client *c, const struct cred *cred, struct ino ino, void *buf,
		     size_t size) CHECK_RESULT;
/* Sets an extended attribute. flags: XATTR_CREATE or XATTR_REPLACE, and XATTR_KILL_SGID
 * (common/proto/mds_proto.h). */
int ll_setxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		struct bytes value, uint32_t flags) CHECK_RESULT;
/* Removes an extended attribute. Returns -LE_NODATA if there is none. */
int ll_removexattr(struct client *c, const struct cred *cred, struct ino ino,
		   struct bytes name) CHECK_RESULT;
/* Space in bytes, and numbers of inodes. */
struct ll_statfs {
	uint64_t total, free, avail, inodes, inodes_free;
};
/* Returns the space and the inodes of the file system. If ino is in a tree with a quota, the space
 * is what the quota leaves. */
int ll_statfs(struct client *c, struct ino ino, struct ll_statfs *ret_st) CHECK_RESULT;
struct mds_quota_set_req;
struct mds_quota_get_rep;
/* Sets the quota of a directory tree (mds_proto.h). Sets *ret_made to whether the quota is new. */
int ll_quota_set(struct client *c, const struct mds_quota_set_req *req, struct attr *ret_attr,
		 bool *ret_made) CHECK_RESULT;
/* Returns the metadata server's wall clock, to which the times of quotas refer; 0 if it was not
 * received yet. Does not yield. */
int64_t ll_mds_now_ns(const struct client *c);
/* Returns the quota of the tree that contains ino. */
int ll_quota_get(struct client *c, struct ino ino, struct mds_quota_get_rep *ret_q) CHECK_RESULT;
/* Sets the layout of a directory or of an empty file. */
int ll_layout_set(struct client *c, const struct cred *cred, struct ino ino,
		  const struct layout *layout, struct attr *ret_attr) CHECK_RESULT;

/* ---- files ---- */
/* Opens a file. flags: of open(2) O_ACCMODE, O_TRUNC, O_APPEND, O_DIRECT, O_SYNC and O_DSYNC; and
 * OPEN_ORPHAN (mds_proto.h), with which a file that has lost its name is opened too. Sets
 * *ret_changed to whether the file has changed since this client last opened it: then the caller
 * must drop the data that the kernel caches. */
int ll_open(struct client *c, const struct cred *cred, struct ino ino, uint32_t flags,
	    struct ll_file **ret_file, struct attr *ret_attr, bool *ret_changed) CHECK_RESULT;
/* Call after an open if nothing usable of the file is cached, so that the program will most likely
 * read it. Prefetches the file if it is small, as long as most files prefetched in this way are
 * read. Does not yield. */
void ll_expect_read(struct ll_file *f);
/* Creates and opens a file. If the name exists, opens the existing file, or with O_EXCL returns
 * -LE_EXIST. */
int ll_create(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      uint32_t mode, uint32_t flags, struct ll_file **ret_file,
	      struct attr *ret_attr) CHECK_RESULT;
/* Opens a file without a name (O_TMPFILE). ll_link can name it later, unless flags have O_EXCL. */
int ll_tmpfile(struct client *c, const struct cred *cred, struct ino parent, uint32_t mode,
	       uint32_t flags, struct ll_file **ret_file, struct attr *ret_attr) CHECK_RESULT;
/* Call for close(2) of one descriptor. Waits until the servers have accepted all dirty data of the
 * file: it is then visible to every client, though not yet durable. Returns 0, or a write-back
 * error that this open file has not reported yet. */
int ll_flush(struct ll_file *f) CHECK_RESULT;
/* Like ll_flush, but waits until the data is durable. data_only makes no difference. */
int ll_fsync(struct ll_file *f, bool data_only) CHECK_RESULT;
/* Releases the file. Never fails. Its locks are released and the close is sent in the
 * background. */
void ll_release(struct ll_file *f);
/* Returns the inode number. Does not yield. */
struct ino ll_file_ino(const struct ll_file *f);
#define LL_VECS_MAX 40u
/* The data of a read, in the slots in which it was received. */
struct ll_data {
	struct slot_vec vec[LL_VECS_MAX];
	uint32_t n;
	uint64_t len; /* Less than requested only at the end of the file. */
};
/* Reads at most LL_IO_MAX bytes and verifies their checksums. Holes are slots of zeros. Release the
 * result with ll_data_release. */
int ll_read(struct ll_file *f, uint64_t off, uint32_t len, struct ll_data *ret_data) CHECK_RESULT;
/* Drops the slot references. Does not yield. */
void ll_data_release(struct ll_data *d);
struct ll_chunk_leases;
/* Like ll_read, but takes chunk leases, so that the caller may serve the data again without a
 * request although the client has no lease on the file (ll_leased). Until they are released, no
 * write of another client completes that the data lacks. Release them within CHUNK_LEASE_MS, with
 * ll_release_leases. *ret_leases is NULL on failure. */
int ll_read_leased(struct ll_file *f, uint64_t off, uint32_t len, struct ll_data *ret_data,
		   struct ll_chunk_leases **ret_leases) CHECK_RESULT;
/* Releases chunk leases in the background. Does not yield; may be called outside of fibers. */
void ll_release_leases(struct ll_chunk_leases *l);
/* Returns true if the file is open with O_DIRECT while this mount has read it through the page
 * cache, so that the kernel may hold pages of it. Does not yield. */
bool ll_past_pages(const struct ll_file *f);
/* Reads any length into the caller's memory. Returns the number of bytes read. */
int64_t ll_pread(struct ll_file *f, void *buf, uint64_t len, uint64_t off) CHECK_RESULT;

struct block_sums;
/* One read of a batch. */
struct ll_part {
	struct ll_file *file;
	void *buf;
	uint64_t off;
	uint32_t len;
	int64_t done;            /* the result, as of ll_pread */
	struct block_sums *sums; /* gets the checksums of the blocks; NULL: not wanted */
};
/* Reads many parts, of one file or several. Small ones that one server can answer are sent in one
 * request. */
void ll_pread_batch(struct client *c, struct ll_part *parts, uint32_t n);

/* Writes data that is in slots, at off or with O_APPEND at the end. The client takes references of
 * its own to the slots, and the bytes must not change until it has dropped them. Returns the
 * length. The data is then visible to every client, or under a lease on the file will be before the
 * lease is recalled. It is durable only with O_SYNC, O_DSYNC or O_DIRECT, or if there is no space
 * grant. An error that occurs later is returned by ll_flush. */
int64_t ll_write(struct ll_file *f, uint64_t off, const struct slot_vec *vec,
		 uint32_t n) CHECK_RESULT;
/* Sets or clears O_APPEND of a file that was opened with it, for fcntl(F_SETFL). Does not yield. */
void ll_set_append(struct ll_file *file, bool append);
/* Writes back pages of a mapping. Writes at off even with O_APPEND. Does not wait for clients that
 * cache older pages; ll_flush and ll_fsync wait until none does. */
int64_t ll_write_pages(struct ll_file *f, uint64_t off, const struct slot_vec *vec,
		       uint32_t n) CHECK_RESULT;
/* Like ll_write and ll_write_pages, but these copy the caller's bytes first, of any length. */
int64_t ll_pwrite(struct ll_file *f, const void *buf, uint64_t len, uint64_t off) CHECK_RESULT;
int64_t ll_pwrite_pages(struct ll_file *f, const void *buf, uint64_t len,
			uint64_t off) CHECK_RESULT;
/* Allocates, or punches a hole, as fallocate(2). */
int ll_fallocate(struct ll_file *f, uint32_t mode, uint64_t off, uint64_t len) CHECK_RESULT;
/* Copies on the servers, as copy_file_range(2). Returns the number of bytes copied, at least one.
 * Returns -LE_NOTSUP if the servers cannot do it. Both files must have chunks of one size, of which
 * off and to_off are multiples. The source must not be open for writing here, and the target only
 * as `to`, without O_APPEND. The target must not reach beyond to_off. */
int64_t ll_copy(struct ll_file *f, uint64_t off, struct ll_file *to, uint64_t to_off,
		uint64_t len) CHECK_RESULT;
/* Returns the offset of the next data or hole from off on, as whence says (SEEK_DATA, SEEK_HOLE);
 * -LE_NXIO if there is none. Data that is damaged or lost counts as data. Changes in a mapping
 * count only once they are written back (ll_has_mapped). */
int64_t ll_seek(struct ll_file *f, uint64_t off, int whence) CHECK_RESULT;
/* Records that the kernel has kept pages of a read or write. A program that maps the file may
 * change them without a request. Does not yield. */
void ll_leaves_pages(struct ll_file *f);
/* Returns true if mapped pages may have changed since the last call. The caller must then write all
 * of them back. Never true while the file is not open here for writing. Does not yield. */
bool ll_has_mapped(struct ll_file *f);

/*
 * Takes or releases a lock of fcntl(2) or flock(2), which all mounts respect. With `wait`, waits
 * without a deadline until the lock is free, or returns -LE_INTR. Other results are -LE_LOCKED (the
 * lock is held by another owner), -LE_DEADLK and -LE_NOLCK. Type NONE releases, which fails only
 * without memory, or with -LE_NOLCK if it would split a lock and there are too many.
 *
 * Taking a lock drops cached data of the file; the caller drops the kernel's pages. Before a lock
 * is released, written data is made visible to all clients. Closing the file does not release locks
 * that other open files of the same owner have taken.
 */
int ll_lock(struct ll_file *f, const struct file_lock *want, bool wait) CHECK_RESULT;
/* Releases all locks that were taken through this open file. ll_release does that too. */
void ll_unlock_all(struct ll_file *f);
/* Sets *ret_lock to a lock that conflicts with `want`, or to one of type NONE if there is none. */
int ll_lock_test(struct ll_file *f, const struct file_lock *want,
		 struct file_lock *ret_lock) CHECK_RESULT;

/* Returns the pool of slots for data to write, in which fuse receives requests. Does not yield. */
struct slot_pool *ll_slots(struct client *c);

/* Statistics for `leat status`, metrics and tests. */
struct ll_stats {
	uint64_t session;
	uint32_t map_epoch, n_targets, n_targets_up;
	uint64_t read_bytes, written_bytes, read_ops, write_ops, meta_ops, retries, checksum_errors;
	/* hedges: reads that were sent to a second member too; a batch of them counts once.
	 * hedges_won: those outside of batches that the second member answered first. failovers:
	 * requests sent to another member after a failure. */
	uint64_t hedges, hedges_won, failovers;
	uint64_t many_ops;    /* requests that carry several reads */
	uint64_t late_writes; /* writes lost by an object server's crash and not repeated in time */
	uint64_t delegated_opens; /* opens for reading under a lease, without a request */
	uint64_t dirty_bytes, grant_bytes;
	uint32_t slots_total, slots_free, n_inodes, n_open;
};
/* Returns a snapshot. Does not yield. */
void ll_stats(struct client *c, struct ll_stats *ret_stats);
/* Returns a report of how this process uses memory (common/base/memory.h), or NULL without memory.
 * Does not yield. */
json_t *ll_memory(const struct client *c);
/* Returns the identity of the cluster. Does not yield. */
struct uuid ll_cluster(const struct client *c);

struct net_report;
struct rpc_net_totals;
/* Adds the client's connections to a report. Does not yield. */
void ll_net_add(struct client *c, struct net_report *r);
/* Writes the client's connections, from number `from` on, as JSON (common/rpc/net_report.h) to buf
 * of at least 1024 bytes. Returns the length. Does not yield. */
size_t ll_net(struct client *c, uint32_t from, char *buf, size_t size);
/* Adds the traffic of all connections to totals. Does not yield. */
void ll_net_totals(struct client *c, struct rpc_net_totals *totals);

/* Calls each(arg, off, len, sum, hole) for the file's blocks in order, for manifests. sum is the
 * checksum of the uncompressed data, which is not read for that. The call ends when each returns
 * more than 0; each must not yield. */
int ll_sums(struct ll_file *f,
	    int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
	    void *arg) CHECK_RESULT;

#endif
