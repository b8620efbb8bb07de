/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libleat: access to the files of a Leat parallel file system without a mount, with calls like
 * those of POSIX.
 *
 * Threads: every call may be made from any thread, and several may run concurrently. A call blocks
 * until it is done; leat_aio_submit does not block. An instance (struct leat_fs) has one thread,
 * which does the work.
 *
 * Results: a call returns 0, a count, or a negative status. leat_errno gives the errno for a
 * status, leat_strerror a sentence. Where a comment says "fails with ENOENT", leat_errno of the
 * status is ENOENT. Out-parameters (ret_...) are untouched when a call fails. Every call that needs
 * a server can fail with EIO when no server has answered within request_timeout_ms of leat.conf.
 *
 * Paths are paths of the file system: "/a/b" and "a/b" are the same. Symbolic links are followed as
 * open(2), stat(2) and the like follow them. Permissions are checked for the user and the groups
 * that the process had when it called leat_open_fs.
 *
 * Coherence: a call on any machine observes all changes of calls that returned before it began.
 * Written data is on stable storage when leat_fsync has returned 0; with O_SYNC, O_DSYNC or
 * O_DIRECT when the write has returned. leat_close does not wait for that.
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
/* Returns one English sentence for a status: static text, never NULL. */
const char *leat_strerror(int64_t status);
/* Returns the positive errno for a negative status, 0 for any other. */
int leat_errno(int64_t status);
/* Returns the version of the library, "0.1.0". */
const char *leat_version(void);

/* ---- instances ---- */
/* Options of leat_open_fs: zero it, set size. All texts are borrowed for the call. */
struct leat_options {
	size_t size;          /* sizeof(struct leat_options): later versions append members */
	const char *mds;      /* in the place of [cluster] mds: "host:port ..."; NULL:
	                       * leat.conf's */
	const char *key_file; /* in the place of [cluster] key_file; NULL: leat.conf's */
	const char *name;     /* of this client in the servers' logs; NULL: host name and pid */
	/* "name=value" of section [client] of leat.conf(5), with a NULL after the last; or NULL. */
	const char *const *params;
	/* Receives the reason of a failure, NUL-terminated, of message_size bytes; or NULL. The
	 * text begins with "mds = " and the addresses if the settings are valid; else it names the
	 * file that is missing or wrong on this machine, and the next step. */
	char *message;
	size_t message_size;
};
#define LEAT_MESSAGE_SIZE 1024 /* enough for any message */
/* Opens a session at the metadata server and returns an instance, which leat_close_fs ends.
 * conf: path of leat.conf; NULL: $LEAT_CONF, else /etc/leat/leat.conf. opts may be NULL. Without
 * opts->message, a wrong configuration or key file is reported on stderr. */
int leat_open_fs(const char *conf, const struct leat_options *opts, struct leat_fs **ret_fs);
/* Writes all data back, closes the session and frees the instance. All files and directories of it
 * must be closed before. */
void leat_close_fs(struct leat_fs *fs);

/* Returns a JSON object that describes the instance: session, map, traffic, memory. The caller
 * releases *ret_json with free(3). */
int leat_status_json(struct leat_fs *fs, char **ret_json);

struct leat_statvfs {
	uint64_t total, free, avail; /* bytes; avail: to users without privileges */
	uint64_t inodes, inodes_free;
};
/* Returns the capacity of the file system. */
int leat_statvfs(struct leat_fs *fs, struct leat_statvfs *ret_st);

/* ---- files ---- */
/* Opens or creates a file, which leat_close closes. flags and mode are those of open(2): O_RDONLY,
 * O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECT, O_SYNC, O_DSYNC, O_NOFOLLOW and
 * O_DIRECTORY (which fails with ENOTDIR for a file). The umask that the process had at leat_open_fs
 * applies to mode. */
int leat_open(struct leat_fs *fs, const char *path, int flags, mode_t mode,
	      struct leat_file **ret_file);
/* Waits until the object servers have accepted all written data, so that every client observes it,
 * closes the file and frees it. The data may not be on stable storage yet: call leat_fsync before
 * where that matters. Returns an error of a write that no call has reported; the file is closed in
 * any case. */
int leat_close(struct leat_file *file);
/* Reads len bytes at byte off. Returns the number of bytes read, which is less than len only at the
 * end of the file, or when an error came after some bytes. */
int64_t leat_pread(struct leat_file *file, void *buf, size_t len, uint64_t off);
/* Writes len bytes at byte off; at the end of the file with O_APPEND. Returns the number of bytes
 * written, which is less than len only when an error came after some bytes. */
int64_t leat_pwrite(struct leat_file *file, const void *buf, size_t len, uint64_t off);
/* As leat_pread, at the position of the file, which advances. Calls for one file are executed one
 * after the other. */
int64_t leat_read(struct leat_file *file, void *buf, size_t len);
/* As leat_pwrite, at the position of the file, which advances. Calls for one file are executed one
 * after the other. */
int64_t leat_write(struct leat_file *file, const void *buf, size_t len);
/* Moves the position of the file, in bytes. whence: SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or
 * SEEK_HOLE. Returns the new position. */
int64_t leat_lseek(struct leat_file *file, int64_t off, int whence);
/* Waits until all data and attributes of the file are on stable storage. Returns the first error
 * of the writes before it; an error is reported once. */
int leat_fsync(struct leat_file *file);
/* As leat_fsync, without attributes that are not needed to read the data. */
int leat_fdatasync(struct leat_file *file);
/* Sets the size of the file, in bytes. A larger size adds a hole. */
int leat_ftruncate(struct leat_file *file, uint64_t size);
/* Reserves or frees len bytes at byte off. mode: 0, FALLOC_FL_KEEP_SIZE,
 * FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE; any other fails with
 * EOPNOTSUPP. */
int leat_fallocate(struct leat_file *file, int mode, uint64_t off, uint64_t len);

/* ---- attributes ---- */
/* Bits of leat_stat.flags. */
enum {
	LEAT_STAT_SEALED = 1 /* the file is immutable for ever */
};
struct leat_stat {
	uint64_t ino, size, blocks; /* size in bytes; blocks of 512 bytes */
	uint32_t mode, nlink, uid, gid, rdev, flags;
	struct timespec atime, mtime, ctime, btime;
	uint64_t change; /* increases with every change of the inode */
};
/* Returns the attributes of the file that path leads to. */
int leat_stat(struct leat_fs *fs, const char *path, struct leat_stat *ret_st);
/* Returns the attributes of path; those of a symbolic link itself. */
int leat_lstat(struct leat_fs *fs, const char *path, struct leat_stat *ret_st);
/* Returns the attributes of an open file. */
int leat_fstat(struct leat_file *file, struct leat_stat *ret_st);
/* Sets the size of a file, in bytes. A larger size adds a hole. */
int leat_truncate(struct leat_fs *fs, const char *path, uint64_t size);
/* Sets the permission bits. */
int leat_chmod(struct leat_fs *fs, const char *path, mode_t mode);
/* Sets owner and group; (uid_t)-1 or (gid_t)-1 leaves the respective one unchanged. */
int leat_chown(struct leat_fs *fs, const char *path, uid_t uid, gid_t gid);
/* As leat_chown; changes a symbolic link itself. */
int leat_lchown(struct leat_fs *fs, const char *path, uid_t uid, gid_t gid);
/* Sets the times of access (times[0]) and modification (times[1]), with UTIME_NOW and UTIME_OMIT as
 * in utimensat(2). times NULL: both to the present time. */
int leat_utimens(struct leat_fs *fs, const char *path, const struct timespec times[2]);
/* As leat_utimens; changes a symbolic link itself. */
int leat_lutimens(struct leat_fs *fs, const char *path, const struct timespec times[2]);
/* Returns 0 if the user may access path in the ways of mask: bits R_OK, W_OK, X_OK; or F_OK. Else
 * fails with EACCES. */
int leat_access(struct leat_fs *fs, const char *path, int mask);

/* ---- names ---- */
/* Creates a directory. The umask that the process had at leat_open_fs applies to mode. */
int leat_mkdir(struct leat_fs *fs, const char *path, mode_t mode);
/* Creates a file, a pipe, a socket or a device, as mknod(2). */
int leat_mknod(struct leat_fs *fs, const char *path, mode_t mode, dev_t dev);
/* Removes a directory. Fails with ENOTEMPTY if it has entries. */
int leat_rmdir(struct leat_fs *fs, const char *path);
/* Removes a name of a file; the last one removes the file, when no process has it open. */
int leat_unlink(struct leat_fs *fs, const char *path);
/* Renames `from` to `to`, and replaces the inode that had that name. flags: 0, or of linux/fs.h
 * RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT. */
int leat_rename(struct leat_fs *fs, const char *from, const char *to, unsigned flags);
/* Adds the name `to` to the inode of `from`. If `from` is a symbolic link, the link gets the
 * name. */
int leat_link(struct leat_fs *fs, const char *from, const char *to);
/* Creates a symbolic link at path that contains target. */
int leat_symlink(struct leat_fs *fs, const char *target, const char *path);
/* Reads a symbolic link into buf of size bytes, NUL-terminated. Returns the length without NUL.
 * Fails with ERANGE if it does not fit. */
int64_t leat_readlink(struct leat_fs *fs, const char *path, char *buf, size_t size);

/* ---- directories ---- */
struct leat_dirent {
	uint64_t cookie; /* for leat_seekdir: the position after this entry */
	char name[256];
	struct leat_stat
		st; /* with want_stat of leat_opendir complete; else ino and the type in mode */
};
/* Opens a directory for reading, which leat_closedir closes. want_stat: non-zero to get the
 * attributes of every entry as well. */
int leat_opendir(struct leat_fs *fs, const char *path, int want_stat, struct leat_dir **ret_dir);
/* Returns 1 and the next entry, or 0 at the end. "." and ".." are not returned. One thread at a
 * time may use a directory. */
int leat_readdir(struct leat_dir *dir, struct leat_dirent *ret_entry);
/* Continues after the entry that had this cookie; 0: from the beginning. */
void leat_seekdir(struct leat_dir *dir, uint64_t cookie);
/* Closes the directory and frees it. */
int leat_closedir(struct leat_dir *dir);

/* ---- extended attributes ---- */
/* Reads the value of an attribute of path into buf; symbolic links are followed. Returns its length
 * in bytes; with size 0 only the length. Fails with ENODATA if path has no such attribute, with
 * ERANGE if the value is longer than size. */
int64_t leat_getxattr(struct leat_fs *fs, const char *path, const char *name, void *buf,
		      size_t size);
/* Reads the names of all attributes of path into buf, each with a NUL after it. Returns their
 * length in bytes; with size 0 only the length. */
int64_t leat_listxattr(struct leat_fs *fs, const char *path, char *buf, size_t size);
/* Sets an attribute to size bytes of value. flags: 0, XATTR_CREATE (fails with EEXIST if it exists)
 * or XATTR_REPLACE (fails with ENODATA if it does not). */
int leat_setxattr(struct leat_fs *fs, const char *path, const char *name, const void *value,
		  size_t size, int flags);
/* Removes an attribute. Fails with ENODATA if path has no such attribute. */
int leat_removexattr(struct leat_fs *fs, const char *path, const char *name);

/* ---- layout ---- */
/* How the data of a file is distributed: zero it, set size. */
struct leat_layout {
	size_t size;           /* sizeof(struct leat_layout) */
	uint32_t stripe_count; /* chains that the file lies on; of a directory 0: as many as there
				  are */
	uint32_t chunk_size;   /* bytes */
	uint32_t storage_class, replicas;
	uint32_t compression; /* of whole blocks: 0 none, 1 LZ4; to set: 2 selects none */
	uint32_t inherited;   /* of a directory: 1 if the layout is that of a directory above */
	uint32_t table, seed; /* version of the chain table, and where the stripe starts; read
				 only */
};
/* Returns the layout of a file, or the one that new files of a directory get. */
int leat_layout_get(struct leat_fs *fs, const char *path, struct leat_layout *ret_layout);
/* Sets the layout of a directory, for the files that will be created in it, or of a file that has
 * no data. Members that are 0 stay as they are. */
int leat_layout_set(struct leat_fs *fs, const char *path, const struct leat_layout *layout);

/* ---- asynchronous I/O ---- */
enum leat_io_op {
	LEAT_IO_READ = 1,
	LEAT_IO_WRITE = 2,
	LEAT_IO_FSYNC = 3
};
/* One operation. The caller zeroes it and fills it in; it and buf belong to the library until the
 * operation is done. */
struct leat_io {
	struct leat_file *file;
	enum leat_io_op op;
	void *buf;
	size_t len;   /* bytes */
	uint64_t off; /* bytes */
	/* Called by the thread of the instance when the operation is done; the caller then owns the
	 * struct again. It must not block, and may call only leat_aio_submit of this library. May
	 * be NULL. */
	void (*done)(struct leat_io *io);
	void *arg;      /* the caller's */
	int event_fd;   /* an eventfd(2), to which the library adds 1 after done; 0: none */
	int64_t result; /* bytes or a negative status, once the operation is done */
	uint64_t private_[4];
};
/* Starts n operations, which are executed in no particular order. Returns 0; or a negative status,
 * and starts none. Does not block. */
int leat_aio_submit(struct leat_fs *fs, struct leat_io *const *ios, unsigned n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
