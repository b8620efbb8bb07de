/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/ops/fence.h"

#include <stdlib.h>

#include "common/rt/env.h"

void fence_init(struct fence *f, struct env *env, const struct writer_sessions *w)
{
	*f = (struct fence){.env = env, .writers = w};
}

void fence_fini(struct fence *f)
{
	free(f->live);
	*f = (struct fence){0};
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void fence_set(struct fence *f, uint64_t gen, uint64_t *live, size_t n, uint64_t newest)
{
	if (gen < f->gen) {
		free(live);
		return;
	}
	qsort(live, n, sizeof(*live), compare);
	free(f->live);
	f->live = live;
	f->n = n;
	f->newest = newest;
	f->gen = gen;
}

void fence_update(struct fence *f, uint64_t sent_us, uint32_t fence_ms, uint32_t read_ms)
{
	if (sent_us < f->contact_us)
		return; /* replies may overtake each other */
	f->contact_us = sent_us;
	f->fence_ms = fence_ms;
	f->read_ms = read_ms;
}

void fence_reads_for(struct fence *f, uint32_t read_ms)
{
	f->read_ms = read_ms;
}

bool fence_has_session(const struct fence *f, uint64_t session)
{
	return session > f->newest ||
	       (f->n > 0 && bsearch(&session, f->live, f->n, sizeof(*f->live), compare) != NULL);
}

/* True if the metadata server has not replied for that long. */
static bool silent_for(const struct fence *f, uint32_t ms)
{
	return env_now_us(f->env) >= f->contact_us + ms * 1000ull || f->contact_us == 0;
}

int fence_admit_any(const struct fence *f, uint64_t session)
{
	if (f->open)
		return 0;
	if (!fence_has_session(f, session))
		return -LE_SESSION_GONE;
	return f->read_ms > 0 && silent_for(f, f->read_ms) ? -LE_NO_LEASE : 0;
}

int fence_admit(const struct fence *f, uint64_t session)
{
	if (f->open)
		return 0;
	if (silent_for(f, f->fence_ms))
		return -LE_NO_LEASE;
	return fence_has_session(f, session) ? 0 : -LE_SESSION_GONE;
}

static bool is_dead(void *arg, uint64_t session)
{
	return !fence_has_session(arg, session);
}

uint64_t fence_applied(const struct fence *f)
{
	return writer_sessions_any_busy(f->writers, is_dead, (void *)(uintptr_t)f) ? 0 : f->gen;
}
