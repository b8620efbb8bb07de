/* SPDX-License-Identifier: Apache-2.0 */
/* `leat stage out`: a local directory becomes one of the namespace, published by one rename. */
#ifndef LEAT_CLIENT_STAGE_OUT_H
#define LEAT_CLIENT_STAGE_OUT_H

/* Runs the job (struct stage_job *), as a fiber. Yields. */
void stage_out_fiber(void *job);

#endif
