/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the operation setattr that open and copy use. */
#ifndef LEAT_MDS_OPS_SETATTR_H
#define LEAT_MDS_OPS_SETATTR_H

#include "mds/op.h"

/* Sets the size (SET_SIZE) and the other attributes of req. reported_ino: as for op_asks_own.
 * final: it is the whole operation. Returns 0 and the new attributes, or the error of op_mutate or
 * data_carry_out. Yields. */
int truncate_file(struct op *op, const struct mds_setattr_req *req, struct ino reported_ino,
		  bool final, struct attr *ret_attr) CHECK_RESULT;

#endif
