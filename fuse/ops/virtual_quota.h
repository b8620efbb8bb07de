/* SPDX-License-Identifier: Apache-2.0 */
/* The values of leat.quota and leat.project, for virtual_xattr.c. */
#ifndef LEAT_FUSE_OPS_VIRTUAL_QUOTA_H
#define LEAT_FUSE_OPS_VIRTUAL_QUOTA_H

#include "fuse/mount.h"

/* Writes the value as text; size is at least 512. Return 0 or a status. Yield. */
int virtual_xattr_quota_text(fuse_req_t req, fuse_ino_t ino, char *text, size_t size) CHECK_RESULT;
int virtual_xattr_project_text(fuse_req_t req, fuse_ino_t ino, char *text,
			       size_t size) CHECK_RESULT;
/* Parse a value, and send it to the metadata server, which refuses it unless the caller is root.
 * The first changes text. Return 0, -LE_INVAL if it is not a value, or another status. Yield. */
int virtual_xattr_quota_set(fuse_req_t req, fuse_ino_t ino, char *text) CHECK_RESULT;
int virtual_xattr_project_set(fuse_req_t req, fuse_ino_t ino, const char *text) CHECK_RESULT;

#endif
