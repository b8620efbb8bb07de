/* SPDX-License-Identifier: Apache-2.0 */
/* What a copy is found by besides its id: the name or the directory that was staged. */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_ALIAS_H
#define LEAT_CLIENT_STAGE_IN_STAGE_ALIAS_H

#include "client/stage/job/job.h"

/* Returns whether the job's source is not noted, or is noted for another copy. Yields. */
bool stage_alias_is_new(const struct stage_job *job);
/* Marks other READY copies of the same name or directory STALE. If all of them are marked, notes
 * that the job's source stands for job->m now. Yields. */
void stage_supersede(struct stage_job *job);

#endif
