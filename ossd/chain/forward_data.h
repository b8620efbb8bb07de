/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members to which a version is forwarded, and its data in memory until it is there.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_CHAIN_FORWARD_DATA_H
#define LEAT_OSSD_CHAIN_FORWARD_DATA_H

#include "ossd/chain/commit.h"

/* Holds the data of a write for the next member: that of the request and of merged blocks. Does
 * not if slots are short: then the data is read from disk. Call before join. */
void forward_keep(struct version *v, const struct chunk_write *w);
/* Drops the data held by forward_keep. Does not yield. */
void forward_release(struct version *v);
/* Fills in the targets to which a version of the chunk is forwarded. Returns their number; 0:
 * none. key NULL: every SYNCING member being filled counts. */
uint32_t forward_targets(struct chain *c, const struct chunk_key *key,
			 uint32_t targets[CHAIN_MEMBERS_MAX]);

#endif
