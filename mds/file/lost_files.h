/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files lose data when chains are lost: a search through all inodes of a snapshot of the
 * store. Soft state of open files does not matter: a file to which a client may have written beyond
 * the recorded size is unsettled in its record.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_LOST_FILES_H
#define LEAT_MDS_FILE_LOST_FILES_H

#include "common/proto/mds_proto.h"

struct cluster;
struct inode_rec;
struct mds;

/* Files that are listed, at most. All are counted. */
#define LOST_LISTED_MAX (1u << 20)

struct lost_files {
	uint64_t n_seen, n_inodes; /* inodes searched, and to be searched */
	uint64_t n;                /* files that lose data */
	struct ino *listed;        /* the first of them */
	uint32_t n_listed, cap;
	struct ino *unsettled; /* those that are not settled */
	uint32_t n_unsettled, cap_unsettled;
};

/* Finds the files that have data on the chains for which lost[id - 1] is set, and sets hit[id - 1]
 * for each chain on which one has data. A settled file has data up to its size, an unsettled one
 * may have data anywhere. Returns 0, -LE_CANCELED when the server stops, -LE_NOMEM,
 * -LE_CORRUPT_STORE or the error of the store. Yields. */
int lost_files_find(struct mds *m, const bool *lost, bool *hit,
		    struct lost_files *ret) CHECK_RESULT;
/* True if the file has lost data with chains that were given up. Does not yield. */
bool lost_files_has(const struct cluster *c, const struct inode_rec *rec);
/* Called when the chains are lost: an unsettled file that seems to end before all that is lost
 * gets a size beyond the first lost byte, so that reading it to its end fails. Returns 0 or the
 * error of op_mutate. Yields. */
int lost_files_extend(struct mds *m, const struct lost_files *lf) CHECK_RESULT;
/* Encodes the files from number `from` on into buf, as lost_file with their paths: as many as fit,
 * at most max. *ret_len: the bytes used. Returns the number of the next file, 0 if there is none.
 * Yields. */
uint64_t lost_files_encode(struct mds *m, const struct lost_files *lf, uint64_t from, uint32_t max,
			   struct bytes buf, uint32_t *ret_len);
/* Frees the lists, and clears the struct. Does not yield. */
void lost_files_fini(struct lost_files *lf);

#endif
