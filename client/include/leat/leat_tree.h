/*
 * Whole trees, with many operations under way at once: removing, counting, copying; of a Leat
 * namespace, of the local file system, and between the two.
 *
 * Functions block, may be called from any thread, and return 0 or a negative status (leat_errno,
 * leat_strerror). One path that fails does not end the work: it is told, the others go on, and the
 * result counts it. Structs that begin with their size are to be set to zero and given their size
 * by the caller, so that they can grow.
 *
 * Symbolic links are never followed below the given path, nor is its last component. Every step is
 * taken from an open directory or an inode, so who exchanges a directory for a link meanwhile leads
 * nobody elsewhere. Rights are those of the process at the time of leat_open_fs.
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

struct leat_tree_progress {
	size_t size;
	uint64_t files, dirs; /* done, of all kinds but directories; directories */
	uint64_t bytes;       /* of data copied */
	uint64_t failed;
};

struct leat_tree_options {
	size_t size;
	/* Operations under way at once; 0: 64. */
	uint32_t width;
	/* A path could not be done; what: "cannot remove", a phrase before the path. From a thread
	 * of the library; must not call back into it. May be NULL. */
	void (*failed)(void *arg, const char *what, const char *path, int status);
	/* At most 10 times a second, the same way. May be NULL. */
	void (*progress)(void *arg, const struct leat_tree_progress *p);
	void *arg;
	/* Non-zero ends the call with -LE_INTR's status; may be set from a signal handler. What is
	 * under way is brought to an end or taken back. May be NULL. */
	const volatile int *cancel;
};

struct leat_tree_result {
	size_t size;
	uint64_t files, dirs, bytes;
	uint64_t failed; /* paths that could not be done */
	uint64_t elapsed_us;
};

/* path, and all below it if it is a directory. fs NULL: of the local file system, absolute. What
 * others make meanwhile is removed too, or the directory is told as not empty. */
int leat_tree_remove(struct leat_fs *fs, const char *path, const struct leat_tree_options *opts,
		     struct leat_tree_result *ret_result);

struct leat_tree_sum {
	size_t size;
	uint64_t disk;     /* bytes occupied */
	uint64_t apparent; /* bytes of size */
	uint64_t inodes;   /* several names of an inode count once */
};
/* Called for path and each directory below it down to max_depth, directories after what is in them,
 * with what they hold in all; of several names of an inode the first one met counts. Must not call
 * back into the library. */
typedef void leat_tree_each(void *arg, const char *path, uint32_t depth,
			    const struct leat_tree_sum *sum);
int leat_tree_usage(struct leat_fs *fs, const char *path, uint32_t max_depth, leat_tree_each *each,
		    const struct leat_tree_options *opts, struct leat_tree_result *ret_result);

enum leat_tree_keep {
	LEAT_KEEP_MODE = 1,
	LEAT_KEEP_OWNER = 2, /* where that is permitted */
	LEAT_KEEP_TIMES = 4,
	LEAT_KEEP_XATTRS = 8, /* and access lists, where the other side has them */
	LEAT_KEEP_LINKS = 16, /* several names of one inode */
	LEAT_KEEP_ALL = 31,
	LEAT_TREE_NEW_ONLY = 32, /* what is there already stays as it is */
};
struct leat_tree_place {
	struct leat_fs *fs; /* NULL: the local file system */
	const char *path;   /* absolute */
};
/* from becomes to, a file or a tree; what is there already is added to, a file replaced as a whole,
 * never written into. Holes stay holes. A file has its final name when it is whole, or loses it
 * when it cannot be made whole. Two places in Leat are in the same instance. */
int leat_tree_copy(const struct leat_tree_place *from, const struct leat_tree_place *to,
		   unsigned keep, const struct leat_tree_options *opts,
		   struct leat_tree_result *ret_result);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
