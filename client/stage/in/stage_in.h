/* SPDX-License-Identifier: Apache-2.0 */
/* `leat stage in`, from the user's options to READY. */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_IN_H
#define LEAT_CLIENT_STAGE_IN_STAGE_IN_H

/* Runs the job (struct stage_job *), as a fiber. Yields. */
void stage_in_fiber(void *job);

#endif
