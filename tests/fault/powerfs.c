/* SPDX-License-Identifier: Apache-2.0 */
/*
 * powerfs BACKING JOURNAL MOUNTPOINT [-f]
 *
 * A file system for tests of durability. It passes all operations through to the directory BACKING
 * and writes every change, with its data, and every sync into JOURNAL, in their order.
 * power_cut.py then builds, for any point of that order, what a disk could hold if the power had
 * failed there: what was synced, and an arbitrary part of the rest.
 *
 * A write to the file /.mark appends its text to the journal: "this was acknowledged".
 *
 * One thread, so that the order in the journal is the order of events. Every open is direct, so
 * that O_DIRECT works and no write waits in the page cache.
 *
 * Journal record: struct record, then path, path2, data. A file id is assigned at creation.
 */
#define FUSE_USE_VERSION 312
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum record_type {
	REC_CREATE = 1, /* path, id */
	REC_MKDIR = 2,
	REC_UNLINK = 3,
	REC_RMDIR = 4,
	REC_RENAME = 5, /* path, path2 */
	REC_WRITE = 6,  /* id, off, data */
	REC_TRUNCATE = 7,
	REC_SYNC = 8,    /* id */
	REC_SYNCDIR = 9, /* path */
	REC_MARK = 10,   /* data */
	REC_ZERO = 11,   /* id, off, len: punched or zeroed */
	REC_LINK = 12,   /* path, path2 */
};

struct record {
	uint32_t type;
	uint32_t id;
	uint64_t off, len; /* len: of data, or of the range */
	uint32_t path_len, path2_len;
	uint64_t data_len;
};

static char backing[4096];
static int journal = -1;

static void append(struct record r, const char *path, const char *path2, const void *data)
{
	r.path_len = path ? (uint32_t)strlen(path) : 0;
	r.path2_len = path2 ? (uint32_t)strlen(path2) : 0;
	struct iovec iov[] = {
		{&r, sizeof(r)},
		{(void *)path, r.path_len},
		{(void *)path2, r.path2_len},
		{(void *)data, r.data_len},
	};
	ssize_t want = (ssize_t)(sizeof(r) + r.path_len + r.path2_len + r.data_len);
	if (writev(journal, iov, 4) != want) {
		perror("powerfs: journal");
		abort();
	}
}

static const char *real(const char *path)
{
	static char buf[8192];

	snprintf(buf, sizeof(buf), "%s%s", backing, path);
	return buf;
}

/* The backing inode number names a file in the journal. tmpfs and ext4 may reuse it; then there is
 * a new REC_CREATE. */
static uint32_t id_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		abort();
	return (uint32_t)st.st_ino;
}

static int is_mark(const char *path)
{
	return strcmp(path, "/.mark") == 0;
}

static int p_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	if (is_mark(path)) {
		*st = (struct stat){.st_mode = S_IFREG | 0666, .st_nlink = 1};
		return 0;
	}
	int rc = fi ? fstat((int)fi->fh, st) : lstat(real(path), st);
	return rc < 0 ? -errno : 0;
}

static int p_mkdir(const char *path, mode_t mode)
{
	if (mkdir(real(path), mode) < 0)
		return -errno;
	append((struct record){.type = REC_MKDIR}, path, NULL, NULL);
	return 0;
}

static int p_unlink(const char *path)
{
	if (unlink(real(path)) < 0)
		return -errno;
	append((struct record){.type = REC_UNLINK}, path, NULL, NULL);
	return 0;
}

static int p_rmdir(const char *path)
{
	if (rmdir(real(path)) < 0)
		return -errno;
	append((struct record){.type = REC_RMDIR}, path, NULL, NULL);
	return 0;
}

static int p_rename(const char *from, const char *to, unsigned int flags)
{
	char a[8192];

	if (flags)
		return -EINVAL;
	snprintf(a, sizeof(a), "%s", real(from));
	if (rename(a, real(to)) < 0)
		return -errno;
	append((struct record){.type = REC_RENAME}, from, to, NULL);
	return 0;
}

static int p_link(const char *from, const char *to)
{
	char a[8192];

	snprintf(a, sizeof(a), "%s", real(from));
	if (link(a, real(to)) < 0)
		return -errno;
	append((struct record){.type = REC_LINK}, from, to, NULL);
	return 0;
}

static int p_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int fd = open(real(path), O_RDWR | O_CREAT | (fi->flags & (O_EXCL | O_TRUNC)), mode);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	fi->direct_io = 1;
	append((struct record){.type = REC_CREATE, .id = id_of(fd)}, path, NULL, NULL);
	return 0;
}

static int p_open(const char *path, struct fuse_file_info *fi)
{
	fi->direct_io = 1;
	if (is_mark(path))
		return 0;
	int fd = open(real(path), O_RDWR);
	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	if (fi->flags & O_TRUNC) {
		if (ftruncate(fd, 0) < 0)
			return -errno;
		append((struct record){.type = REC_TRUNCATE, .id = id_of(fd)}, NULL, NULL, NULL);
	}
	return 0;
}

static int p_release(const char *path, struct fuse_file_info *fi)
{
	if (!path || !is_mark(path))
		close((int)fi->fh);
	return 0;
}

static int p_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	if (path && is_mark(path))
		return 0;
	ssize_t n = pread((int)fi->fh, buf, size, off);
	return n < 0 ? -errno : (int)n;
}

static int p_write(const char *path, const char *buf, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	if (path && is_mark(path)) {
		append((struct record){.type = REC_MARK, .data_len = size}, NULL, NULL, buf);
		return (int)size;
	}
	ssize_t n = pwrite((int)fi->fh, buf, size, off);
	if (n < 0)
		return -errno;
	append((struct record){.type = REC_WRITE,
			       .id = id_of((int)fi->fh),
			       .off = (uint64_t)off,
			       .len = (uint64_t)n,
			       .data_len = (uint64_t)n},
	       NULL, NULL, buf);
	return (int)n;
}

static int p_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	int fd = fi ? (int)fi->fh : open(real(path), O_RDWR);
	int rc = 0;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, size) < 0)
		rc = -errno;
	else
		append((struct record){.type = REC_TRUNCATE,
				       .id = id_of(fd),
				       .off = (uint64_t)size},
		       NULL, NULL, NULL);
	if (!fi)
		close(fd);
	return rc;
}

static int p_fallocate(const char *path, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	uint32_t id = id_of((int)fi->fh);
	struct stat st;

	(void)path;
	if (fallocate((int)fi->fh, mode, off, len) < 0)
		return -errno;
	if (mode & ~FALLOC_FL_KEEP_SIZE)
		append((struct record){.type = REC_ZERO,
				       .id = id,
				       .off = (uint64_t)off,
				       .len = (uint64_t)len},
		       NULL, NULL, NULL);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && fstat((int)fi->fh, &st) == 0)
		append((struct record){.type = REC_TRUNCATE, .id = id, .off = (uint64_t)st.st_size},
		       NULL, NULL, NULL);
	return 0;
}

static int p_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	if (path && is_mark(path))
		return 0;
	append((struct record){.type = REC_SYNC, .id = id_of((int)fi->fh)}, NULL, NULL, NULL);
	return 0;
}

static int p_fsyncdir(const char *path, int datasync, struct fuse_file_info *fi)
{
	(void)datasync, (void)fi;
	append((struct record){.type = REC_SYNCDIR}, path, NULL, NULL);
	return 0;
}

static int p_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
		     struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	DIR *dir;

	(void)off, (void)fi, (void)flags;
	dir = opendir(real(path));
	if (!dir)
		return -errno;
	for (struct dirent *e; (e = readdir(dir));) {
		struct stat st = {.st_ino = e->d_ino, .st_mode = (mode_t)e->d_type << 12};
		if (fill(buf, e->d_name, &st, 0, 0))
			break;
	}
	closedir(dir);
	return 0;
}

static int p_statfs(const char *path, struct statvfs *st)
{
	return statvfs(real(path), st) < 0 ? -errno : 0;
}

static int p_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	(void)fi;
	return chmod(real(path), mode) < 0 ? -errno : 0;
}

static int p_utimens(const char *path, const struct timespec ts[2], struct fuse_file_info *fi)
{
	(void)fi;
	return utimensat(AT_FDCWD, real(path), ts, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static void *p_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	(void)conn;
	cfg->use_ino = 1;
	cfg->entry_timeout = cfg->attr_timeout = 0;
	cfg->hard_remove = 1;
	cfg->nullpath_ok = 0;
	return NULL;
}

static const struct fuse_operations ops = {
	.init = p_init,
	.getattr = p_getattr,
	.mkdir = p_mkdir,
	.unlink = p_unlink,
	.rmdir = p_rmdir,
	.rename = p_rename,
	.link = p_link,
	.create = p_create,
	.open = p_open,
	.release = p_release,
	.read = p_read,
	.write = p_write,
	.truncate = p_truncate,
	.fallocate = p_fallocate,
	.fsync = p_fsync,
	.fsyncdir = p_fsyncdir,
	.readdir = p_readdir,
	.statfs = p_statfs,
	.chmod = p_chmod,
	.utimens = p_utimens,
};

int main(int argc, char **argv)
{
	char *args[] = {argv[0], NULL, "-s", "-f", "-o", "fsname=powerfs,allow_other", NULL};

	if (argc < 4) {
		fprintf(stderr, "usage: powerfs BACKING JOURNAL MOUNTPOINT\n");
		return 2;
	}
	if (!realpath(argv[1], backing)) {
		perror(argv[1]);
		return 1;
	}
	journal = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	if (journal < 0) {
		perror(argv[2]);
		return 1;
	}
	args[1] = argv[3];
	return fuse_main(6, args, &ops, NULL);
}
