/* SPDX-License-Identifier: Apache-2.0 */
/* See peek.h. Only reads: the functions of the server are not visible here. */
#include "tests/sim/peek.h"

#include <string.h>

#include "mds/mds.h"

uint32_t peek_n_chains(const struct mds *m)
{
	return m->cluster.n_chains;
}

struct peek_chain peek_chain(const struct mds *m, uint32_t i)
{
	const struct chain *ch = m->cluster.chains[i];
	struct peek_chain p = {.id = ch->id, .epoch = ch->epoch, .replicas = ch->replicas};

	for (uint32_t k = 0; k < ch->n_members && k < PEEK_MEMBERS_MAX; k++) {
		uint32_t id = ch->members[k].target;
		bool known = id >= 1 && id <= m->cluster.n_targets;

		p.addrs[p.n_members++] = known ? m->cluster.targets[id - 1]->addrs : "";
		p.n_sync += ch->members[k].state == MEMBER_SYNC;
	}
	return p;
}

uint32_t peek_target(const struct mds *m, const char *addrs)
{
	for (uint32_t i = 0; i < m->cluster.n_targets; i++)
		if (strcmp(m->cluster.targets[i]->addrs, addrs) == 0 &&
		    (m->cluster.targets[i]->info.flags & TARGET_REMOVED) == 0)
			return i + 1;
	return 0;
}

uint32_t peek_n_lost(const struct mds *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->cluster.n_chains; i++)
		n += (m->cluster.chains[i]->flags & CHAIN_LOST) != 0;
	return n;
}

bool peek_all_sync(const struct mds *m)
{
	for (uint32_t i = 0; i < m->cluster.n_chains; i++) {
		struct peek_chain p = peek_chain(m, i);

		if ((m->cluster.chains[i]->flags & CHAIN_LOST) != 0)
			continue;
		if (p.n_members != p.replicas || p.n_sync != p.n_members)
			return false;
	}
	return true;
}
