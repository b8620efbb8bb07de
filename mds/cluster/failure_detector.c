/* SPDX-License-Identifier: Apache-2.0 */
/* Checks all targets several times per lease. */
#include "mds/cluster/failure_detector.h"

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/cluster/membership.h"
#include "mds/cluster/rebalance.h"

#define REPLACE_US    500000u
#define TARGETS_BOUND 256u
/* A process that is killed may lose its connections shortly before its listening socket. */
#define DYING_US 5000u

void failure_detector_kick(struct cluster *c)
{
	c->kicked = true;
	waitq_wake_all(&c->work);
}

void failure_detector_peer_gone(struct cluster *c, uint64_t peer)
{
	for (uint32_t i = 0; i < c->n_targets; i++) {
		if (c->targets[i]->peer != peer)
			continue;
		c->targets[i]->ended = true;
		c->targets[i]->ended_us = loop_now_us();
		failure_detector_kick(c);
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
	/* The target may have reconnected meanwhile. */
	if (p->t->ended && p->t->peer == peer && p->t->info.state == TARGET_UP) {
		log_warn("target %u: its process has ended", p->t->info.id);
		p->t->dead = p->t->gone = true;
		waitq_wake_all(&p->c->fenced);
	}
}

static void mark_ended(struct cluster *c)
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

static void mark_silent(struct cluster *c)
{
	uint64_t bound_us = (c->params->lease_ms + (uint64_t)c->params->lease_margin_ms) * 1000;
	uint64_t now = loop_now_us();

	for (uint32_t i = 0; i < c->n_targets && now >= c->detect_from_us; i++) {
		struct target *t = c->targets[i];

		if (t->dead || t->info.state != TARGET_UP || t->last_contact_us + bound_us >= now)
			continue;
		log_warn("target %u: no heartbeat for %llu ms", t->info.id,
			 (unsigned long long)(now - t->last_contact_us) / 1000);
		t->dead = true;
	}
}

void failure_detector_poll(struct cluster *c, uint64_t due_us)
{
	uint64_t now = loop_now_us();
	uint64_t bound_us = (c->params->lease_ms + (uint64_t)c->params->lease_margin_ms) * 1000;
	int rc;

	if (now > due_us + c->params->lease_margin_ms * 1000ull / 2) {
		log_warn("this server was paused for %llu ms: silence marks no target down for "
			 "the next %llu ms",
			 (unsigned long long)(now - due_us) / 1000,
			 (unsigned long long)bound_us / 1000);
		c->detect_from_us = now + bound_us;
	}
	mark_silent(c);
	mark_ended(c);
	rc = membership_reconcile(c);
	if (rc == 0 && now > c->quiet_us + c->params->heads_after_ms * 1000ull) {
		c->quiet_us = now;
		rc = membership_even_heads(c);
	}
	if (rc == 0 && now > c->replaced_us + REPLACE_US) {
		c->replaced_us = now;
		rc = rebalance_pass(c);
	}
	if (rc < 0 && !c->stopping)
		log_error("changing the members of chains failed: %s; the next poll tries again",
			  status_text(rc));
}

/* Its connection has just ended, but something still listens at its address: the process may be
 * exiting. */
static bool is_dying(const struct target *t, uint64_t period_us)
{
	return t->ended && !t->dead && t->info.state == TARGET_UP &&
	       loop_now_us() < t->ended_us + period_us;
}

/* The interval until the next poll, if no event wakes the fiber. */
static uint64_t wait_us(const struct cluster *c)
{
	uint64_t period_us = c->params->heartbeat_ms * 500ull;

	for (uint32_t i = 0; i < c->n_targets; i++)
		if (is_dying(c->targets[i], period_us))
			return period_us < DYING_US ? period_us : DYING_US;
	return period_us;
}

void failure_detector_run(struct cluster *c)
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
		failure_detector_poll(c, due_us);
	}
}
