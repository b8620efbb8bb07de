/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one copy, step by step: take the lock, or wait for the process that has it; return if the
 * copy is READY; reserve space; fetch; make the sample index; set READY.
 */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_COPY_H
#define LEAT_CLIENT_STAGE_IN_STAGE_COPY_H

#include "client/stage/job/job.h"

/* Makes the copy of job->m READY; returns immediately if it is. The store stays locked until
 * stage_finish. Returns 0, or a status. Yields. */
int stage_copy(struct stage_job *job) CHECK_RESULT;
/* The first half of stage_copy: opens the store and locks it. Yields. */
int stage_lock(struct stage_job *job) CHECK_RESULT;
/* The second half. Yields. */
int stage_copy_locked(struct stage_job *job) CHECK_RESULT;
/* Ends a job that has returned rc: sets status and code if the job has none, notes beside the copy
 * why it has failed, and closes the store. Yields. */
void stage_finish(struct stage_job *job, int rc);

#endif
