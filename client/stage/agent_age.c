/*
 * The rights of the copies in this node's directories, whoever made them: looked at again every
 * rights_ms, one copy after the other, at rights_rate names per second. Those that are locked are
 * looked at by the job that makes them, or next time.
 */
#include <stdlib.h>
#include <string.h>

#include "client/stage/age.h"
#include "client/stage/agent.h"
#include "client/stage/copies.h"
#include "common/base/log.h"
#include "common/rt/loop.h"

#define TELL_US 600000000u /* between warnings */

struct round {
	struct agent *a;
	const char *dir;
};

static int pace(void *arg, uint32_t n)
{
	struct agent *a = arg;
	throttle_take(&a->look_rate, n, &a->age_stop);
	return a->stopping ? -LE_CANCELED : 0;
}

static void warn(struct agent *a, const char *dir, const char *id, int rc)
{
	if (a->age_told_us && loop_now_us() < a->age_told_us + TELL_US)
		return;
	a->age_told_us = loop_now_us();
	log_warn("%s/.leat/%.12s keeps the rights it has: %s; leat stage in looks at its source "
		 "again",
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
		/* A part of one that lies elsewhere is changed with that. */
		rc = store_home(s, home) == 0 || store_is_locked(s) ? 0 : age_copy(&o);
		store_fini(s);
	}
	free(home);
	free(s);
	if (rc == 1)
		log_info("%s/.leat/%.12s: the rights of its source have changed, and its own",
			 r->dir, id);
	metric_add(&a->metrics.regranted, rc == 1);
	if (rc < 0 && rc != -LE_BUSY && rc != -LE_NOENT && rc != -LE_CANCELED)
		warn(a, r->dir, id, rc);
	return a->stopping ? -LE_CANCELED : 0;
}

void agent_age_fiber(void *arg)
{
	struct agent *a = arg;
	uint64_t next_us = loop_now_us();
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
			/* Where that takes as long as the time there is for it, half of it is for
			 * others. */
			uint64_t took = loop_now_us() - began_us;
			if (next_us < loop_now_us() + took)
				next_us = loop_now_us() + took;
		}
		int rc = waitq_wait(&a->stop, next_us);
		(void)rc;
	}
	latch_done(&a->fibers);
}
