/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole trees: removing, counting and copying them, with many operations in flight. A tree is in a
 * Leat namespace or in the local file system; source and copy may be in different ones.
 *
 * Functions block, may be called from any thread, and return 0 or a negative status (leat_errno,
 * leat_strerror). A path that fails does not end the call: `failed` is called for it, the work
 * continues, and the result counts it. Structs that begin with their size are zeroed and given
 * their size by the caller; later versions append members.
 *
 * Symbolic links are never followed below the given path, nor is its last component. Every step
 * starts from an open directory or an inode, so a directory that another program exchanges for a
 * link during the work cannot lead out of the tree. Permissions are those of the process at the
 * time of leat_open_fs.
 */
#ifndef LEAT_TREE_H
#define LEAT_TREE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct leat_fs; /* a connection to a Leat cluster, see leat.h */

/* ---- options and results ---- */
/* The work done so far. */
struct leat_tree_progress {
	size_t size;
	uint64_t files, dirs; /* files of any kind but directories; directories */
	uint64_t bytes;       /* of data copied */
	uint64_t failed;      /* paths that failed */
};

struct leat_tree_options {
	size_t size;
	/* Operations in flight at a time; 0: 64. */
	uint32_t width;
	/* Called for each path that failed. what: a phrase to put before the path, "cannot remove".
	 * Called from a thread of the library; must not call the library. May be NULL. */
	void (*failed)(void *arg, const char *what, const char *path, int status);
	/* Called at most 10 times a second, from a thread of the library; must not call the
	 * library. May be NULL. */
	void (*progress)(void *arg, const struct leat_tree_progress *p);
	void *arg; /* passed to failed and progress */
	/* A non-zero value ends the call, which fails with EINTR; a signal handler may set it.
	 * Operations in flight are completed or undone. May be NULL. */
	const volatile int *cancel;
};

struct leat_tree_result {
	size_t size;
	uint64_t files, dirs, bytes; /* done, as in struct leat_tree_progress */
	uint64_t failed;             /* paths that failed */
	uint64_t elapsed_us;
};

/* ---- removing ---- */
/* Removes path and, if it is a directory, all that is below it. fs NULL: of the local file
 * system, with an absolute path. Entries that other programs add during the call are removed
 * too, or their directory is reported as not empty. opts may be NULL. Paths that fail are
 * counted in *ret_result and are no failure of the call. */
int leat_tree_remove(struct leat_fs *fs, const char *path, const struct leat_tree_options *opts,
		     struct leat_tree_result *ret_result);

/* ---- counting ---- */
struct leat_tree_sum {
	size_t size;
	uint64_t disk;     /* bytes occupied */
	uint64_t apparent; /* bytes of size */
	uint64_t inodes;   /* an inode with several names counts once */
};
/* Called for path and for each directory below it down to max_depth, after the directories in
 * it, with the sum of all that it holds. An inode with several names counts where it is found
 * first. Must not call the library. */
typedef void leat_tree_each(void *arg, const char *path, uint32_t depth,
			    const struct leat_tree_sum *sum);
/* Adds up the space of path and all that is below it, and calls `each` with the sums. fs NULL: of
 * the local file system, with an absolute path. opts may be NULL; its arg is passed to `each`. */
int leat_tree_usage(struct leat_fs *fs, const char *path, uint32_t max_depth, leat_tree_each *each,
		    const struct leat_tree_options *opts, struct leat_tree_result *ret_result);

/* ---- copying ---- */
/* What a copy keeps of its original: bits of `keep` of leat_tree_copy. */
enum leat_tree_keep {
	LEAT_KEEP_MODE = 1,
	LEAT_KEEP_OWNER = 2, /* where the user may set it */
	LEAT_KEEP_TIMES = 4,
	LEAT_KEEP_XATTRS = 8, /* and access lists, where the other file system has them */
	LEAT_KEEP_LINKS = 16, /* several names of one inode */
	LEAT_KEEP_ALL = 31,
	LEAT_TREE_NEW_ONLY = 32, /* files that exist already stay as they are */
};
struct leat_tree_place {
	struct leat_fs *fs; /* NULL: the local file system */
	const char *path;   /* absolute */
};
/* Copies the file or the tree `from`, so that the copy has the path `to`. An existing directory
 * is added to; an existing file is replaced as a whole and never written into. Holes stay holes.
 * A file that cannot be completed does not keep its final name. If both places are in Leat, they
 * must be of one instance. opts may be NULL. */
int leat_tree_copy(const struct leat_tree_place *from, const struct leat_tree_place *to,
		   unsigned keep, const struct leat_tree_options *opts,
		   struct leat_tree_result *ret_result);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
