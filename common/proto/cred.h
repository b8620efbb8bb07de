/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials of a request, and what mode bits allow them. The MDS decides by these functions, and
 * so do clients for inodes without access lists. Pure functions.
 */
#ifndef LEAT_COMMON_PROTO_CRED_H
#define LEAT_COMMON_PROTO_CRED_H

#include "common/proto/types.h"

enum {
	PERM_X = 1,
	PERM_W = 2,
	PERM_R = 4
};

/* Returns 0, or -LE_INVAL: the groups are malformed. */
int cred_check(const struct cred *c) CHECK_RESULT;
bool cred_in_group(const struct cred *c, uint32_t gid);
/* Returns whether owner, group and mode of an inode without an access list allow mask to a user
 * that is not root. */
bool cred_mode_allows(const struct cred *c, const struct attr *a, uint32_t mask);

#endif
