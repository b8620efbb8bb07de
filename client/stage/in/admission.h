/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: chooses a directory for each file, and reserves the space for all of them. */
#ifndef LEAT_CLIENT_STAGE_IN_ADMISSION_H
#define LEAT_CLIENT_STAGE_IN_ADMISSION_H

#include "client/stage/job/job.h"

/* Chooses a directory for each file of job->m and reserves space for all of them; evicts other
 * copies if the job may. Returns 0, or sets status and code. Yields. */
int stage_admit(struct stage_job *job) CHECK_RESULT;
/* Free bytes in these directories, each file system counted once. more_dirs ends with a NULL, and
 * may be NULL itself. */
uint64_t stage_free_bytes(const char *to, const char *const *more_dirs);
/* Runs the job (struct stage_job *) of `leat stage plan`: how much would be transferred, and
 * does it fit? Changes nothing. Yields. */
void stage_plan_fiber(void *job);

#endif
