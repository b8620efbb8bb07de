/*
 * Who asks, and what mode bits let them do: what the MDS decides by, and clients where they need
 * not ask it. Pure functions.
 */
#ifndef LEAT_COMMON_PROTO_CRED_H
#define LEAT_COMMON_PROTO_CRED_H

#include "common/proto/types.h"

enum {
	PERM_X = 1,
	PERM_W = 2,
	PERM_R = 4
};

/* -LE_INVAL: malformed (groups). */
int cred_check(const struct cred *c) CHECK_RESULT;
bool cred_in_group(const struct cred *c, uint32_t gid);
/* What owner, group and mode say of an inode without an access list, to anybody but root. */
bool cred_mode_allows(const struct cred *c, const struct attr *a, uint32_t mask);

#endif
