/*
 * Leases of chunks: whoever reads what it may show again without asking (a kernel that fills pages
 * of a file that others write: docs/decisions/0007) has one until it has forgotten that, which is a
 * moment later. Writes that the read may not have seen are not answered before.
 *
 * A read takes its lease before it looks, a write looks for leases once it can be seen: so either
 * the read sees the write, or the write sees the lease. Both at the chain's head. Those that
 * another head has given, or a former process, are not known one by one: while there may be any of
 * them (chain.leases_us), they are waited for as if others had them of every chunk.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_LEASE_H
#define LEAT_OSSD_LEASE_H

#include "common/base/list.h"
#include "common/base/metrics.h"
#include "common/rt/fiber.h"
#include "ossd/chain/chain.h"
#include "ossd/chunk/rows.h"

#define CHUNK_LEASES_MAX         4096u
#define CHUNK_LEASES_SESSION_MAX 1024u /* of these: nobody takes them all */

struct chunk_leases {
	struct env *env;
	struct metric *run_out; /* counts those that ended by their time */
	struct list all; /* oldest first: they last equally long */
	uint32_t n;
	uint64_t serial; /* of the newest */
	struct waitq ended;
};

void chunk_leases_init(struct chunk_leases *l, struct env *env, struct metric *run_out);
void chunk_leases_fini(struct chunk_leases *l);
/* number: the session's; of any generation of the file. -LE_OVERLOAD: too many; -LE_NOMEM */
int chunk_lease_take(struct chunk_leases *l, const struct chunk_key *k, uint64_t session,
		     uint64_t number, uint64_t *ret_serial) CHECK_RESULT;
/* That one alone, of a read that has failed: a repetition of it may have its own by now. */
void chunk_lease_drop(struct chunk_leases *l, uint64_t serial);
void chunk_lease_end(struct chunk_leases *l, const struct chunk_key *k, uint64_t session,
		     uint64_t number);
/* All of the session's with lower numbers. */
void chunk_leases_end_before(struct chunk_leases *l, uint64_t session, uint64_t number);
/* Of a chain that this target is head of. chunk NULL: of the whole file. */
struct chunk_leased {
	const struct chain *chain;
	struct ino ino;
	const struct chunk_key *chunk;
	uint64_t session;
};
/* Until those of other sessions that are there now have ended. Yields only if there are any. */
void chunk_leases_await(struct chunk_leases *l, const struct chunk_leased *of);
/* Are there any of other sessions? */
bool chunk_leases_any(struct chunk_leases *l, const struct chunk_leased *of);

#endif
