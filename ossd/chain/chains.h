/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of chains of a target: opened from the rows of the index, changed by the metadata
 * server, closed.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_CHAIN_CHAINS_H
#define LEAT_OSSD_CHAIN_CHAINS_H

#include "ossd/chain/chain.h"

/* Opens the set; reads the E and F rows. Yields. */
int chains_open(const struct chains_options *o, struct chains **ret_chains) CHECK_RESULT;
/* Makes requests that wait for a version return -LE_SHUTDOWN. Call before the server's requests
 * are drained. */
void chains_stop(struct chains *cs);
/* Call after that and before the store is closed. Yields. */
void chains_close(struct chains *cs);

/*
 * Adopts chains that the metadata server has sent. chains: encoded chain_info in sequence. Each
 * that is newer than the adopted one becomes durable, then takes effect. If asked_us is not 0, the
 * list was requested then and names all chains of this target: it leaves all others, except those
 * adopted since the request (then cs->not_named is set). Returns 0, -LE_BAD_MESSAGE or -LE_IO.
 * Yields.
 */
int chains_adopt(struct chains *cs, struct bytes chains, uint64_t asked_us) CHECK_RESULT;

#endif
