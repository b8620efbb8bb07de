/* SPDX-License-Identifier: Apache-2.0 */
/* Removes set-user-id and set-group-id from a file that is written or truncated. */
#ifndef LEAT_FUSE_OPS_SET_IDS_H
#define LEAT_FUSE_OPS_SET_IDS_H

#include "fuse/mount.h"

/* Removes the bits that the caller may not leave: set-user-id always; set-group-id where the group
 * may execute the file, and otherwise only if the caller is not in that group. Returns 0 or a
 * status. Yields. */
int drop_set_ids(fuse_req_t req, fuse_ino_t ino) CHECK_RESULT;
/* Like drop_set_ids(), but does nothing if the caller is root. For requests in which the kernel
 * does not report whether the caller may leave the bits; a caller with CAP_FSETID removes them,
 * too. Yields. */
int drop_set_ids_for_user(fuse_req_t req, fuse_ino_t ino) CHECK_RESULT;

#endif
