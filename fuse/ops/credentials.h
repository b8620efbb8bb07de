/* SPDX-License-Identifier: Apache-2.0 */
/* The caller of a request: user, groups, capabilities. The kernel sends user, group and thread id;
 * the rest is read from /proc. A thread that has ended has no groups and no capabilities. */
#ifndef LEAT_FUSE_OPS_CREDENTIALS_H
#define LEAT_FUSE_OPS_CREDENTIALS_H

#include "fuse/mount.h"

#define REQ_GROUPS_MAX 256u

struct req_cred {
	struct cred cred;
	uint8_t groups[REQ_GROUPS_MAX * 4]; /* cred.groups points here */
};

/* Fills in the caller's identity. The kernel has checked permissions (CRED_CHECKED), unless the
 * metadata server checks them itself (ll_mds_checks_access): then with up to REQ_GROUPS_MAX groups.
 * Does not yield. */
void req_cred_init(fuse_req_t req, struct req_cred *rc);
/* Like req_cred_init(), for an operation that only the owner of the inode may do. The kernel checks
 * the owner that it last received, which is stale when another mount has changed it. So the
 * metadata server checks again, unless the caller has a capability for it. Yields. */
void req_cred_of_owner(fuse_req_t req, fuse_ino_t ino, struct req_cred *rc);
/* True if the caller has CAP_SYS_ADMIN in the daemon's own user namespace. Reads /proc; does not
 * yield. */
bool req_is_admin(fuse_req_t req);

#endif
