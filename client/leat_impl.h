/*
 * How the public calls get to the loop that does the work. Each fills in a struct api_call and a
 * function, which runs as a fiber of the instance's loop while the caller's thread waits.
 */
#ifndef LEAT_CLIENT_LEAT_IMPL_H
#define LEAT_CLIENT_LEAT_IMPL_H

#include <pthread.h>

#include "client/include/leat/leat.h"
#include "client/ll.h"
#include "common/rt/env.h"

#define LEAT_FS_MAGIC   0x4c465353u /* LFSS */
#define LEAT_FILE_MAGIC 0x4c46494cu /* LFIL */
#define LEAT_DIR_MAGIC  0x4c444952u /* LDIR */
#define LEAT_PATH_MAX   4096u

/* Immutable after leat_open_fs, except for what the loop owns behind client. */
struct leat_fs {
	uint32_t magic;
	struct env *env;
	struct loop *loop;
	struct transport *transport;
	struct client *client;
	struct cred cred;
	uint8_t groups[LEAT_GROUPS_MAX * 4];
	mode_t umask;
};

struct leat_file {
	uint32_t magic;
	struct leat_fs *fs;
	struct ll_file *ll; /* the loop's */
	int flags;
	pthread_mutex_t pos_lock; /* guards pos */
	uint64_t pos;
};

/* One call: what goes in, what comes out; each function uses what it needs. */
struct api_call {
	int64_t (*fn)(struct api_call *a);
	struct leat_fs *fs;
	const char *path, *path2;
	struct leat_file *file;
	void *buf;
	const void *in;
	uint64_t a, b;
	uint32_t flags, mode;
	int64_t result;
};

/* From any thread but the loop's. Returns a->result. */
int64_t api_run(struct leat_fs *fs, struct api_call *a);
mode_t process_umask(void);

/* ---- leat_path.c, in fibers ---- */
/* The inode that a path leads to. follow: also a link at its end. */
int path_find(struct leat_fs *fs, const char *path, bool follow,
	      struct attr *ret_attr) CHECK_RESULT;
/* The directory of the last component and its name (into name, LEAT_NAME_MAX + 1 bytes). -LE_BUSY
 * for paths without one ("/", "a/.."). */
int path_parent(struct leat_fs *fs, const char *path, struct ino *ret_parent,
		char *ret_name) CHECK_RESULT;
/* The same of what a link there leads to, which need not exist. */
int path_target(struct leat_fs *fs, const char *path, struct ino *ret_parent,
		char *ret_name) CHECK_RESULT;

void stat_from_attr(const struct attr *a, struct leat_stat *ret_st);

#endif
