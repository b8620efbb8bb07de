/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elements of a simulation: randomness, virtual time, events, and the trace that proves two
 * runs equal. sim.h includes it for harnesses. Everything on one thread.
 */
#ifndef LEAT_COMMON_RT_SIM_SIM_CORE_H
#define LEAT_COMMON_RT_SIM_SIM_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/rt/env.h"

struct sim;
struct sim_env;
struct sim_proc;

uint64_t sim_now_us(const struct sim *s);
uint64_t sim_events(const struct sim *s);
/* The current fiber waits for a random time of 1..max_us, then the disk fails with a chance of
 * disk_error_ppm: 0 or -LE_IO. Yields. Never returns when its process is about to crash. */
int sim_disk_wait(struct env *env, uint64_t max_us) CHECK_RESULT;
uint64_t sim_disk_us_max(const struct sim *s);
uint64_t sim_worker_us_max(const struct sim *s);

/* Seeded randomness for harness and faults. */
uint64_t sim_random(struct sim *s);
uint64_t sim_random_below(struct sim *s, uint64_t n);
bool sim_chance_ppm(struct sim *s, uint32_t ppm);
/* Runs fn(arg) after delay_us: outside of loops, or, if loop is given, in its context (dropped if
 * its process has crashed by then). */
int sim_after(struct sim *s, uint64_t delay_us, struct loop *loop, void (*fn)(void *arg),
	      void *arg) CHECK_RESULT;
/* A running hash of every event: equal seeds must give equal traces. */
uint64_t sim_trace_hash(const struct sim *s);

/* ---- inside of common/rt/sim ---- */
/* Adds `what` to the trace. */
void sim_trace(struct sim *s, uint64_t what);
/* The env of one incarnation of a process; env must be simulated. */
struct sim_env *sim_env_of(struct env *env);
/* Runs the next event; there must be one. */
void sim_run_event(struct sim *s);
/* Drops the events of a loop, or of a process (l NULL). */
void sim_purge_events(struct sim *s, const struct sim_proc *p, const struct loop *l);
/* The current fiber waits for a random time of 1..max_us; fn (may be NULL) runs before it
 * continues. Yields. Never returns when its process is about to crash. */
int sim_wait_random(struct env *env, uint64_t max_us, void (*fn)(void *arg),
		    void *arg) CHECK_RESULT;

#endif
