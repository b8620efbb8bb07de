/*
 * What the parts of mount.leat share. One mount is one loop: it reads requests from /dev/fuse, runs
 * each as a fiber over client/ll.h, and writes the reply, all on the same thread. The only other
 * thread is the one of invalidate.c, because kernel invalidation may wait for a request of ours.
 *
 * Node ids are inode numbers, so nothing has to be kept per inode here. What must outlive the
 * daemon is in kept.h.
 */
#ifndef LEAT_FUSE_MOUNT_H
#define LEAT_FUSE_MOUNT_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "client/ll.h"
#include "common/base/hmap.h"
#include "common/base/metrics.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "fuse/killed.h"
#include "fuse/known_size.h"
#include "fuse/listers.h"
#include "fuse/metrics.h"
#include "fuse/refused.h"

struct invalidator;
struct passthrough;
struct pass_file;
struct kept;

struct leatfs {
	struct env *env;
	struct loop *loop;
	struct client *client;
	struct fuse_session *session;
	struct slot_pool *requests; /* buffers for big requests (writes) */
	uint64_t aside;          /* bytes of large ones that have none of these */
	uint64_t aside_until_us; /* those that come do not wait for one */
	struct invalidator *invalidator, *behind;
	struct passthrough *passthrough; /* NULL without stage_dir */
	struct mount_metrics metrics;
	struct refused refused;
	struct listers listers;
	struct killed killed;
	struct list running; /* requests, of session.c */
	struct hmap dirs; /* open directories: ops_dir.c */
	struct hmap known_sizes;
	struct list former_sizes; /* of these: known_size_former */
	struct turnq probe_turns; /* known_size.c */
	uint32_t n_probes, n_idle_probes;
	struct size_probe {
		pid_t pid;
		int fd; /* it is given files, and answers */
	} idle_probes[4];
	uint32_t max_write;
	uint32_t max_background; /* places that the kernel has for requests behind its programs */
	uint32_t slow_ms;
	bool local_locks;   /* the kernel keeps them to itself */
	bool strict_atime;  /* each open file's reads come here, to be noticed */
	bool setxattr_ext;  /* requests have the longer struct fuse_setxattr_in */
	uint64_t failed_us; /* when a failure was logged last */
	uint32_t n_running; /* request fibers */
	uint32_t n_waiting; /* of these, for locks */
	uint32_t n_behind;  /* of these, in invalidate_inode_behind */
	struct kept *kept;  /* what the next daemon will know */
	struct fiber *reader;
	bool handing_over; /* no requests are read */
	bool init_differs; /* libfuse would serve the kernel otherwise than the former daemon */
	bool probes_refused; /* the kernel lets no process of ours ask by number: known_size.c */
	bool owner_unknown;  /* it did not believe in one, which has been logged */
	bool mounted;
	char mountpoint[4096];
};

/* An open file; fuse_file_info.fh is its number. */
#define MOUNT_FILE_MAGIC 0x4c46494cu
struct mount_file {
	uint32_t magic;
	uint32_t flags;
	uint32_t place; /* in kept.files */
	struct ll_file *file;
	struct pass_file *pass; /* NULL without stage_dir */
	struct known_size *known; /* NULL until the kernel fills pages by it without a lease */
};

/* open_files.c: the open file of that number. find: NULL when it is closed already, which only a
 * request that comes a second time can ask for. */
struct mount_file *file_of(fuse_req_t req, const struct fuse_file_info *fi);
struct mount_file *file_find(const struct leatfs *fs, const struct fuse_file_info *fi);
int open_files_init(struct leatfs *fs) CHECK_RESULT;
/* Gives mf a number, in fi; -LE_NFILE. Once the kernel has it: answered. */
int open_files_add(fuse_req_t req, struct mount_file *mf, struct fuse_file_info *fi) CHECK_RESULT;
void open_files_answered(struct leatfs *fs, const struct fuse_file_info *fi);
/* It is closed. Frees mf and what it holds. */
void open_files_end(struct leatfs *fs, struct mount_file *mf);
/* Its owner has taken a lock by it. */
void open_files_lock(struct leatfs *fs, const struct mount_file *mf, uint64_t owner);
/* After a former daemon: what it had open (for client_options.resume); once the client is there;
 * a request that it may have answered comes again: what it opened is closed; the kernel's pages. */
int open_files_resume(void *arg, struct client *c) CHECK_RESULT;
int open_files_resumed(struct leatfs *fs) CHECK_RESULT;
void open_files_resent(struct leatfs *fs, uint64_t unique);
void open_files_drop_pages(void *arg);

/* The request that the current fiber serves. */
struct mount_request {
	struct leatfs *fs;
	struct slot
		*slot; /* holds the request's bytes; NULL when they were copied to a small buffer */
	const uint8_t *data;
	size_t len;
};

/* session.c */
struct mount_options;
/* device_fd: opened for this mount, or -1. */
int session_mount(struct leatfs *fs, const struct mount_options *o, int device_fd) CHECK_RESULT;
/* Of a mount that a former daemon served, before there is a client: nobody is served yet. When all
 * is there: what the other one has not answered is asked again. */
int session_take_over(struct leatfs *fs, int device_fd) CHECK_RESULT;
int session_ask_again(struct leatfs *fs) CHECK_RESULT;
/* Reads requests until the kernel has unmounted us or the loop stops; then all fibers have ended.
 * True: until another daemon is to go on; what is left of requests comes to that one again. */
bool session_serve(struct leatfs *fs);
/* Another daemon is to go on: session_serve ends when everything is written. */
void session_hand_over(struct leatfs *fs);
struct mount_request *session_request(void);
/* Its bytes are not needed any more: what holds them is for other requests. NULL: of nobody. */
void session_request_bytes_end(struct mount_request *mr);
/* Unmounts, unless somebody has: nobody new gets in. session_end also ends the session. */
void session_detach(struct leatfs *fs);
void session_end(struct leatfs *fs);

/* Each handler gets everything from here. */
static inline struct leatfs *req_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* caller.c */
#define REQ_GROUPS_MAX 256u
struct req_cred {
	struct cred cred;
	uint8_t groups[REQ_GROUPS_MAX * 4];
};
/* The caller's identity. The kernel has checked permissions already, unless the metadata server
 * judges them itself: then with the groups, as many as fit. */
void req_cred_init(fuse_req_t req, struct req_cred *rc);
/* The same for what only the owner of the inode may do. The kernel has looked who that is at what
 * it was told last, which may be before another mount gave the inode to somebody else: so the
 * metadata server judges, unless the caller may do it without being the owner. Yields. */
void req_cred_of_owner(fuse_req_t req, fuse_ino_t ino, struct req_cred *rc);
/* It has CAP_SYS_ADMIN, which the kernel does not tell. */
bool req_is_admin(fuse_req_t req);

/* ops_attr.c: shared helpers */
/* Whether the fiber that serves req is interrupted when the caller gets a signal. */
void req_interruptible(fuse_req_t req, bool may);
/* Whether the fiber that serves req is interrupted when the caller is killed: killed.h. Between the
 * two r belongs to it. */
void req_killable_begin(fuse_req_t req, struct killable *r);
void req_killable_end(fuse_req_t req, struct killable *r);
void attr_to_stat(const struct attr *a, struct stat *ret_st);
void reply_status(fuse_req_t req, int status);
/* The directory that is mounted, which is number 1 for the kernel, wherever it is in the namespace.
 * Set before the first request; one process serves one mount. */
extern struct ino mount_root;
/* Where an inode is found; name is NULL: not by a name. */
struct place {
	struct ino dir;
	const char *name;
};
/* What the kernel is told of what is there: it may cache as long as there are leases. */
void entry_init(fuse_req_t req, struct place at, uint64_t begun_us, const struct attr *attr,
		struct fuse_entry_param *ret_entry);
void reply_entry(fuse_req_t req, struct place at, uint64_t begun_us, const struct attr *attr);
/* Data is changed by someone who may not keep set-user-id and set-group-id: takes them off. Where
 * the group may not execute it, set-group-id only if it is not a group of who asks. */
int drop_set_ids(fuse_req_t req, fuse_ino_t ino);
static inline struct ino ino_of(fuse_ino_t id)
{
	return id == FUSE_ROOT_ID ? mount_root : (struct ino){id};
}
static inline fuse_ino_t node_of(struct ino ino)
{
	return ino_equal(ino, mount_root) ? FUSE_ROOT_ID : ino.v;
}

extern const struct fuse_lowlevel_ops mount_ops;

/* The operations, by file. */
#define OP(name, ...) void op_##name(fuse_req_t req, __VA_ARGS__)
/* ops_dir.c */
OP(lookup, fuse_ino_t parent, const char *name);
OP(forget, fuse_ino_t ino, uint64_t nlookup);
OP(forget_multi, size_t count, struct fuse_forget_data *forgets);
OP(mknod, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
OP(mkdir, fuse_ino_t parent, const char *name, mode_t mode);
OP(unlink, fuse_ino_t parent, const char *name);
OP(rmdir, fuse_ino_t parent, const char *name);
OP(symlink, const char *link, fuse_ino_t parent, const char *name);
OP(rename, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
   unsigned int flags);
OP(link, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
OP(opendir, fuse_ino_t ino, struct fuse_file_info *fi);
OP(readdir, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
OP(readdirplus, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
OP(releasedir, fuse_ino_t ino, struct fuse_file_info *fi);
OP(fsyncdir, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* ops_attr.c */
OP(getattr, fuse_ino_t ino, struct fuse_file_info *fi);
OP(setattr, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi);
OP(readlink, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
OP(access, fuse_ino_t ino, int mask);
OP(setxattr, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
OP(getxattr, fuse_ino_t ino, const char *name, size_t size);
OP(listxattr, fuse_ino_t ino, size_t size);
OP(removexattr, fuse_ino_t ino, const char *name);
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
OP(statx, fuse_ino_t ino, int flags, int mask, struct fuse_file_info *fi);
#endif
/* ops_flags.c */
void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags, const void *in, size_t in_size,
	      size_t out_size);
/* ops_file.c */
OP(create, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
OP(tmpfile, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
#endif
OP(open, fuse_ino_t ino, struct fuse_file_info *fi);
OP(read, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
OP(write, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi);
OP(flush, fuse_ino_t ino, struct fuse_file_info *fi);
OP(release, fuse_ino_t ino, struct fuse_file_info *fi);
OP(fsync, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
OP(fallocate, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino, off_t off, struct fuse_file_info *fi,
			fuse_ino_t to, off_t to_off, struct fuse_file_info *to_fi, size_t len,
			int flags);
OP(lseek, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
/* ops_lock.c */
OP(getlk, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
OP(setlk, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep);
OP(flock, fuse_ino_t ino, struct fuse_file_info *fi, int what);
#undef OP
/* Closing: gives back what the caller has locked (fcntl), or this open file (flock). */
void unlock_at_flush(struct ll_file *file, uint64_t owner);
void unlock_at_release(struct ll_file *file, uint64_t owner);

/* virtual.c: extended attributes "leat.*", which are no stored ones: layout and status. True:
 * answered. */
bool virtual_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
bool virtual_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t size);

/* virtual_quota.c: values for virtual.c; statuses. text of at least 512 bytes; what is set may be
 * written to. */
int virtual_quota_text(fuse_req_t req, fuse_ino_t ino, char *text, size_t size);
int virtual_project_text(fuse_req_t req, fuse_ino_t ino, char *text, size_t size);
int virtual_quota_set(fuse_req_t req, fuse_ino_t ino, char *text);
int virtual_project_set(fuse_req_t req, fuse_ino_t ino, const char *text);

/* invalidate.c */
int invalidator_start(struct leatfs *fs);
void invalidator_stop(struct leatfs *fs);
/* Queues it; yields only while 4096 others are queued. off -1: attributes only; len 0: to the end.
 */
void invalidate_inode(struct leatfs *fs, struct ino ino, int64_t off, int64_t len);
/* The same; then is posted to the loop when it is done. */
void invalidate_inode_then(struct leatfs *fs, struct ino ino, int64_t off, int64_t len,
			   struct mail *then);
/* The same, and waits until it is done. Yields. */
void invalidate_inode_now(struct leatfs *fs, struct ino ino, int64_t off, int64_t len);
/* The same for a request that counts as one of the kernel's background ones, and holds nothing else
 * that others need: a page may wait for its writeback, which is one as well. So of too many at once
 * the last wait for a short time only, and none for ever; then the pages go as soon as they can.
 * Yields. */
void invalidate_inode_behind(struct leatfs *fs, struct ino ino, int64_t off, int64_t len);

#endif
