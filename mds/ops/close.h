/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the operation close that open uses. */
#ifndef LEAT_MDS_OPS_CLOSE_H
#define LEAT_MDS_OPS_CLOSE_H

#include "mds/op.h"

/* Ends one open of op->session. The caller has set op->final. Returns 0 or the error of op_mutate.
 * Yields. */
int close_file(struct op *op, const struct mds_close_req *in,
	       struct mds_close_rep *out) CHECK_RESULT;

#endif
