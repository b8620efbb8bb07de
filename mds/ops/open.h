/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the operation open that create, tmpfile, reclaim and dispatch use. */
#ifndef LEAT_MDS_OPS_OPEN_H
#define LEAT_MDS_OPS_OPEN_H

#include "mds/op.h"

struct opening {
	const struct cred *cred;
	uint32_t flags;       /* of open(2) */
	bool truncate_first;  /* out, with -LE_BUSY: O_TRUNC of a file that is open; call
			       * open_truncate */
	struct ino truncated; /* the file that open_truncate has truncated */
	struct ino reported_ino;      /* as for op_asks_own */
};
/* In a critical section: opens inode i, with newest record `old`, for op->session. Returns 0,
 * attributes and capability; -LE_BUSY with o->truncate_first; or the reason for refusal. Writes.
 * Does not yield. */
int open_existing(struct op *op, struct opening *o, struct inode *i, const struct inode_rec *old,
		  struct attr *ret_attr, struct cap *ret_cap) CHECK_RESULT;
/* The file that an earlier attempt at this request has truncated; {0}: none. Yields. */
struct ino open_has_truncated(struct op *op);
/* Truncates the file to zero for O_TRUNC. Returns 0 or the error of truncate_file. Yields. */
int open_truncate(struct op *op, struct opening *o, struct ino ino) CHECK_RESULT;
/* The reply `out` was sent before a restart: counts again the open, or ends the open, that it
 * reports. what: the operation. Returns 0, -LE_STALE if the inode no longer exists, or the error of
 * op_mutate. Yields. */
int open_state_redo(struct op *op, uint16_t what, const void *in, void *out) CHECK_RESULT;
/* Counts again n opens that the client had before a restart. -LE_INVAL: n is 0, or more than can
 * be counted. Other errors as open_state_redo. Yields. */
int open_reclaim(struct op *op, struct ino ino, uint32_t flags, uint32_t n) CHECK_RESULT;

#endif
