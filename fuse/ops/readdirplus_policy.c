/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/readdirplus_policy.h"

#include <stddef.h>

static struct readdir_thread *find(struct readdirplus_policy *l, pid_t thread)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->ring[i].thread == thread)
			return &l->ring[i];
	return NULL;
}

bool readdirplus_wanted(struct readdirplus_policy *l, pid_t thread, uint64_t dir)
{
	struct readdir_thread *t = find(l, thread);

	if (t == NULL) {
		t = &l->ring[l->next++ % READDIRPLUS_THREADS_MAX];
		*t = (struct readdir_thread){.thread = thread};
		l->n += l->n < READDIRPLUS_THREADS_MAX;
	}
	if (t->probes < READDIRPLUS_PROBES)
		return true;
	t->names_of = dir;
	return false;
}

bool readdirplus_probe(struct readdirplus_policy *l, pid_t thread)
{
	struct readdir_thread *t = find(l, thread);

	if (t == NULL || ++t->listed % READDIRPLUS_PROBE != 0)
		return false;
	t->probes++;
	return true;
}

enum look readdirplus_lookup(struct readdirplus_policy *l, pid_t thread, uint64_t dir)
{
	struct readdir_thread *t = find(l, thread);
	bool first;

	if (t == NULL)
		return LOOK_OTHER;
	first = t->probes >= READDIRPLUS_PROBES;
	t->listed = t->probes = 0;
	if (t->names_of != dir)
		return LOOK_OTHER;
	return first ? LOOK_FIRST : LOOK_NEXT;
}
