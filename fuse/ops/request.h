/* SPDX-License-Identifier: Apache-2.0 */
/* How a handler is interrupted: by any signal of its caller, or only if the caller is killed. */
#ifndef LEAT_FUSE_OPS_REQUEST_H
#define LEAT_FUSE_OPS_REQUEST_H

#include "fuse/mount.h"

/* may: from here on a signal of the caller interrupts the current fiber, which serves req (fiber
 * calls return -LE_INTR). Not may: signals have no effect from here on; a pending interrupt is
 * discarded. Does not yield. */
void req_interruptible(fuse_req_t req, bool may);
/* Between the two the current fiber, which serves req, is interrupted if the caller is killed
 * (kernel/interrupt.h). r is memory of the calling function and must stay valid until the end. Do
 * not yield. */
void req_interruptible_begin(fuse_req_t req, struct interruptible *r);
void req_interruptible_end(fuse_req_t req, struct interruptible *r);

#endif
