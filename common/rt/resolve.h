/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup of host names by threads.
 */
#ifndef LEAT_COMMON_RT_RESOLVE_H
#define LEAT_COMMON_RT_RESOLVE_H

#include "common/rt/net.h"

/* Like net_addr_parse, in a fiber. Yields only for a host name, which threads of resolve.c look up.
 * -LE_NO_NAMES also at the deadline. A caller that repeats the call after -LE_NO_NAMES or -LE_INTR
 * may get an answer that has arrived since. */
int net_resolve(const char *text, uint64_t deadline_us, struct net_addr *ret_addr) CHECK_RESULT;

#endif
