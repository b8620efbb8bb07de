/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the state of a running metadata server for the simulator, without changing it. */
#ifndef LEAT_TESTS_SIM_PEEK_H
#define LEAT_TESTS_SIM_PEEK_H

#include "mds/server.h"

#define PEEK_MEMBERS_MAX 8u

struct peek_chain {
	uint32_t id, epoch, replicas, n_members, n_sync;
	const char *addrs[PEEK_MEMBERS_MAX]; /* of the members' targets: the addresses of their
					      * server */
};

uint32_t peek_n_chains(const struct mds *m);
struct peek_chain peek_chain(const struct mds *m, uint32_t i);
/* Returns the number of targets that were removed as lost. */
uint32_t peek_n_lost(const struct mds *m);
/* Returns the target with these addresses. 0: none, except removed ones. */
uint32_t peek_target(const struct mds *m, const char *addrs);
/* Returns whether every chain that is not lost has all its members, all in sync. */
bool peek_all_sync(const struct mds *m);

#endif
