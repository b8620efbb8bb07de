/* SPDX-License-Identifier: Apache-2.0 */
/* The caller of a request: user, groups, capabilities, and which bits of a mode it may keep. The
 * kernel sends user, group and thread id; the rest is read from /proc. A thread that has ended has
 * no groups and no capabilities. */
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

/* For a file that is written or truncated: removes the bits that the caller may not leave, that is
 * set-user-id always; set-group-id where the group may execute the file, and otherwise only if the
 * caller is not in that group. Returns 0 or a status. Yields. */
int drop_set_ids(fuse_req_t req, fuse_ino_t ino) CHECK_RESULT;
/* Like drop_set_ids(), but does nothing if the caller is root. For requests in which the kernel
 * does not report whether the caller may leave the bits; a caller with CAP_FSETID removes them,
 * too. Yields. */
int drop_set_ids_for_user(fuse_req_t req, fuse_ino_t ino) CHECK_RESULT;

#endif
