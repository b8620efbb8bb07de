/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of chunks. A client holds one while it may use what it has read without another request:
 * a kernel that fills pages of a file that others write (docs/decisions/0007). It drops the pages
 * within CHUNK_LEASE_MS. A write is not answered while another session holds a lease from a read
 * that may have missed the write.
 *
 * A read takes its lease before it reads; a write checks for leases after it is visible. So either
 * the read returns the write, or the write finds the lease. Both happen at the chain's head.
 * Leases that another head or an earlier process has granted are not listed here: as long as there
 * may be any (chain.leases_us), writes wait as if other sessions held leases of every chunk.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_OPS_LEASE_H
#define LEAT_OSSD_OPS_LEASE_H

#include "common/base/list.h"
#include "common/base/metrics.h"
#include "common/rt/fiber.h"
#include "ossd/chain/chain.h"
#include "ossd/chunk/keys.h"

#define CHUNK_LEASES_MAX         4096u
#define CHUNK_LEASES_SESSION_MAX 1024u /* limit per session, so that one session cannot use all */

struct chunk_leases {
	struct env *env;
	struct metric *run_out; /* counts leases that have expired */
	struct list all; /* oldest first; all have the same term */
	uint32_t n;
	uint64_t serial; /* serial of the newest lease */
	struct waitq ended;
};

void chunk_leases_init(struct chunk_leases *l, struct env *env, struct metric *run_out);
void chunk_leases_fini(struct chunk_leases *l);
/* Grants a lease. number: chosen by the session. The lease covers all generations of the file.
 * Returns 0, -LE_OVERLOAD (too many) or -LE_NOMEM. */
int chunk_lease_take(struct chunk_leases *l, const struct chunk_key *k, uint64_t session,
		     uint64_t number, uint64_t *ret_serial) CHECK_RESULT;
/* Drops only the lease with that serial, because its read has failed: a repetition of the read may
 * have a separate lease. */
void chunk_lease_drop(struct chunk_leases *l, uint64_t serial);
/* Releases the session's leases of the chunk with that number: there may be several if a read was
 * repeated. */
void chunk_lease_end(struct chunk_leases *l, const struct chunk_key *k, uint64_t session,
		     uint64_t number);
/* Releases all leases of the session with lower numbers. */
void chunk_leases_end_before(struct chunk_leases *l, uint64_t session, uint64_t number);
/* A set of leases, in a chain with this target as head. chunk NULL: of the whole file. */
struct chunk_leased {
	const struct chain *chain;
	struct ino ino;
	const struct chunk_key *chunk;
	uint64_t session;
};
/* Waits until present leases of sessions other than of->session have ended. Yields only if there
 * are any. */
void chunk_leases_await(struct chunk_leases *l, const struct chunk_leased *of);
/* True if sessions other than of->session hold leases. */
bool chunk_leases_any(struct chunk_leases *l, const struct chunk_leased *of);

#endif
