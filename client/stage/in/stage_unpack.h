/* SPDX-License-Identifier: Apache-2.0 */
/* Staging archives unpacked. */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_UNPACK_H
#define LEAT_CLIENT_STAGE_IN_STAGE_UNPACK_H

#include "client/stage/job/job.h"

/* Makes a READY copy in which each archive of job->m is a folder of its members; the copy of the
 * archives themselves is made first. Returns 0, or sets status and code. Yields. */
int stage_unpack(struct stage_job *job) CHECK_RESULT;

#endif
