/* SPDX-License-Identifier: Apache-2.0 */
/* The command `leat-mds check`. No server may run on the store. */
#ifndef LEAT_MDS_CHECK_H
#define LEAT_MDS_CHECK_H

#include <stdio.h>

#include "common/base/status.h"
#include "mds/params.h"

struct env;

/* Compares all records of the store with each other, and writes a line to report for each problem.
 * repair: repairs what can be repaired. Returns 0 and the number of problems, or the error that
 * kept it from reading the store. Yields. */
int mds_check(struct env *env, const struct mds_params *p, bool repair, FILE *report,
	      uint64_t *ret_problems) CHECK_RESULT;

#endif
