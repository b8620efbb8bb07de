/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/readdirplus_policy.h"

#include <stddef.h>

static struct lister *find(struct readdirplus_policy *l, pid_t thread)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->ring[i].thread == thread)
			return &l->ring[i];
	return NULL;
}

bool readdirplus_wanted(struct readdirplus_policy *l, pid_t thread, uint64_t dir)
{
	struct lister *who = find(l, thread);

	if (who == NULL) {
		who = &l->ring[l->next++ % READDIRPLUS_THREADS_MAX];
		*who = (struct lister){.thread = thread};
		l->n += l->n < READDIRPLUS_THREADS_MAX;
	}
	if (who->probes < READDIRPLUS_PROBES)
		return true;
	who->names_of = dir;
	return false;
}

bool readdirplus_probe(struct readdirplus_policy *l, pid_t thread)
{
	struct lister *who = find(l, thread);

	if (who == NULL || ++who->listed % READDIRPLUS_PROBE != 0)
		return false;
	who->probes++;
	return true;
}

enum look readdirplus_lookup(struct readdirplus_policy *l, pid_t thread, uint64_t dir)
{
	struct lister *who = find(l, thread);
	bool first;

	if (who == NULL)
		return LOOK_OTHER;
	first = who->probes >= READDIRPLUS_PROBES;
	who->listed = who->probes = 0;
	if (who->names_of != dir)
		return LOOK_OTHER;
	return first ? LOOK_FIRST : LOOK_NEXT;
}
