/*
 * Open files: data in and out. Data is not copied here: a write's bytes stay in the slot in which
 * the request was read, a read's bytes go to the kernel out of the slots in which they came.
 */
#include "fuse/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "fuse/passthrough.h"

#define GROUPS_MAX         256u
#define KERNEL_O_LARGEFILE 0100000

/*
 * How the kernel may cache this open: pages only under a lease. O_APPEND writers must not fill the
 * page cache: where their data goes is known when it is written, here or at the metadata server.
 */
static void set_caching(struct leatfs *fs, struct ino ino, struct fuse_file_info *fi, bool changed)
{
	bool append = (fi->flags & O_APPEND) && (fi->flags & O_ACCMODE) != O_RDONLY;

	fi->direct_io = append || !ll_leased(fs->client, ino);
	fi->keep_cache = !fi->direct_io && !changed && !fs->strict_atime;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 15)
	fi->parallel_direct_writes = 1;
#endif
	/* flush is what reports write-behind errors at close, and gives locks back: readers have no
	 * errors */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 11)
	fi->noflush = fs->local_locks && (fi->flags & O_ACCMODE) == O_RDONLY;
#endif
}

/* How the kernel is to treat the open file, and what this daemon keeps of it. Takes over file and
 * pass, also when it fails. */
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

/* The kernel was told, with that result. */
static void answered(struct leatfs *fs, const struct fuse_file_info *fi, int err)
{
	/* Whoever wanted it has gone: nobody will release it. */
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

/* Another mount may have made the file meanwhile, and this one know it by another name. The kernel
 * drops its pages when it hears the answer; who was killed has been answered already. */
static void emptied_by_create(struct leatfs *fs, struct ino ino)
{
	known_size_emptied(fs, ino);
	if (!killed_is_answered(&fs->killed))
		return;
	known_size_forget_attr(fs, ino);
	invalidate_inode(fs, ino, 0, 0);
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
	status = ll_create(fs->client, &rc.cred, ino_of(parent), bytes_str(name), mode,
			   (uint32_t)fi->flags, &file, &attr);
	reply_created(req, status, (struct place){ino_of(parent), name}, file, &attr, fi);
	if (status == 0 && (fi->flags & O_TRUNC))
		emptied_by_create(fs, attr.ino);
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
	status = ll_tmpfile(fs->client, &rc.cred, ino_of(parent), mode, (uint32_t)fi->flags, &file,
			    &attr);
	reply_created(req, status, (struct place){0}, file, &attr, fi);
}
#endif

/* The process that asks is in the group; one with too many groups to tell counts as if. */
static bool in_group(fuse_req_t req, gid_t gid)
{
	gid_t groups[GROUPS_MAX];
	int n = fuse_req_getgroups(req, GROUPS_MAX, groups);

	if (fuse_req_ctx(req)->gid == gid || n > (int)GROUPS_MAX)
		return true;
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

int drop_set_ids(fuse_req_t req, fuse_ino_t ino)
{
	struct leatfs *fs = req_fs(req);
	struct attr attr, set = {.mode = 0};
	uint32_t mask = SET_KILL_SUID;
	struct req_cred rc;

	req_cred_init(req, &rc);
	TRY(ll_getattr_rights(fs->client, &rc.cred, ino_of(ino), &attr));
	if ((attr.mode & (S_ISGID | S_IXGRP)) == S_ISGID && !in_group(req, attr.gid)) {
		mask |= SET_MODE; /* by what it is as well: see kept.c */
		set.mode = attr.mode & ~(uint32_t)(S_IFMT | S_ISUID | S_ISGID);
	} else if (!(attr.mode & S_ISUID) && !((attr.mode & S_ISGID) && (attr.mode & S_IXGRP))) {
		return 0;
	}
	TRY(ll_setattr(fs->client, &rc.cred, ino_of(ino), NULL, mask, &set, NULL));
	/* The kernel takes the bits off its own copy for buffered writes only. Attributes alone
	 * take no page lock, so this may be done here, and before the reply. */
	known_size_forget_attr(fs, ino_of(ino));
	return 0;
}

/* Here the kernel does not say whether the caller may keep it; it would for who has CAP_FSETID. */
static int drop_set_ids_for_user(fuse_req_t req, fuse_ino_t ino)
{
	return fuse_req_ctx(req)->uid != 0 ? drop_set_ids(req, ino) : 0;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct leatfs *fs = req_fs(req);
	pid_t thread = fuse_req_ctx(req)->pid;
	/* For an ioctl the kernel itself opens once more what is open, maybe without a name by now;
	 * a program's open has O_LARGEFILE (of the kernel: libc has none). */
	bool again = (fi->flags & KERNEL_O_LARGEFILE) == 0;
	uint32_t found = refused_take(&fs->refused, thread, ino) || again ? LL_FOUND : 0;
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
		status = ll_open(fs->client, &rc.cred, ino_of(ino), (uint32_t)fi->flags | found,
				 &file, &attr, &changed);
	if (status == -LE_STALE && found == 0)
		refused_add(&fs->refused, thread, ino);
	if (status == 0) {
		set_caching(fs, ino_of(ino), fi, changed);
		status = attach(req, fi, file, &attr, pass);
		/* The kernel has nothing of it, nor a copy of its own to read. */
		if (status == 0 && changed && !pass)
			ll_expect_read(file);
	} else {
		passthrough_end(pass);
	}
	if (status < 0) {
		reply_status(req, status);
		return;
	}
	/* The open reply carries no attributes: make the kernel ask for the new size, unless a
	 * lease says that what it has is right. Attributes only: takes no page lock, so it may be
	 * done here, and must be, ahead of the reply. */
	if (changed && !ll_leased(fs->client, ino_of(ino)))
		known_size_forget_attr(fs, ino_of(ino));
	if (fi->flags & O_TRUNC)
		known_size_emptied(fs, ino_of(ino));
	answered(fs, fi, fuse_reply_open(req, fi));
}

/* For pages of the kernel, of a file that was opened under a lease or of a mapping; who reads and
 * writes past them says who it is. Without a lease others may change unnoticed what the kernel has
 * there. */
static bool by_pages(const struct fuse_file_info *fi)
{
	return fi->lock_owner == 0;
}

/* Pages that the kernel has of a read or a write without a lease, and which shall go. */
struct passing_pages {
	struct mail mail;
	struct ll_chunk_leases *leases; /* of a read */
	struct known_size *known;
	bool is_short; /* the reply */
};

static struct passing_pages *passing_begin(struct known_size *busy)
{
	struct passing_pages *p = busy ? malloc(sizeof(*p)) : NULL;

	if (p)
		*p = (struct passing_pages){.known = busy};
	else
		known_size_idle(busy);
	return p;
}

static void passing_end(struct passing_pages *p)
{
	if (p->leases)
		ll_release_leases(p->leases);
	if (p->is_short)
		known_size_gone(p->known);
	known_size_idle(p->known);
	free(p);
}

static void pages_gone(struct mail *m)
{
	passing_end(container_of(m, struct passing_pages, mail));
}

/* They go, and nobody's write that they lack ends before. */
static void drop_passing(struct leatfs *fs, struct passing_pages *p, fuse_ino_t ino, off_t off,
			 size_t size)
{
	p->mail.fn = pages_gone;
	known_size_wait(p->known);
	invalidate_inode_then(fs, ino_of(ino), off, (int64_t)size, &p->mail);
}

static void drop_pages(struct leatfs *fs, const struct fuse_file_info *fi, fuse_ino_t ino,
		       off_t off, size_t size)
{
	struct passing_pages *p;

	if (!by_pages(fi) || ll_leased(fs->client, ino_of(ino)))
		return;
	p = passing_begin(known_size_busy(fs, ino_of(ino)));
	if (p)
		drop_passing(fs, p, ino, off, size);
	else
		invalidate_inode(fs, ino_of(ino), off, (int64_t)size);
}

/* Reads for pages. What the reply lacks becomes zeros there, which nobody may see (known_size.c):
 * what the kernel believes may be from before a lease was given, too, and that may go meanwhile. */
static int read_pages(struct leatfs *fs, const struct mount_file *mf, off_t off, size_t size,
		      struct ll_data *data, struct passing_pages *p)
{
	const struct ino ino = ll_file_ino(mf->file);
	uint64_t begun_us = 0, end;

	for (;;) {
		if (ll_leased(fs->client, ino))
			TRY(ll_read(mf->file, (uint64_t)off, (uint32_t)size, data));
		else
			TRY(ll_read_leased(mf->file, (uint64_t)off, (uint32_t)size, data,
					   &p->leases));
		end = (uint64_t)off + data->len;
		if (data->len == size || known_size_within(p->known, end))
			break;
		ll_data_release(data);
		if (p->leases)
			ll_release_leases(p->leases);
		p->leases = NULL;
		TRY(known_size_ask(p->known, end, &begun_us));
	}
	p->is_short = data->len < size && !ll_leased(fs->client, ino);
	if (p->is_short)
		known_size_shown(p->known, end);
	return 0;
}

/* *ret_passing: what the kernel will show for a moment, unless there is a lease then. */
static int read_passing(struct leatfs *fs, const struct mount_file *mf, off_t off, size_t size,
			struct ll_data *data, struct passing_pages **ret_passing)
{
	struct passing_pages *p = passing_begin(known_size_busy(fs, ll_file_ino(mf->file)));
	int rc;

	if (!p)
		return -LE_NOMEM;
	rc = read_pages(fs, mf, off, size, data, p);
	if (rc < 0)
		passing_end(p);
	else
		*ret_passing = p;
	return rc;
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
	struct leatfs *fs = req_fs(req);
	struct mount_file *mf = file_of(req, fi);
	struct passing_pages *passing = NULL;
	struct known_read under_way = {.k = NULL};
	struct killable killable;
	struct ll_data d;
	int status;

	if (passthrough_read(req, mf->pass, size, off))
		return;
	if (by_pages(fi) && !mf->known && !ll_leased(fs->client, ino_of(ino)))
		mf->known = known_size_get(fs, ino_of(ino));
	if (by_pages(fi))
		known_size_read(fs, ino_of(ino), &under_way);
	req_killable_begin(req, &killable);
	if (under_way.k)
		status = read_passing(fs, mf, off, size, &d, &passing);
	else
		status = ll_read(mf->file, (uint64_t)off, (uint32_t)size, &d);
	req_killable_end(req, &killable);
	if (status < 0)
		reply_status(req, status);
	else
		reply_data(req, &d);
	known_size_answered(&under_way);
	if (passing &&
	    (passing->leases || passing->is_short || !ll_leased(fs->client, ino_of(ino))))
		drop_passing(fs, passing, ino, off, size);
	else if (passing)
		passing_end(passing);
	else if (status >= 0)
		drop_pages(fs, fi, ino, off, size);
}

/* What a write without a lease leaves in the kernel's pages others may change unnoticed, once it is
 * answered. Whole pages only: one that is changed in part the kernel may hold until then; where it
 * is shown afterwards a read has brought it, which sees to its end (drop_passing). */
static void drop_written(struct leatfs *fs, struct mount_request *mr, fuse_ino_t ino, off_t off,
			 int64_t n)
{
	const int64_t page = sysconf(_SC_PAGESIZE);
	const int64_t from = (off + page - 1) / page * page, to = (off + n) / page * page;

	if (from >= to)
		return;
	session_request_bytes_end(mr);
	invalidate_inode_behind(fs, ino_of(ino), from, to - from);
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
	struct known_size *known = known_size_busy(fs, ino_of(ino));
	int64_t n = 0;

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 16)
	if (fi->kill_suidgid)
		n = drop_set_ids(req, ino);
#endif
	if ((mf->flags & O_APPEND) && !fi->writepage)
		ll_set_append(mf->file, (fi->flags & O_APPEND) != 0);
	if (n == 0)
		n = write_data(mf->file, mr, buf, size, off, fi->writepage);
	if (n < 0) {
		known_size_idle(known);
		reply_status(req, (int)n);
		return;
	}
	metric_add(&fs->metrics.written_bytes, (uint64_t)n);
	/* Pages that a reader filled meanwhile: at the end of an asynchronous direct write the
	 * kernel leaves them as they are. (A page that is written back may come by the same file:
	 * it would wait for itself.) */
	if (n > 0 && !fi->writepage && ll_past_pages(mf->file)) {
		session_request_bytes_end(mr);
		invalidate_inode_behind(fs, ino_of(ino), off, n);
	} else if (by_pages(fi) && !fi->writepage && !ll_leased(fs->client, ino_of(ino))) {
		drop_written(fs, mr, ino, off, n);
	}
	known_size_grown(fs, ino_of(ino), (uint64_t)(off + n));
	known_size_idle(known);
	fuse_reply_write(req, (size_t)n);
	drop_pages(fs, fi, ino, off, size);
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
	/* Else a former daemon has done it, and did not live to say so. */
	if (mf) {
		if (fi->flock_release)
			unlock_at_release(mf->file, fi->lock_owner);
		open_files_end(req_fs(req), mf);
	}
	fuse_reply_err(req, 0);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct killable killable;

	(void)ino;
	req_killable_begin(req, &killable);
	int status = ll_fsync(file_of(req, fi)->file, datasync != 0);
	req_killable_end(req, &killable);
	reply_status(req, status);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	int status = drop_set_ids_for_user(req, ino);

	if (status == 0)
		status = ll_fallocate(file_of(req, fi)->file, (uint32_t)mode, (uint64_t)off,
				      (uint64_t)len);
	if (status == 0)
		known_size_grown(req_fs(req), ino_of(ino), (uint64_t)(off + len));
	reply_status(req, status);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct killable killable;
	int64_t at;

	(void)ino;
	req_killable_begin(req, &killable);
	at = ll_seek(file_of(req, fi)->file, (uint64_t)off, whence);
	req_killable_end(req, &killable);
	if (at < 0)
		reply_status(req, (int)at);
	else
		fuse_reply_lseek(req, at);
}

/* What the servers cannot do among themselves the kernel does by reading and writing. */
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino, off_t off, struct fuse_file_info *fi,
			fuse_ino_t to, off_t to_off, struct fuse_file_info *to_fi, size_t len,
			int flags)
{
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
		known_size_grown(req_fs(req), ino_of(to), (uint64_t)(to_off + n));
		fuse_reply_write(req, (size_t)n);
	}
}
