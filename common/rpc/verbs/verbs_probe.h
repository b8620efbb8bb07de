/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects RDMA on this machine.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_PROBE_H
#define LEAT_COMMON_RPC_VERBS_VERBS_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/* True if this machine has RDMA. Writes the devices ("rxe0 siw0"), or why there are none; also in a
 * program built without verbs. Blocking: at start. */
bool transport_verbs_available(char *ret_text, size_t size);

#endif
