/*
 * libleat: files of a Leat parallel file system without a mount, in the manner of POSIX.
 *
 * All calls may be made from any thread, several at once. They block; leat_aio_submit does not.
 * An instance runs one thread of its own, which does the work.
 *
 * Results: 0 or a count, or a negative status. leat_errno() gives the errno for it, leat_strerror()
 * a sentence. Out-parameters (ret_...) are untouched on failure.
 *
 * Paths are those of the file system: "/a/b" and "a/b" are the same. Symbolic links are followed
 * as open(2) and friends do. Rights are those of the process at the time of leat_open_fs.
 *
 * Coherence: what a call on any machine has written or changed is seen by every call that begins
 * after it has returned. A write is on stable storage when leat_fsync has returned 0, or at once
 * with O_SYNC, O_DSYNC or O_DIRECT.
 */
#ifndef LEAT_H
#define LEAT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct leat_fs;
struct leat_file;
struct leat_dir;

/* ---- errors ---- */
/* One English sentence for a status; never NULL. */
const char *leat_strerror(int64_t status);
/* The positive errno for a negative status, 0 for others. */
int leat_errno(int64_t status);
/* Version of the library, "0.1.0". */
const char *leat_version(void);

/* ---- instances ---- */
struct leat_options {
	size_t size;          /* sizeof(struct leat_options): later versions append members */
	const char *mds;      /* instead of [cluster] mds of the configuration: "host:port ..." */
	const char *key_file; /* instead of [cluster] key_file */
	const char *name;     /* of this client in the servers' logs; NULL: host name and pid */
	/* "name=value" of section [client], NULL at the end; see leat.conf(5). May be NULL. */
	const char *const *params;
	/* Room for a sentence, NULL for none: what went wrong, with the servers that were asked. */
	char *message;
	size_t message_size;
};
#define LEAT_MESSAGE_SIZE 1024 /* is enough for it */
/* Connects. conf: path of leat.conf; NULL: $LEAT_CONF, else /etc/leat/leat.conf. opts may be NULL.
 * A wrong configuration is told on stderr. */
int leat_open_fs(const char *conf, const struct leat_options *opts, struct leat_fs **ret_fs);
/* All files and directories must have been closed. Flushes, ends the session. */
void leat_close_fs(struct leat_fs *fs);

/* A JSON object that describes the instance: session, map, traffic, memory. free() it. */
int leat_status_json(struct leat_fs *fs, char **ret_json);

struct leat_statvfs {
	uint64_t total, free, avail; /* bytes */
	uint64_t inodes, inodes_free;
};
int leat_statvfs(struct leat_fs *fs, struct leat_statvfs *ret_st);

/* ---- files ---- */
/* flags and mode as for open(2): O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND,
 * O_DIRECT, O_SYNC, O_DSYNC, O_NOFOLLOW, O_DIRECTORY (refused for files). The umask of the process
 * at leat_open_fs applies. */
int leat_open(struct leat_fs *fs, const char *path, int flags, mode_t mode,
	      struct leat_file **ret_file);
/* Waits until all that was written is durable: the first error since the last leat_fsync or
 * leat_close. The file is closed whatever is returned. */
int leat_close(struct leat_file *file);
/* Any length. Bytes moved: fewer than asked for only at the end of the file, or when an error came
 * after some. */
int64_t leat_pread(struct leat_file *file, void *buf, size_t len, uint64_t off);
int64_t leat_pwrite(struct leat_file *file, const void *buf, size_t len, uint64_t off);
/* At the file's position, which moves on. Calls for one file wait for each other. */
int64_t leat_read(struct leat_file *file, void *buf, size_t len);
int64_t leat_write(struct leat_file *file, const void *buf, size_t len);
/* SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE: the new position. */
int64_t leat_lseek(struct leat_file *file, int64_t off, int whence);
int leat_fsync(struct leat_file *file);
int leat_fdatasync(struct leat_file *file);
int leat_ftruncate(struct leat_file *file, uint64_t size);
/* mode: 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE. */
int leat_fallocate(struct leat_file *file, int mode, uint64_t off, uint64_t len);

/* ---- attributes ---- */
enum {
	LEAT_STAT_SEALED = 1
}; /* immutable for ever */
struct leat_stat {
	uint64_t ino, size, blocks; /* blocks of 512 bytes */
	uint32_t mode, nlink, uid, gid, rdev, flags;
	struct timespec atime, mtime, ctime, btime;
	uint64_t change; /* moves with every change of the inode */
};
int leat_stat(struct leat_fs *fs, const char *path, struct leat_stat *ret_st);
int leat_lstat(struct leat_fs *fs, const char *path, struct leat_stat *ret_st);
int leat_fstat(struct leat_file *file, struct leat_stat *ret_st);
int leat_truncate(struct leat_fs *fs, const char *path, uint64_t size);
int leat_chmod(struct leat_fs *fs, const char *path, mode_t mode);
/* (uid_t)-1 and (gid_t)-1 leave the old one. lchown is of the link itself. */
int leat_chown(struct leat_fs *fs, const char *path, uid_t uid, gid_t gid);
int leat_lchown(struct leat_fs *fs, const char *path, uid_t uid, gid_t gid);
/* times[0]: access, [1]: modification; UTIME_NOW and UTIME_OMIT as in utimensat(2); NULL: now. */
int leat_utimens(struct leat_fs *fs, const char *path, const struct timespec times[2]);
int leat_lutimens(struct leat_fs *fs, const char *path, const struct timespec times[2]);
/* mask: R_OK | W_OK | X_OK, or F_OK. */
int leat_access(struct leat_fs *fs, const char *path, int mask);

/* ---- names ---- */
int leat_mkdir(struct leat_fs *fs, const char *path, mode_t mode);
int leat_mknod(struct leat_fs *fs, const char *path, mode_t mode, dev_t dev);
int leat_rmdir(struct leat_fs *fs, const char *path);
int leat_unlink(struct leat_fs *fs, const char *path);
/* flags (linux/fs.h): RENAME_EXCHANGE, or RENAME_NOREPLACE and RENAME_WHITEOUT; or 0. */
int leat_rename(struct leat_fs *fs, const char *from, const char *to, unsigned flags);
/* A second name for the same inode; a symbolic link `from` is linked itself. */
int leat_link(struct leat_fs *fs, const char *from, const char *to);
int leat_symlink(struct leat_fs *fs, const char *target, const char *path);
/* NUL-terminated, or -ERANGE's status when it does not fit. Returns the length. */
int64_t leat_readlink(struct leat_fs *fs, const char *path, char *buf, size_t size);

/* ---- directories ---- */
struct leat_dirent {
	uint64_t cookie; /* for leat_seekdir: the entry behind this one */
	char name[256];
	struct leat_stat
		st; /* with leat_opendir's want_stat everything; else ino and the type in mode */
};
int leat_opendir(struct leat_fs *fs, const char *path, int want_stat, struct leat_dir **ret_dir);
/* 1 and an entry, 0 at the end. Without . and .. . One thread at a time per directory. */
int leat_readdir(struct leat_dir *dir, struct leat_dirent *ret_entry);
/* cookie 0: the start. */
void leat_seekdir(struct leat_dir *dir, uint64_t cookie);
int leat_closedir(struct leat_dir *dir);

/* ---- extended attributes: of the last component itself, links are followed ---- */
/* size 0: only the length. */
int64_t leat_getxattr(struct leat_fs *fs, const char *path, const char *name, void *buf,
		      size_t size);
int64_t leat_listxattr(struct leat_fs *fs, const char *path, char *buf, size_t size);
/* flags: 0, XATTR_CREATE, XATTR_REPLACE */
int leat_setxattr(struct leat_fs *fs, const char *path, const char *name, const void *value,
		  size_t size, int flags);
int leat_removexattr(struct leat_fs *fs, const char *path, const char *name);

/* ---- layout ---- */
struct leat_layout {
	size_t size;           /* sizeof(struct leat_layout) */
	uint32_t stripe_count; /* chains that the file lies on; of a directory 0: as many as there
				  are */
	uint32_t chunk_size;   /* bytes */
	uint32_t storage_class, replicas;
	uint32_t compression; /* of whole blocks: 0 none, 1 LZ4; to set: 2 asks for none */
	uint32_t inherited;   /* of a directory: not set on itself */
	uint32_t table, seed; /* which version of the chain table, and where the stripe starts;
				 cannot be set */
};
int leat_layout_get(struct leat_fs *fs, const char *path, struct leat_layout *ret_layout);
/* Of a directory: for what will be made in it. Of a file without data. Members that are 0 stay as
 * they are. */
int leat_layout_set(struct leat_fs *fs, const char *path, const struct leat_layout *layout);

/* ---- asynchronous I/O ---- */
enum leat_io_op {
	LEAT_IO_READ = 1,
	LEAT_IO_WRITE = 2,
	LEAT_IO_FSYNC = 3
};
/* Zeroed, then filled in by the caller, who keeps it and buf until the end. */
struct leat_io {
	struct leat_file *file;
	enum leat_io_op op;
	void *buf;
	size_t len;
	uint64_t off;
	/* Called by the instance's thread when it is done; must not block and not call this
	 * library, leat_aio_submit excepted. May be NULL. The struct is the caller's again when it
	 * is called. */
	void (*done)(struct leat_io *io);
	void *arg;      /* the caller's */
	int event_fd;   /* an eventfd(2) to which 1 is added after done; 0: none */
	int64_t result; /* bytes or a negative status, when it is done */
	uint64_t private_[4];
};
/* Starts them all, in no order. 0, or a negative status and none was started. */
int leat_aio_submit(struct leat_fs *fs, struct leat_io *const *ios, unsigned n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
