/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a job's source. */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_MANIFEST_H
#define LEAT_CLIENT_STAGE_IN_STAGE_MANIFEST_H

#include "client/stage/job/job.h"

/* Sets job->m: the manifest of the data set o.source; for a directory, the one that was made of
 * it in exactly its present state, else a new one. Returns 0, or sets status and code. Yields. */
int stage_find_manifest(struct stage_job *job) CHECK_RESULT;

#endif
