/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capabilities of an open file, and requests to object servers under them. A capability that has
 * expired or was refused is renewed at the metadata server. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_CAPABILITY_H
#define LEAT_CLIENT_DATA_CAPABILITY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct cap;
struct cred;
struct inode_io;
struct mds_close_req;
struct replica_route;
struct rpc_call;

/* Index of a capability in inode_io.caps. */
enum cap_right {
	CAP_TO_READ = 0,
	CAP_TO_WRITE = 1
};

/* Pointers to the fields of a request that depend on the capability. They are filled in for each
 * attempt. */
struct cap_auth {
	enum cap_right right;
	struct cap *cap;
	uint32_t *gen;
	uint32_t session_gen; /* 0: any session; else -LE_SESSION_GONE in another one */
};

/* Returns the credentials with which the client renews capabilities of an open file. Does not
 * yield. */
struct cred cap_renew_cred(const struct inode_io *d);
/* Stores a capability that a reply of the MDS grants. Does not yield. */
void cap_set(struct inode_io *d, const struct cap *cap);
/* Sends a close to the MDS, and repeats it until it is answered or the client ends, also in a new
 * session once the file is open there. Returns 0 or the error. Yields. */
int cap_close(struct inode_io *d, struct mds_close_req *req) CHECK_RESULT;
/* Opens an open file once more, with flags of open(2), and then closes one open with end_flags in
 * the background, so that no open is left over if the caller is interrupted. Returns 0 or the
 * error. Yields. */
int cap_reopen(struct inode_io *d, uint32_t flags, uint32_t end_flags) CHECK_RESULT;
/* Returns the cached capability if it belongs to the present session and data generation; otherwise
 * requests one. Returns 0 or the error. Yields. */
int cap_get(struct inode_io *d, enum cap_right right, struct cap *ret_cap) CHECK_RESULT;

/* Returns true if an object server's status means that the capability must be renewed. */
static inline bool cap_is_refused(int status)
{
	return status == -LE_BAD_CAP || status == -LE_CAP_EXPIRED;
}

/* Marks a refused capability as unusable, unless it has been replaced already. Does not yield. */
void cap_void(struct inode_io *d, const struct cap *cap, enum cap_right right);
/* Makes oss_call for chunk idx of the inode, and renews the capability if it is refused.
 * replica_route: as for oss_call. Returns the reply's status; -LE_CAP_EXPIRED if new capabilities
 * were expired too, for several seconds (logged); -LE_IO if the outcome of a mutation is unknown.
 * Yields. */
int cap_call(struct inode_io *d, uint64_t idx, struct rpc_call *call, struct cap_auth *auth,
	    struct replica_route *replica_route) CHECK_RESULT;

#endif
