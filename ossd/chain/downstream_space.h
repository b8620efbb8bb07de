/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Space at the members downstream: a head holds a grant at each of them. It grants its clients no
 * more in all than the smallest of these, so that write-back data has space at every member. While
 * a member does not answer, its last answer counts.
 */
#ifndef LEAT_OSSD_CHAIN_DOWNSTREAM_SPACE_H
#define LEAT_OSSD_CHAIN_DOWNSTREAM_SPACE_H

#include "ossd/chain/chain.h"

/* Starts the fiber that renews the grants. Does not yield. */
int downstream_space_start(struct chains *cs) CHECK_RESULT;

#endif
