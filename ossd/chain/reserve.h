/*
 * Space at the members behind: a head holds a grant at each of them, and promises its clients no
 * more in all than the smallest, so that what they write behind fits everywhere.
 */
#ifndef LEAT_OSSD_CHAIN_RESERVE_H
#define LEAT_OSSD_CHAIN_RESERVE_H

#include "ossd/chain/chain.h"

/* Starts the fiber that renews them. */
int reserves_start(struct chains *cs) CHECK_RESULT;

#endif
