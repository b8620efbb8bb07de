/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rt/alive.h"

#include "common/base/notify.h"

static void tell(struct timer *t)
{
	struct alive *a = container_of(t, struct alive, timer);

	if (a->others == NULL || a->others(a->arg))
		notify_alive();
	timer_set(t, loop_now_us() + notify_alive_us());
}

void alive_start(struct alive *a, bool (*others)(void *arg), void *arg)
{
	if (!notify_wanted())
		return;
	a->others = others;
	a->arg = arg;
	timer_init(&a->timer, tell);
	timer_set(&a->timer, loop_now_us());
}

void alive_stop(struct alive *a)
{
	if (a->timer.fn != NULL)
		timer_cancel(&a->timer);
}
