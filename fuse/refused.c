#include "fuse/refused.h"

static uint32_t place(const struct refused *r, pid_t thread)
{
	uint32_t i = 0;

	if (r->n == 0 || thread == 0)
		return REFUSED_MAX;
	while (i < REFUSED_MAX && r->ring[i].thread != thread)
		i++;
	return i;
}

static void forget(struct refused *r, uint32_t i)
{
	r->ring[i].thread = 0;
	r->n--;
}

void refused_add(struct refused *r, pid_t thread, uint64_t ino)
{
	uint32_t i = place(r, thread);

	if (thread == 0)
		return;
	if (i == REFUSED_MAX) {
		i = r->next++ % REFUSED_MAX;
		r->n += r->ring[i].thread == 0;
	}
	r->ring[i].thread = thread;
	r->ring[i].ino = ino;
}

void refused_found(struct refused *r, pid_t thread, uint64_t ino)
{
	uint32_t i = place(r, thread);

	if (i == REFUSED_MAX)
		return;
	if (ino == 0)
		forget(r, i); /* the kernel opens nothing then */
	else
		r->ring[i].ino = ino;
}

bool refused_take(struct refused *r, pid_t thread, uint64_t ino)
{
	uint32_t i = place(r, thread);

	if (i == REFUSED_MAX)
		return false;
	forget(r, i);
	return r->ring[i].ino == ino;
}
