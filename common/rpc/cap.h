/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capabilities: the MDS signs, object servers verify (BLAKE2b-128, libsodium, keyed by a key
 * derived from the cluster key), so that guessing a chunk's id gives no access to it.
 */
#ifndef LEAT_COMMON_RPC_CAP_H
#define LEAT_COMMON_RPC_CAP_H

#include "common/proto/types.h"
#include "common/rpc/rpc.h"

struct cap_key {
	uint8_t b[32];
};
/* Derives the key for capabilities from the cluster key. */
void cap_key_derive(const struct rpc_key *cluster_key, struct cap_key *ret_key);
/* Fills in cap->mac_*. */
void cap_sign(const struct cap_key *k, struct cap *cap);
/* Verifies a capability. 0: the signature is valid, it is for this inode, generation and session,
 * includes the rights, and has not expired at now_s by the MDS's clock. -LE_CAP_EXPIRED: valid but
 * expired; -LE_BAD_CAP: otherwise. Requests of the MDS itself carry session 1. */
int cap_check(const struct cap_key *k, const struct cap *cap, struct ino ino, uint32_t gen,
	      uint64_t session, uint32_t rights, int64_t now_s) CHECK_RESULT;

#endif
