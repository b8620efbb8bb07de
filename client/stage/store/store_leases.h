/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases of a copy. A leased copy is not evicted.
 *
 *   of a process: the lock of store_lease, until the descriptor is closed
 *   of a job: leases/NAME, "SECONDS\n": its end (Unix time; 0: until it is released)
 */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_LEASES_H
#define LEAT_CLIENT_STAGE_STORE_STORE_LEASES_H

#include "client/stage/store/local_store.h"

/* Returns whether a job may have that name: letters, digits, . _ and -. */
bool store_name_ok(const char *name);
/* Leases the copy to the job `name`: for ttl_s seconds, 0: until it is released. -LE_INVAL: not a
 * name. Yields. */
int store_lease_named(struct local_store *s, const char *name, uint64_t ttl_s) CHECK_RESULT;
/* Releases a job's lease. -LE_NOENT: it has none. Yields. */
int store_release_named(struct local_store *s, const char *name) CHECK_RESULT;
/* Returns whether a job has a lease; also true if the leases cannot be read. expire: removes
 * leases that have ended. Yields. */
bool store_is_leased_named(struct local_store *s, bool expire);
/* Returns whether a process or a job has a lease. Yields. */
bool store_is_leased(struct local_store *s);

#endif
