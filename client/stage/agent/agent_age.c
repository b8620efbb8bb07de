/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the rights of all copies in this node's directories in line with their sources: every
 * rights_ms, one copy after the other, at rights_rate names per second. A locked copy is left to
 * the job that makes it, or to the next round.
 */
#include "client/stage/agent/agent_age.h"

#include <stdlib.h>

#include "client/stage/agent/agent.h"
#include "client/stage/agent/agent_fiber.h"
#include "client/stage/in/age.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/store_lock.h"
#include "common/base/log.h"
#include "common/base/rate_limit.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define TELL_US 600000000u /* interval of warnings */

struct round {
	struct agent *a;
	const char *dir;
};

static int pace(void *arg, uint32_t n)
{
	struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	uint64_t wait_us = rate_limit_charge(&a->name_rate, n, loop_now_us());
	(void)fiber_sleep_unless(wait_us, &a->age_stop);
	return a->stopping ? -LE_CANCELED : 0;
}

static void warn(struct agent *a, const char *dir, const char *id, int rc)
{
	if (a->age_logged_us && loop_now_us() < a->age_logged_us + TELL_US)
		return;
	a->age_logged_us = loop_now_us();
	log_warn("%s/.leat/%.12s: cannot compare its rights with the source: %s; run leat stage in "
		 "to try again",
		 dir, id, status_text(rc));
}

static int age_one(void *arg, const char *id)
{
	const struct round *r = arg;
	struct agent *a = r->a;
	struct local_store *s = malloc(sizeof(*s));
	char *home = malloc(STORE_PATH_SIZE);
	int rc = s && home ? store_init(s, a->io.env, r->dir, id) : -LE_NOMEM;
	if (rc == 0) {
		const struct age_options o = {
			.io = &a->io, .s = s, .pace = pace, .arg = a, .stop = &a->age_stop};
		/* A part of a copy is handled with the copy's first directory. */
		rc = store_home(s, home) == 0 || store_is_locked(s) ? 0 : age_copy(&o);
		store_fini(s);
	}
	free(home);
	free(s);
	if (rc == 1)
		log_info("%s/.leat/%.12s: its rights follow changed rights of its source",
			 r->dir, id);
	metric_add(&a->metrics.regranted, rc == 1);
	if (rc < 0 && rc != -LE_BUSY && rc != -LE_NOENT && rc != -LE_CANCELED)
		warn(a, r->dir, id, rc);
	return a->stopping ? -LE_CANCELED : 0;
}

void agent_age_fiber(void *arg)
{
	struct agent *a = CAST_OBJ(arg, struct agent, AGENT_MAGIC);
	uint64_t next_us = loop_now_us();
	struct agent_fiber self;
	agent_fiber_begin(a, &self);
	while (!a->stopping) {
		if (loop_now_us() >= next_us) {
			uint64_t began_us = loop_now_us();
			next_us = began_us + a->p.rights_ms * 1000ULL;
			for (uint32_t i = 0; i < a->n_dirs && !a->stopping; i++) {
				struct round r = {a, a->dirs[i]};
				int rc = copies_each_id(&a->io, a->dirs[i], age_one, &r);
				if (rc < 0 && rc != -LE_CANCELED)
					warn(a, a->dirs[i], "", rc);
			}
			/* If a round takes longer than half its interval, wait as long as the
			 * round took. */
			uint64_t took = loop_now_us() - began_us;
			if (next_us < loop_now_us() + took)
				next_us = loop_now_us() + took;
		}
		int rc = waitq_wait(&a->stop, next_us);
		(void)rc;
	}
	agent_fiber_end(a, &self);
}
