/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the public calls of libleat reach the loop that does the work. Each fills in a struct
 * api_call and a function. The function runs as a fiber of the instance's loop while the caller's
 * thread waits.
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

/* Immutable after leat_open_fs, except for the client, which the loop owns. */
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

/* An open file of the public library. Any thread may use it. */
struct leat_file {
	uint32_t magic;
	struct leat_fs *fs;
	struct ll_file *ll; /* owned by the loop */
	int flags;
	pthread_mutex_t pos_lock; /* guards pos */
	uint64_t pos;
};

/* The arguments and the result of one call; each function uses what it needs. */
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

/* Runs a->fn as a fiber of the instance's loop and waits for it. Returns a->result. From any thread
 * but the loop's. */
int64_t api_run(struct leat_fs *fs, struct api_call *a);
/* Returns the process's umask. */
mode_t process_umask(void);

/* ---- leat_path.c: called in fibers; they yield ---- */
/* Returns the attributes of the inode at a path. follow: follows a symbolic link at its end. */
int path_find(struct leat_fs *fs, const char *path, bool follow,
	      struct attr *ret_attr) CHECK_RESULT;
/* Returns the directory of the path's last component, and its name in ret_name (LEAT_NAME_MAX + 1
 * bytes). Returns -LE_BUSY for a path without a last name ("/", "a/.."). */
int path_parent(struct leat_fs *fs, const char *path, struct ino *ret_parent,
		char *ret_name) CHECK_RESULT;
/* Like path_parent, but if the last component is a symbolic link, for the link's target, which need
 * not exist. */
int path_target(struct leat_fs *fs, const char *path, struct ino *ret_parent,
		char *ret_name) CHECK_RESULT;

/* Converts attributes to the public struct. */
void stat_from_attr(const struct attr *a, struct leat_stat *ret_st);

#endif
