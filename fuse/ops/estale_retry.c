/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/estale_retry.h"

static uint32_t place(const struct estale_retry *r, pid_t thread)
{
	uint32_t i = 0;

	if (r->n == 0 || thread == 0)
		return ESTALE_RETRIES_MAX;
	while (i < ESTALE_RETRIES_MAX && r->ring[i].thread != thread)
		i++;
	return i;
}

static void forget(struct estale_retry *r, uint32_t i)
{
	r->ring[i].thread = 0;
	r->n--;
}

void estale_retry_add(struct estale_retry *r, pid_t thread, uint64_t ino)
{
	uint32_t i = place(r, thread);

	if (thread == 0)
		return;
	if (i == ESTALE_RETRIES_MAX) {
		i = r->next++ % ESTALE_RETRIES_MAX;
		r->n += r->ring[i].thread == 0;
	}
	r->ring[i].thread = thread;
	r->ring[i].ino = ino;
}

void estale_retry_found(struct estale_retry *r, pid_t thread, uint64_t ino)
{
	uint32_t i = place(r, thread);

	if (i == ESTALE_RETRIES_MAX)
		return;
	if (ino == 0)
		forget(r, i); /* no open follows */
	else
		r->ring[i].ino = ino;
}

bool estale_retry_take(struct estale_retry *r, pid_t thread, uint64_t ino)
{
	uint32_t i = place(r, thread);

	if (i == ESTALE_RETRIES_MAX)
		return false;
	forget(r, i);
	return r->ring[i].ino == ino;
}
