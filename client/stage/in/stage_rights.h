/* SPDX-License-Identifier: Apache-2.0 */
/* The rights of a copy, as its source has them when it is staged. */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_RIGHTS_H
#define LEAT_CLIENT_STAGE_IN_STAGE_RIGHTS_H

#include "client/stage/job/job.h"

struct scan;

/* Copies the rights that a scan has found to the rows of m with the same path. -LE_NOMEM. Does not
 * yield. */
int stage_rights_of_scan(struct manifest *m, const struct scan *s) CHECK_RESULT;
/* Sets m's rows and job->grants to what the source grants now. -LE_AGAIN, with job->d, if the
 * source's rights keep changing. Yields. */
int stage_take_rights(struct stage_job *job) CHECK_RESULT;
/* After stage_take_rights: gives these rights to a complete copy. -LE_STALE: a file differs from
 * the manifest. Yields. */
int stage_grant_ready(struct stage_job *job) CHECK_RESULT;
/* Starts a fiber that reads the source's rights every age_us, and narrows those of the copy. The
 * job has locked the copy and granted its rights. Does not yield. */
void stage_age_begin(struct stage_job *job);
/* Ends that fiber. Yields. */
void stage_age_end(struct stage_job *job);

#endif
