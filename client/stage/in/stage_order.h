/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which a node's ranks will read, as a plan of chunks. */
#ifndef LEAT_CLIENT_STAGE_IN_STAGE_ORDER_H
#define LEAT_CLIENT_STAGE_IN_STAGE_ORDER_H

#include "client/stage/job/job.h"

/* Sets job->plan from o.order; without o.order there is no plan. Returns 0, or sets status and
 * code. Yields. */
int stage_order(struct stage_job *job) CHECK_RESULT;

#endif
