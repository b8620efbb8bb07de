/* SPDX-License-Identifier: Apache-2.0 */
/* `leat stage verify`: reads a copy and compares it with its manifest. */
#ifndef LEAT_CLIENT_STAGE_VERIFY_H
#define LEAT_CLIENT_STAGE_VERIFY_H

#include "client/stage/job/job.h"

/* Verifies the copy that `what` names (leat_stage.h) in o.to. A damaged copy is no longer READY
 * afterwards. Sets status and code of the job. Yields. */
void copies_verify(struct stage_job *job, const char *what);

#endif
