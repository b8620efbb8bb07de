/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on open files: create, open, read, write, flush, fsync, fallocate, seek, copy,
 * release. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "fuse/kernel/kernel_pages.h"
#include "fuse/kernel/request_loop.h"
#include "fuse/ops/credentials.h"
#include "fuse/ops/handlers.h"
#include "fuse/ops/reply.h"
#include "fuse/restart/handle_table.h"
#include "common/proto/mds_proto.h"

#define KERNEL_O_LARGEFILE 0100000

/*
 * Sets how the kernel may cache this open file: pages only under a lease. A writer with O_APPEND
 * must not fill pages, since its offset is decided when the data are written, here or at the
 * metadata server.
 */
static void set_caching(struct leatfs *fs, struct ino ino, struct fuse_file_info *fi, bool changed)
{
	bool append = (fi->flags & O_APPEND) && (fi->flags & O_ACCMODE) != O_RDONLY;

	fi->direct_io = append || !ll_leased(fs->client, ino);
	fi->keep_cache = !fi->direct_io && !changed && !fs->strict_atime;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
	fi->parallel_direct_writes = 1;
#endif
	/* flush reports write-back errors at close, and releases locks: a reader has no errors */
	fi->noflush = fs->local_locks && (fi->flags & O_ACCMODE) == O_RDONLY;
}

/* Makes the daemon's record of an open file, and fills in fi for the kernel. Takes over file and
 * pass, also on failure. */
static int attach(fuse_req_t req, struct fuse_file_info *fi, struct ll_file *file,
		  const struct attr *attr, struct pass_file *pass)
{
	struct mount_file *mf = malloc(sizeof(*mf));
	int status = mf ? passthrough_open(req, attr, fi, &pass) : -LE_NOMEM;

	if (status == 0) {
		*mf = (struct mount_file){.magic = MOUNT_FILE_MAGIC,
					  .flags = (uint32_t)fi->flags,
					  .file = file,
					  .pass = pass};
		status = open_files_add(req, mf, fi);
	}
	if (status < 0) {
		passthrough_end(pass);
		ll_release(file);
		free(mf);
	}
	return status;
}

/* Call after the reply to an open, with the result of sending it. */
static void answered(struct leatfs *fs, const struct fuse_file_info *fi, int err)
{
	/* The kernel has dropped the request, so it will not release the file. */
	if (err == -ENOENT)
		open_files_end(fs, file_find(fs, fi));
	else
		open_files_answered(fs, fi);
}

static void reply_created(fuse_req_t req, int status, struct place at, struct ll_file *file,
			  const struct attr *attr, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);

	if (status == 0) {
		set_caching(fs, attr->ino, fi, true);
		status = attach(req, fi, file, attr, NULL);
	}
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	struct fuse_entry_param e;
	entry_init(req, at, 0, attr, &e);
	answered(fs, fi, fuse_reply_create(req, &e, fi));
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	struct ll_file *file;
	struct req_cred rc;
	struct attr attr;
	int status;

	req_cred_init(req, &rc);
	status = ll_create(fs->client, &rc.cred, ino_of(fs, parent), bytes_str(name), mode,
			   (uint32_t)fi->flags, &file, &attr);
	reply_created(req, status, (struct place){ino_of(fs, parent), name}, file, &attr, fi);
	if (status == 0 && (fi->flags & O_TRUNC))
		kernel_pages_emptied(fs, attr.ino);
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
void op_tmpfile(fuse_req_t req, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	struct ll_file *file;
	struct req_cred rc;
	struct attr attr;
	int status;

	req_cred_init(req, &rc);
	status = ll_tmpfile(fs->client, &rc.cred, ino_of(fs, parent), mode, (uint32_t)fi->flags,
			    &file, &attr);
	reply_created(req, status, (struct place){0}, file, &attr, fi);
}
#endif

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	pid_t thread = fuse_req_ctx(req)->pid;
	/* For an ioctl the kernel opens an open inode again, which may have no name by now. Only an
	 * open by a program has O_LARGEFILE (the kernel's value: that of libc may be 0). */
	bool again = (fi->flags & KERNEL_O_LARGEFILE) == 0;
	uint32_t orphan =
		estale_retry_take(&fs->estale_retry, thread, ino) || again ? OPEN_ORPHAN : 0;
	struct pass_file *pass = NULL;
	struct ll_file *file;
	struct req_cred rc;
	struct attr attr;
	bool changed;
	int status;

	req_cred_init(req, &rc);
	status = passthrough_begin(fs, ino, (uint32_t)fi->flags, &pass);
	if (status == 0 && (fi->flags & O_TRUNC))
		status = drop_set_ids_for_user(req, ino);
	if (status == 0)
		status = ll_open(fs->client, &rc.cred, ino_of(fs, ino),
				 (uint32_t)fi->flags | orphan, &file, &attr, &changed);
	if (status == -LE_STALE && orphan == 0)
		estale_retry_add(&fs->estale_retry, thread, ino);
	if (status == 0) {
		set_caching(fs, ino_of(fs, ino), fi, changed);
		status = attach(req, fi, file, &attr, pass);
		/* The kernel has no pages of the file, and reads no staged copy. */
		if (status == 0 && changed && !pass)
			ll_expect_read(file);
	} else {
		passthrough_end(pass);
	}
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	/* The reply to open has no attributes, so the kernel must request the new size, unless it
	 * is under a lease. Dropping attributes takes no page lock, so it can and must be done
	 * before the reply. */
	if (changed && !ll_leased(fs->client, ino_of(fs, ino)))
		kernel_size_forget_attr(fs, ino_of(fs, ino));
	if (fi->flags & O_TRUNC)
		kernel_pages_emptied(fs, ino_of(fs, ino));
	answered(fs, fi, fuse_reply_open(req, fi));
}

static void signalled(fuse_req_t req, void *arg)
{
	struct interruptible *r = CAST_OBJ(arg, struct interruptible, INTERRUPTIBLE_MAGIC);

	interrupt_signal(&req_fs(req)->interrupts, r);
}

/* Between the two the current fiber, which serves req, is interrupted if the caller is killed
 * (kernel/interrupt.h). */
static void interruptible_begin(fuse_req_t req, struct interruptible *r)
{
	interruptible_init(r, fuse_req_ctx(req)->pid, NULL);
	fuse_req_interrupt_func(req, signalled, r);
}

static void interruptible_end(fuse_req_t req, struct interruptible *r)
{
	fuse_req_interrupt_func(req, NULL, NULL);
	interruptible_fini(r);
}

static void reply_data(fuse_req_t req, struct ll_data *d)
{
	struct iovec iov[LL_VECS_MAX];

	for (uint32_t i = 0; i < d->n; i++)
		iov[i] = (struct iovec){d->vec[i].slot->data + d->vec[i].off, d->vec[i].len};
	metric_add(&req_fs(req)->metrics.read_bytes, d->len);
	fuse_reply_iov(req, iov, (int)d->n);
	ll_data_release(d);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct mount_file *mf = file_of(req, fi);
	struct interruptible interruptible;
	struct page_io *io;
	struct ll_data d;
	int status;

	(void)ino;
	if (passthrough_read(req, mf->pass, size, off))
		return;
	io = page_io_begin(req_fs(req), mf, fi, off, size, true);
	if (!io) {
		reply_status(req, -LE_NOMEM);
		return;
	}
	interruptible_begin(req, &interruptible);
	status = page_read(io, mf->file, &d);
	interruptible_end(req, &interruptible);
	if (status < 0)
		reply_status(req, status);
	else
		reply_data(req, &d);
	page_io_replied(io);
}

static int64_t write_data(struct ll_file *f, const struct mount_request *mr, const char *buf,
			  size_t size, off_t off, bool pages)
{
	struct slot_vec v;

	if (!mr || !mr->slot)
		return pages ? ll_pwrite_pages(f, buf, size, (uint64_t)off)
			     : ll_pwrite(f, buf, size, (uint64_t)off);
	v = (struct slot_vec){
		mr->slot, (uint32_t)((const uint8_t *)buf - mr->slot->data), (uint32_t)size};
	return pages ? ll_write_pages(f, (uint64_t)off, &v, 1) : ll_write(f, (uint64_t)off, &v, 1);
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi)
{
	struct mount_request *mr = session_request();
	struct leatfs *fs = req_fs(req);
	struct mount_file *mf = file_of(req, fi);
	struct page_io *io = page_io_begin(fs, mf, fi, off, size, false);
	int64_t n = 0;

	(void)ino;
	if (!io) {
		reply_status(req, -LE_NOMEM);
		return;
	}
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 16)
	if (fi->kill_suidgid)
		n = drop_set_ids(req, ino);
#endif
	if ((mf->flags & O_APPEND) && !fi->writepage)
		ll_set_append(mf->file, (fi->flags & O_APPEND) != 0);
	if (n == 0)
		n = write_data(mf->file, mr, buf, size, off, fi->writepage);
	page_written(io, mf->file, mr, n);
	if (n < 0) {
		reply_status(req, (int)n);
	} else {
		metric_add(&fs->metrics.written_bytes, (uint64_t)n);
		fuse_reply_write(req, (size_t)n);
	}
	page_io_replied(io);
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mount_file *mf = file_of(req, fi);
	int status = ll_flush(mf->file);

	(void)ino;
	unlock_at_flush(mf->file, fi->lock_owner);
	reply_status(req, status);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mount_file *mf = file_find(req_fs(req), fi);

	(void)ino;
	/* Otherwise a previous daemon has released it, and was ended before it replied. */
	if (mf) {
		if (fi->flock_release)
			unlock_at_release(mf->file, fi->lock_owner);
		open_files_end(req_fs(req), mf);
	}
	fuse_reply_err(req, 0);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct interruptible interruptible;

	(void)ino;
	interruptible_begin(req, &interruptible);
	int status = ll_fsync(file_of(req, fi)->file, datasync != 0);
	interruptible_end(req, &interruptible);
	reply_status(req, status);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	int status = drop_set_ids_for_user(req, ino);

	if (status == 0)
		status = ll_fallocate(file_of(req, fi)->file, (uint32_t)mode, (uint64_t)off,
				      (uint64_t)len);
	if (status == 0)
		kernel_size_grown(fs, ino_of(fs, ino), (uint64_t)(off + len));
	reply_status(req, status);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	struct interruptible interruptible;
	int64_t at;

	/* The kernel sends SEEK without writing back pages that mappings have changed; dropping
	 * pages writes them back. The kernel holds the inode's lock but no page, and a request that
	 * holds a page does not wait for that lock. */
	if (ll_has_mapped(file_of(req, fi)->file))
		kernel_pages_drop(fs, ino_of(fs, ino));
	interruptible_begin(req, &interruptible);
	at = ll_seek(file_of(req, fi)->file, (uint64_t)off, whence);
	interruptible_end(req, &interruptible);
	if (at < 0)
		reply_status(req, (int)at);
	else
		fuse_reply_lseek(req, at);
}

/* If the servers cannot copy, the kernel falls back to reads and writes (EOPNOTSUPP). */
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino, off_t off, struct fuse_file_info *fi,
			fuse_ino_t to, off_t to_off, struct fuse_file_info *to_fi, size_t len,
			int flags)
{
	struct leatfs *fs = req_fs(req);
	int64_t n = -LE_NOTSUP;

	(void)ino;
	if (flags == 0 && len > 0)
		n = drop_set_ids_for_user(req, to);
	if (n == 0)
		n = ll_copy(file_of(req, fi)->file, (uint64_t)off, file_of(req, to_fi)->file,
			    (uint64_t)to_off, len);
	if (n == -LE_NOTSUP)
		fuse_reply_err(req, EOPNOTSUPP);
	else if (n < 0)
		reply_status(req, (int)n);
	else {
		kernel_size_grown(fs, ino_of(fs, to), (uint64_t)(to_off + n));
		fuse_reply_write(req, (size_t)n);
	}
}
