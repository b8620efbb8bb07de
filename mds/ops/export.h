/* SPDX-License-Identifier: Apache-2.0 */
/* The part of ops/export.c that the session operations use. */
#ifndef LEAT_MDS_OPS_EXPORT_H
#define LEAT_MDS_OPS_EXPORT_H

#include "common/base/status.h"

struct mds;
struct session;

/* Ends a session in a network that now has fewer rights. Returns -LE_SESSION_GONE, or the error of
 * session_end. The caller does not hold the lock of the sessions. Yields. */
int export_end(struct mds *m, struct session *se) CHECK_RESULT;

#endif
