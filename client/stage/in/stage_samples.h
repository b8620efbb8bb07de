/* SPDX-License-Identifier: Apache-2.0 */
/* The sample index beside a copy. A help for the loader, which can do without it. */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_SAMPLES_H
#define LEAT_CLIENT_STAGE_IN_STAGE_SAMPLES_H

#include "client/stage/job/job.h"

/* Writes the sample index of job->m beside the copy: the one that the catalog has for the name, or
 * one made of the copy's files. Does nothing for a share. Errors are ignored. Yields. */
void stage_make_samples(struct stage_job *job);

#endif
