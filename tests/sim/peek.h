/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator looks at inside of a running metadata server, without disturbing it. */
#ifndef LEAT_TESTS_SIM_PEEK_H
#define LEAT_TESTS_SIM_PEEK_H

#include "mds/server.h"

#define PEEK_MEMBERS_MAX 8u

struct peek_chain {
	uint32_t id, epoch, replicas, n_members, n_sync;
	const char *addrs[PEEK_MEMBERS_MAX]; /* of the members' targets: the server's own */
};

uint32_t peek_n_chains(const struct mds *m);
struct peek_chain peek_chain(const struct mds *m, uint32_t i);
/* That were given up with data. */
uint32_t peek_n_lost(const struct mds *m);
/* 0: none has these addresses, but such as were removed. */
uint32_t peek_target(const struct mds *m, const char *addrs);
/* Every chain that is not lost has as many members as it shall have, all in sync. */
bool peek_all_sync(const struct mds *m);

#endif
