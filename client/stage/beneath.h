/*
 * What lies below a stage directory, reached without believing any of it. Others may have been
 * there first: DIR may be writable by everybody, and whoever stages is often root.
 *
 *   DIR/.leat/ID/part/7    DIR by its name, as the operator gave it; from .leat on each folder by a
 *                          descriptor of the one above it, never by a link. It must be a folder of
 *                          this process's user or of root, and nobody else may write to it.
 *   .../data/sub/name      below a copy's data/ folders may be others': the owners of the files.
 *                          No link is followed and nothing outside is reached (openat2), nor
 *                          what somebody has mounted there.
 *
 * A file that is opened must be a regular one with one name, and but for those below data/ belong
 * to this user or to root. Everything else is -LE_FOREIGN, and beneath_why says what and why.
 *
 * What is made through the env is its maker's alone (0600) until grant.h says who else may read it.
 * What others may read from the beginning (folders, marks, what leases lock) has its mode whatever
 * this process's umask is.
 *
 * It is an env: code that is written for one needs no other calls. A path without a component
 * ".leat" goes to the env below unchanged. Owned by one loop; the calls that are marked so block
 * for as long as a local file system takes and may be made on any env, or on NULL.
 */
#ifndef LEAT_STAGE_BENEATH_H
#define LEAT_STAGE_BENEATH_H

#include <stdbool.h>
#include <sys/stat.h>

#include "common/rt/env.h"

/* inner is borrowed. */
int beneath_create(struct env *inner, struct env **ret_env) CHECK_RESULT;
void beneath_destroy(struct env *env); /* NULL is fine */

/* What was refused last, and a sentence with what to do about it; forgotten then. False: nothing
 * was, or env is none of these. Texts are cut to what fits. */
struct beneath_why {
	char path[4096];
	char what[200];
};
bool beneath_why(struct env *env, struct beneath_why *ret_why);

/* ---- these block ---- */
/* A descriptor, close-on-exec, or a status. O_CREAT and O_TRUNC are fine; O_PATH is not. */
int beneath_open(struct env *env, const char *path, int flags, mode_t mode) CHECK_RESULT;
/* Of what has that name itself. */
int beneath_stat(struct env *env, const char *path, struct stat *ret_st) CHECK_RESULT;
/* Of a folder, to read or sync it, or to go on from. */
int beneath_open_dir(struct env *env, const char *path) CHECK_RESULT;
/* What is at path is not to be believed: -LE_FOREIGN, with why. */
int beneath_refuse(struct env *env, const char *path, const char *why) CHECK_RESULT;
/* Becomes `name` in the folder that dirfd is, which the caller has looked at. */
int beneath_rename_into(struct env *env, const char *from, int dirfd,
			const char *name) CHECK_RESULT;
int beneath_rename(struct env *env, const char *from, const char *to) CHECK_RESULT;
int beneath_unlink(struct env *env, const char *path) CHECK_RESULT;
int beneath_symlink(struct env *env, const char *target, const char *path) CHECK_RESULT;
/* Bytes that are free where path lies, which is below .leat, or a DIR (named by the operator); and
 * on which device that is. */
int beneath_free(struct env *env, const char *path, uint64_t *ret_bytes,
		 dev_t *ret_dev) CHECK_RESULT;

/* Below dirfd, by no link, without leaving it; flags and more_resolve as for openat2(2). */
int beneath_openat(int dirfd, const char *path, int flags, uint64_t more_resolve) CHECK_RESULT;
/* It has a component ".leat": no directory for copies. */
bool beneath_is_below(const char *path);
/* Nobody but its owner may write to it, who is this user (or root). */
bool beneath_is_ours(const struct stat *st);

#endif
