/*
 * Which inodes of a cluster a staged copy holds, and at which version: a mount knows files by
 * number, not by path. One file for each copy that is READY, DIR/.leat/inodes/ID: written after the
 * READY mark, taken away before it, replaced when the copy turns out to be that of other inodes or
 * versions as well (the same content, staged again). So the folder's modification time tells
 * whether anything became ready or went.
 *
 *   "LEATINO2", the cluster's uuid (16 bytes), n (8), bytes of all paths (8), who says so: a uid
 * (8), xxh3 of what follows (8); n entries, ascending by inode; the paths, each with a NUL All
 * numbers are little-endian. Readers believe nothing before it has been checked.
 *
 * That an inode has this content is what the manifest's maker says. Whoever reads by inode number
 * believes it of root, and of others for their own files only: else anybody could give others'
 * files a content of his choice.
 */
#ifndef LEAT_STAGE_INODE_INDEX_H
#define LEAT_STAGE_INODE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "client/stage/local_store.h"
#include "client/stage/manifest.h"
#include "common/base/status.h"
#include "common/base/uuid.h"

struct inode_entry {
	uint64_t ino, ver, size;
	uint64_t path; /* where its path begins, among the paths */
	struct file_stamp stamp; /* the copy's file, as it was when it was verified last */
};

/* Immutable; any thread may read it. */
struct inode_index {
	struct uuid cluster;
	uint64_t said_by;                  /* uid */
	const struct inode_entry *entries; /* NULL when n is 0 */
	uint64_t n;
	const char *paths;
	void *map; /* the whole file */
	size_t map_len;
};

/* The copy, whose stamps are loaded, is READY, and m says of which inodes. Nothing is written when
 * the file says so already. Yields. */
int inode_index_publish(struct local_store *s, const struct manifest *m, const struct uuid *cluster,
			uint32_t said_by) CHECK_RESULT;
/* Before the copy ceases to be READY. Yields. */
int inode_index_withdraw(struct local_store *s) CHECK_RESULT;

/* The bytes of the file, malloc'd. stamps: of each file of m; NULL: none is known. */
int inode_index_encode(const struct manifest *m, const struct file_stamp *stamps,
		       const struct uuid *cluster, uint32_t said_by, void **ret_data,
		       size_t *ret_len) CHECK_RESULT;
/* Checks every byte: -LE_CORRUPT. The index refers to data, which the caller owns. */
int inode_index_decode(const void *data, size_t len, struct inode_index *ret_index) CHECK_RESULT;
/* Maps the file that is open as fd: it must never be changed in place. Blocks. */
int inode_index_map(int fd, struct inode_index *ret_index) CHECK_RESULT;
void inode_index_unmap(struct inode_index *x);

/* NULL: not in it */
const struct inode_entry *inode_index_find(const struct inode_index *x, uint64_t ino);
static inline const char *inode_index_path(const struct inode_index *x, const struct inode_entry *e)
{
	return x->paths + e->path;
}

#endif
