/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing a data set: its files can never be changed again. */
#ifndef LEAT_CLIENT_STAGE_SEAL_H
#define LEAT_CLIENT_STAGE_SEAL_H

#include "client/stage/job/job.h"

/* Makes the files of the data set o.source immutable. Returns 0, or a status with job->d.
 * Yields. */
int stage_seal(struct stage_job *job) CHECK_RESULT;

#endif
