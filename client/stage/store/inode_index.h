/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which inodes of a cluster a staged copy holds, and at which version: a mount finds files by
 * inode number, not by path. One file for each copy that is READY, DIR/.leat/inodes/ID: written
 * after the READY mark, removed before it, replaced when the copy turns out to be that of other
 * inodes or versions as well (the same content, staged again). So the folder's modification time
 * changes when a copy becomes READY or is removed.
 *
 *   "LEATINO2", the cluster's uuid (16 bytes), n (8), bytes of all paths (8), uid of the
 *   manifest's maker (8), xxh3 of what follows (8); n entries, ascending by inode; the paths,
 *   each with a NUL. All numbers are little-endian. Readers check every byte first.
 *
 * That an inode has this content is the claim of the manifest's maker. A reader by inode number
 * accepts it from root, and from other users only for their own files: otherwise any user could
 * give the files of others a content of his choice.
 */
#ifndef LEAT_CLIENT_STAGE_STORE_INODE_INDEX_H
#define LEAT_CLIENT_STAGE_STORE_INODE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "client/dataset/manifest.h"
#include "client/stage/store/local_store.h"
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
	uint64_t said_by;                  /* uid of the manifest's maker */
	const struct inode_entry *entries; /* NULL when n is 0 */
	uint64_t n;
	const char *paths;
	void *map; /* the whole file */
	size_t map_len;
};

/* Writes the index of a READY copy, with the inodes of m's rows; said_by: the uid of m's maker.
 * The copy's stamps are loaded. Writes nothing if the file is right already. Yields. */
int inode_index_publish(struct local_store *s, const struct manifest *m, const struct uuid *cluster,
			uint32_t said_by) CHECK_RESULT;
/* Removes the index; before the copy's mark READY is removed. Yields. */
int inode_index_withdraw(struct local_store *s) CHECK_RESULT;

/* Encodes the bytes of the file, malloc'd. stamps: of each file of m; NULL: none. -LE_NOMEM */
int inode_index_encode(const struct manifest *m, const struct file_stamp *stamps,
		       const struct uuid *cluster, uint32_t said_by, void **ret_data,
		       size_t *ret_len) CHECK_RESULT;
/* Checks every byte: -LE_CORRUPT. The index refers to data, which the caller owns. */
int inode_index_decode(const void *data, size_t len, struct inode_index *ret_index) CHECK_RESULT;
/* Maps the file that is open as fd: it must never be changed in place. Blocks. */
int inode_index_map(int fd, struct inode_index *ret_index) CHECK_RESULT;
void inode_index_unmap(struct inode_index *x);

/* Returns the entry of an inode; NULL: it is not in the index. */
const struct inode_entry *inode_index_find(const struct inode_index *x, uint64_t ino);
static inline const char *inode_index_path(const struct inode_index *x, const struct inode_entry *e)
{
	return x->paths + e->path;
}

#endif
