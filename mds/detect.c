/* Looking at the targets, several times per lease; see detect.h. */
#include "mds/detect.h"

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/membership.h"
#include "mds/replace.h"

#define REPLACE_US    500000u
#define TARGETS_BOUND 256u
/* A process that is killed may lose its connections a moment before the place where it listened. */
#define DYING_US 5000u

void detect_kick(struct cluster *c)
{
	c->kicked = true;
	waitq_wake_all(&c->work);
}

void detect_peer_gone(struct cluster *c, uint64_t peer)
{
	for (uint32_t i = 0; i < c->n_targets; i++) {
		if (c->targets[i]->peer != peer)
			continue;
		c->targets[i]->ended = true;
		c->targets[i]->ended_us = loop_now_us();
		detect_kick(c);
	}
}

struct probing {
	struct cluster *c;
	struct target *t;
};

static void probe_one(void *arg)
{
	struct probing *p = arg;
	uint64_t peer = p->t->peer;

	if (p->c->probe(p->c->arg, p->t) < 0)
		return;
	/* It may have come back meanwhile. */
	if (p->t->ended && p->t->peer == peer && p->t->info.state == TARGET_UP) {
		log_warn("target %u: its process has ended", p->t->info.id);
		p->t->dead = p->t->gone = true;
		waitq_wake_all(&p->c->fenced);
	}
}

static void look_for_ended(struct cluster *c)
{
	struct probing v[TARGETS_BOUND];
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_targets; i++) {
		struct target *t = c->targets[i];

		if (t->ended && !t->dead && t->info.state == TARGET_UP)
			v[n++] = (struct probing){c, t};
	}
	fiber_parallel("probe", probe_one, v, sizeof(v[0]), n, 32);
}

static void look_for_silent(struct cluster *c)
{
	uint64_t bound_us = (c->params->lease_ms + (uint64_t)c->params->lease_margin_ms) * 1000;
	uint64_t now = loop_now_us();

	for (uint32_t i = 0; i < c->n_targets && now >= c->judge_from_us; i++) {
		struct target *t = c->targets[i];

		if (t->dead || t->info.state != TARGET_UP || t->heard_us + bound_us >= now)
			continue;
		log_warn("target %u: not heard for %llu ms", t->info.id,
			 (unsigned long long)(now - t->heard_us) / 1000);
		t->dead = true;
	}
}

void detect_look(struct cluster *c, uint64_t due_us)
{
	uint64_t now = loop_now_us();
	uint64_t bound_us = (c->params->lease_ms + (uint64_t)c->params->lease_margin_ms) * 1000;
	int rc;

	if (now > due_us + c->params->lease_margin_ms * 1000ull / 2) {
		log_warn("stood still for %llu ms: nobody is judged for %llu ms",
			 (unsigned long long)(now - due_us) / 1000,
			 (unsigned long long)bound_us / 1000);
		c->judge_from_us = now + bound_us;
	}
	look_for_silent(c);
	look_for_ended(c);
	rc = membership_reconcile(c);
	if (rc == 0 && now > c->quiet_us + c->params->heads_after_ms * 1000ull) {
		c->quiet_us = now;
		rc = membership_even_heads(c);
	}
	if (rc == 0 && now > c->replaced_us + REPLACE_US) {
		c->replaced_us = now;
		rc = replace_pass(c);
	}
	if (rc < 0 && !c->stopping)
		log_error("chains: %s; trying on", status_text(rc));
}

/* A connection has just ended and somebody listens still: it may be on its way out. */
static bool is_dying(const struct target *t, uint64_t period_us)
{
	return t->ended && !t->dead && t->info.state == TARGET_UP &&
	       loop_now_us() < t->ended_us + period_us;
}

/* Until the next look without a cause. */
static uint64_t wait_us(const struct cluster *c)
{
	uint64_t period_us = c->params->heartbeat_ms * 500ull;

	for (uint32_t i = 0; i < c->n_targets; i++)
		if (is_dying(c->targets[i], period_us))
			return period_us < DYING_US ? period_us : DYING_US;
	return period_us;
}

void detect_run(struct cluster *c)
{
	while (!c->stopping) {
		uint64_t due_us = loop_now_us() + wait_us(c);

		if (!c->kicked) {
			int rc = waitq_wait(&c->work, due_us);

			if (rc < 0 && rc != -LE_TIMEDOUT)
				return;
		}
		if (c->stopping)
			return;
		c->kicked = false;
		detect_look(c, due_us);
	}
}
