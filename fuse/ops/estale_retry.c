/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/estale_retry.h"

static struct estale_thread *place(struct estale_retry *r, pid_t thread)
{
	return &r->threads[(uint32_t)thread % ESTALE_RETRIES_MAX];
}

void estale_retry_add(struct estale_retry *r, pid_t thread, uint64_t ino)
{
	if (thread != 0)
		*place(r, thread) = (struct estale_thread){thread, ino};
}

void estale_retry_found(struct estale_retry *r, pid_t thread, uint64_t ino)
{
	struct estale_thread *t = place(r, thread);

	/* Without a name no open follows. */
	if (t->thread == thread)
		*t = ino != 0 ? (struct estale_thread){thread, ino} : (struct estale_thread){0};
}

bool estale_retry_take(struct estale_retry *r, pid_t thread, uint64_t ino)
{
	struct estale_thread t = *place(r, thread);

	if (thread == 0 || t.thread != thread)
		return false;
	*place(r, thread) = (struct estale_thread){0};
	return t.ino == ino;
}
