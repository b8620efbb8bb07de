/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes "leat.*", which are computed and not stored: layout, status, memory,
 * connections, quota. */
#ifndef LEAT_FUSE_OPS_VIRTUAL_XATTR_H
#define LEAT_FUSE_OPS_VIRTUAL_XATTR_H

#include "fuse/mount.h"

/* Each returns true if the attribute is one of these: then req has been answered. Yield. */
bool virtual_xattr_get(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
bool virtual_xattr_set(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t size);

/* Parses "width=4 chunk_size=1048576 ...", words of leat.layout. -LE_INVAL for a word or number
 * that is unknown or out of range; *ret_layout is unchanged then. Does not yield. */
int virtual_layout_parse(const char *text, size_t size, struct layout *ret_layout) CHECK_RESULT;

#endif
