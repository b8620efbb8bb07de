/* SPDX-License-Identifier: Apache-2.0 */
/* What a scan has left out, counted by kind, in the result of a job. */
#ifndef LEAT_CLIENT_STAGE_JOB_LEFT_OUT_H
#define LEAT_CLIENT_STAGE_JOB_LEFT_OUT_H

#include <jansson.h>

#include "client/stage/job/job.h"

struct scan;

/* Adds what a scan has left out to the counts in r. */
void stage_add_left(struct leat_stage_result *r, const struct scan *s);
/* Adds the counts of a scan of the job's source to the result of the job. */
void stage_report_left(struct stage_job *job, const struct scan *s);
/* Sets o["not_copied"], "hard_links" and "narrowed" as `--json` prints them, and the bits of
 * `skip`, for another machine. */
void stage_left_to_json(json_t *o, const struct leat_stage_result *r);

#endif
