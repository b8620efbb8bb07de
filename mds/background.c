/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/background.h"

#include <stdlib.h>

#include "common/rt/loop.h"
#include "mds/mds.h"

struct background {
	struct mds *m;
	void (*fn)(struct mds *m);
};

static void background(void *arg)
{
	struct background b = *(struct background *)arg;

	free(arg);
	b.fn(b.m);
	latch_done(&b.m->fibers);
}

int mds_spawn(struct mds *m, const char *name, void (*fn)(struct mds *m))
{
	struct background *b = malloc(sizeof(*b));
	int rc;

	if (b == NULL)
		return -LE_NOMEM;
	*b = (struct background){m, fn};
	latch_add(&m->fibers, 1);
	rc = fiber_spawn(name, background, b);
	if (rc < 0) {
		latch_done(&m->fibers);
		free(b);
	}
	return rc;
}

int mds_sleep_ms(struct mds *m, uint64_t ms)
{
	uint64_t until_us = loop_deadline_ms(ms);
	int rc;

	if (m->stopping)
		return -LE_SHUTDOWN;
	rc = waitq_wait(&m->stop, until_us);
	if (m->stopping)
		return -LE_SHUTDOWN;
	/* An error if the deadline of the request ended the sleep. */
	return rc == -LE_TIMEDOUT && until_us <= fiber_deadline() ? 0 : rc;
}
