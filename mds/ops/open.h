/* What open, create, close and setattr share. */
#ifndef LEAT_MDS_OPS_OPEN_H
#define LEAT_MDS_OPS_OPEN_H

#include "mds/op.h"

struct opening {
	const struct cred *cred;
	uint32_t flags;
	bool truncate_first; /* out, with -LE_BUSY: O_TRUNC of an open file: call open_truncate */
	struct ino truncated; /* of that file it has been done */
	struct ino told;     /* what the session knows to be truncated: as op_asks_own */
};
/* In a critical section; op->session opens i. Writes. */
int open_existing(struct op *op, struct opening *o, struct inode *i, const struct inode_rec *old,
		  struct attr *ret_attr, struct cap *ret_cap) CHECK_RESULT;
/* The file that an attempt at this very request of before has cut, {0}: none. Yields. */
struct ino open_has_cut(struct op *op);
/* Yields. */
int open_truncate(struct op *op, struct opening *o, struct ino ino) CHECK_RESULT;
/* SET_SIZE and whatever else req says. told: as op_asks_own. final: it is the whole operation.
 * Yields. */
int truncate_file(struct op *op, const struct mds_setattr_req *req, struct ino told, bool final,
		  struct attr *ret_attr) CHECK_RESULT;
/* Ends one open of op->session. op->final as the caller wants it. Yields. */
int close_file(struct op *op, const struct mds_close_req *in,
	       struct mds_close_rep *out) CHECK_RESULT;

#endif
