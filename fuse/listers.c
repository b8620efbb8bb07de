#include "fuse/listers.h"

#include <stddef.h>

static struct lister *find(struct listers *l, pid_t thread)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->ring[i].thread == thread)
			return &l->ring[i];
	return NULL;
}

bool listers_want(struct listers *l, pid_t thread, uint64_t dir)
{
	struct lister *who = find(l, thread);

	if (who == NULL) {
		who = &l->ring[l->next++ % LISTERS_MAX];
		*who = (struct lister){.thread = thread};
		l->n += l->n < LISTERS_MAX;
	}
	if (who->probes < LISTERS_PROBES)
		return true;
	who->names_of = dir;
	return false;
}

bool listers_probe(struct listers *l, pid_t thread)
{
	struct lister *who = find(l, thread);

	if (who == NULL || ++who->listed % LISTERS_PROBE != 0)
		return false;
	who->probes++;
	return true;
}

enum look listers_looked(struct listers *l, pid_t thread, uint64_t dir)
{
	struct lister *who = find(l, thread);
	bool first;

	if (who == NULL)
		return LOOK_OTHER;
	first = who->probes >= LISTERS_PROBES;
	who->listed = who->probes = 0;
	if (who->names_of != dir)
		return LOOK_OTHER;
	return first ? LOOK_FIRST : LOOK_NEXT;
}
