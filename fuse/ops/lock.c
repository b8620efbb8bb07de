/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on file locks: fcntl(2) and flock(2). */
#include <fcntl.h>
#include <sys/file.h>

#include "common/base/log.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/ops/handlers.h"
#include "fuse/ops/reply.h"
#include "fuse/restart/handle_table.h"

/*
 * Locks of fcntl(2) and flock(2), which the metadata server keeps for all mounts. The kernel
 * identifies the owner of a lock by a number: of a process (fcntl), or of an open file (flock, and
 * fcntl's OFD locks). A process that closes any descriptor of a file loses its fcntl locks on it:
 * flush releases them. ll_release releases OFD locks at the end of their open file.
 */
static const struct {
	short of_fcntl;
	uint8_t type;
} types[] = {
	{F_RDLCK, FILE_LOCK_READ},
	{F_WRLCK, FILE_LOCK_WRITE},
	{F_UNLCK, FILE_LOCK_NONE},
};

static int from_flock(const struct flock *l, uint64_t owner, struct file_lock *ret_lock)
{
	*ret_lock = (struct file_lock){
		.owner = owner,
		.first = (uint64_t)l->l_start,
		.last = l->l_len == 0 ? UINT64_MAX : (uint64_t)l->l_start + (uint64_t)l->l_len - 1,
		.pid = (uint32_t)l->l_pid,
		.kind = FILE_LOCK_POSIX,
	};
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (types[i].of_fcntl != l->l_type)
			continue;
		ret_lock->type = types[i].type;
		return 0;
	}
	return -LE_INVAL;
}

static void to_flock(const struct file_lock *l, struct flock *ret_flock)
{
	bool to_end = l->last >= INT64_MAX;

	*ret_flock = (struct flock){
		.l_type = types[l->type].of_fcntl,
		.l_whence = SEEK_SET,
		.l_start = (off_t)l->first,
		.l_len = to_end ? 0 : (off_t)(l->last - l->first + 1),
		.l_pid = (pid_t)l->pid,
	};
}

void op_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
	struct file_lock want, found;
	struct flock answer;
	int status;

	(void)ino;
	status = from_flock(lock, fi->lock_owner, &want);
	if (status == 0)
		status = ll_lock_test(file_of(req, fi)->file, &want, &found);
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	to_flock(&found, &answer);
	fuse_reply_lock(req, &answer);
}

static void interrupted(fuse_req_t req, void *arg)
{
	(void)req;
	fiber_interrupt(arg);
}

/* may: any signal of the caller interrupts the current fiber from here on; else no longer. */
static void interruptible(fuse_req_t req, bool may)
{
	fuse_req_interrupt_func(req, may ? interrupted : NULL, may ? fiber_self() : NULL);
	if (!may)
		(void)fiber_interrupt_clear();
}

static int set(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
	       const struct file_lock *want, bool wait)
{
	struct mount_file *mf = file_of(req, fi);
	struct leatfs *fs = req_fs(req);
	int status;

	interruptible(req, wait);
	fs->n_waiting += wait;
	status = ll_lock(mf->file, want, wait);
	ASSERT(fs->n_waiting >= wait && fs->n_waiting <= fs->n_running);
	fs->n_waiting -= wait;
	interruptible(req, false);
	if (status == 0 && want->type != FILE_LOCK_NONE)
		open_files_lock(fs, mf, want->owner);
	/* A program that gets the lock must read what other clients wrote before. */
	if (status == 0 && want->type != FILE_LOCK_NONE && !ll_leased(fs->client, ino_of(fs, ino)))
		kernel_pages_drop(fs, ino_of(fs, ino));
	return status;
}

void op_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock,
	      int sleep)
{
	struct file_lock want;
	int status = from_flock(lock, fi->lock_owner, &want);

	if (status == 0)
		status = set(req, ino, fi, &want, sleep != 0);
	reply_status(req, status);
}

static struct file_lock whole(uint64_t owner, uint8_t kind, uint8_t type)
{
	return (struct file_lock){.owner = owner, .last = UINT64_MAX, .kind = kind, .type = type};
}

void op_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int what)
{
	struct file_lock want = whole(fi->lock_owner, FILE_LOCK_FLOCK, FILE_LOCK_NONE);

	if ((what & LOCK_SH) != 0)
		want.type = FILE_LOCK_READ;
	else if ((what & LOCK_EX) != 0)
		want.type = FILE_LOCK_WRITE;
	reply_status(req, set(req, ino, fi, &want, (what & LOCK_NB) == 0));
}

static void give_back(struct ll_file *file, const struct file_lock *none)
{
	int status = ll_lock(file, none, false);

	if (status < 0)
		log_warn("inode %llu: cannot release a lock: %s (it is released when the session "
			 "ends)",
			 (unsigned long long)ll_file_ino(file).v, status_text(status));
}

void unlock_at_flush(struct ll_file *file, uint64_t owner)
{
	struct file_lock none = whole(owner, FILE_LOCK_POSIX, FILE_LOCK_NONE);

	give_back(file, &none);
}

void unlock_at_release(struct ll_file *file, uint64_t owner)
{
	struct file_lock none = whole(owner, FILE_LOCK_FLOCK, FILE_LOCK_NONE);

	give_back(file, &none);
}
