/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to the contents of a stage directory without trust. Other users may have put files there
 * first: DIR may be writable for every user, and the stager is often root.
 *
 *   DIR/.leat/ID/part/7    DIR is opened by its name, as the operator gave it; from .leat on, each
 *                          folder is opened by a descriptor of its parent, never through a link.
 *                          Its owner must be this process's user or root, and no other user may
 *                          have the right to write to it.
 *   .../data/sub/name      folders of a copy's data may have other owners: those of the files. No
 *                          link is followed, no path leaves the copy (openat2), and no mount is
 *                          crossed.
 *
 * A file that is opened must be a regular file with one name. Unless it is below data/, its owner
 * must be this user or root. All else is refused with -LE_FOREIGN, and beneath_why returns path and
 * reason.
 *
 * A file made through the env is private (0600) until grant.h sets its rights. Files that other
 * users may read from the beginning (folders, marks, lock files of leases) get their mode
 * regardless of the umask.
 *
 * It is an env, so code written for an env works unchanged. Paths without a component ".leat" are
 * passed to the inner env. Owned by one loop. The calls in the section "these block" block for as
 * long as a local file system needs, and may be made on any env, or on NULL.
 */
#ifndef LEAT_CLIENT_DATASET_BENEATH_H
#define LEAT_CLIENT_DATASET_BENEATH_H

#include <stdbool.h>
#include <sys/stat.h>

#include "common/rt/env.h"

/* Wraps inner, which is borrowed. -LE_NOMEM */
int beneath_create(struct env *inner, struct env **ret_env) CHECK_RESULT;
void beneath_destroy(struct env *env); /* NULL is fine */

/* Returns and clears the last refusal: the path, and a sentence with the remedy. False: nothing
 * was refused, or env was not made by beneath_create. Texts are truncated. */
struct beneath_why {
	char path[4096];
	char what[200];
};
bool beneath_why(struct env *env, struct beneath_why *ret_why);

/* ---- these block ---- */
/* Opens a file. Returns a descriptor, close-on-exec, or a status. O_CREAT and O_TRUNC are allowed,
 * O_PATH is not. */
int beneath_open(struct env *env, const char *path, int flags, mode_t mode) CHECK_RESULT;
/* Returns the attributes of path. Does not follow a link at the end. */
int beneath_stat(struct env *env, const char *path, struct stat *ret_st) CHECK_RESULT;
/* Opens a folder, to read or sync it, or to open its entries. Returns a descriptor. */
int beneath_open_dir(struct env *env, const char *path) CHECK_RESULT;
/* Records for beneath_why that the file at path is not trusted. Returns -LE_FOREIGN. */
int beneath_refuse(struct env *env, const char *path, const char *why) CHECK_RESULT;
/* Renames `from` to `name` in the folder dirfd, which the caller has checked. */
int beneath_rename_into(struct env *env, const char *from, int dirfd,
			const char *name) CHECK_RESULT;
int beneath_rename(struct env *env, const char *from, const char *to) CHECK_RESULT;
int beneath_unlink(struct env *env, const char *path) CHECK_RESULT;
int beneath_symlink(struct env *env, const char *target, const char *path) CHECK_RESULT;
/* Returns the free bytes of the file system of path, and its device. path is below .leat, or a
 * DIR that the operator has named. */
int beneath_free(struct env *env, const char *path, uint64_t *ret_bytes,
		 dev_t *ret_dev) CHECK_RESULT;

/* Opens a path below dirfd, without following a link or leaving dirfd; flags and more_resolve as
 * for openat2(2). Returns a descriptor. */
int beneath_openat(int dirfd, const char *path, int flags, uint64_t more_resolve) CHECK_RESULT;
/* True if the path has a component ".leat": then it cannot be a directory for copies. */
bool beneath_is_below(const char *path);
/* True if the owner is this user or root, and no other user may write. */
bool beneath_is_ours(const struct stat *st);

#endif
