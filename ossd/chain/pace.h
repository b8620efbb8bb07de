/*
 * How fast work in the background goes (resync, scrub, removal): at most so many MiB a second, and
 * while clients are served at most a share of the time, one piece of work at a time. Owned by the
 * target's loop.
 */
#ifndef LEAT_OSSD_PACE_H
#define LEAT_OSSD_PACE_H

#include <stdint.h>

#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "ossd/metrics.h"

struct pace {
	struct env *env;
	struct ossd_metrics *metrics; /* client_requests tells whether clients are served */
	uint64_t rate; /* bytes a second, 0: any */
	uint32_t share; /* percent of the time */
	uint64_t next_us; /* when the bytes so far are paid for */
	uint64_t seen, seen_us; /* requests of clients: how many, when there was a new one */
	struct fmutex alone;
};

struct pace_work {
	uint64_t begin_us;
	bool alone;
};

void pace_init(struct pace *p, struct env *env, struct ossd_metrics *m, uint32_t rate_mib_s,
	       uint32_t share);
/* Waits for its turn. Yields, like pace_end. */
void pace_begin(struct pace *p, struct pace_work *w);
/* After it: pays for the bytes and for the time. Nothing that clients may want is to be held. */
void pace_end(struct pace *p, struct pace_work *w, uint64_t bytes);

#endif
