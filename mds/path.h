/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path of an inode, by the records of the store, from the inode up to the root. A file with
 * several names is found under the name that it was given last. Only durable records are read. A
 * rename during the search may lead to -LE_NOENT.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_PATH_H
#define LEAT_MDS_PATH_H

#include "common/proto/cred.h"

struct mds;

/* The longest path that is found, and the size of the buffers of callers. */
#define PATH_FIND_SIZE 4096u

/* Writes the path of ino to the end of buf, from *ret_at up to size (at least 1), without a NUL.
 * The path of the root is "/". cred: a user that must be allowed to list and to search all
 * directories above ino; NULL: no check. Returns 0, -LE_NOENT if the inode has no name,
 * -LE_NAMETOOLONG if the path does not fit, -LE_ACCES, or the error of the store. *ret_at is
 * undefined then. Yields. */
int path_find(struct mds *m, const struct cred *cred, struct ino ino, char *buf, uint32_t size,
	      uint32_t *ret_at) CHECK_RESULT;

#endif
