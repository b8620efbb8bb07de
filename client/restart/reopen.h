/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restores the client's state in a new session or at a restarted metadata server: opens files
 * again, reports opens and locks, ends leases. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_RESTART_REOPEN_H
#define LEAT_CLIENT_RESTART_REOPEN_H

#include "client/servers/session.h"

/* The implementation of struct session_ops (servers/session.h). */
extern const struct session_ops restart_session_ops;

#endif
