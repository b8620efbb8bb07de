/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator: clock, randomness, disk, workers and key-value stores of many simulated processes
 * on one thread, deterministic from a seed. sim_step drives the loops made through a sim_proc's
 * env. It runs one event at a time; between events every ready fiber runs, in an order drawn from
 * the seed.
 *
 * Disk: every process has a private tree of files that survives its crash. A crash keeps what was
 * synced; each write since then, sector (512 B) by sector, is kept, dropped or (rarely) replaced by
 * garbage; names that were not made durable (path_syncdir) may vanish or stay. kv stores keep
 * committed batches that were synced, and a prefix of the others.
 *
 * The heap objects of a crashed process are not freed: run many seeds in child processes.
 */
#ifndef LEAT_COMMON_RT_SIM_SIM_H
#define LEAT_COMMON_RT_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/rt/env.h"
#include "common/rt/sim/sim_core.h"

struct sim_options {
	uint64_t disk_us_max;    /* maximum latency of a disk operation, from 1 on; 0: 500 */
	uint64_t worker_us_max;  /* maximum latency of offloaded work; 0: 300 */
	uint32_t disk_error_ppm; /* chance of -LE_IO per disk operation */
	uint64_t start_wall_ns;  /* 0: a fixed date */
	/* Opens the key-value engine (kv_sim_open). May be NULL. */
	int (*kv_open)(struct env *env, const char *path, const struct kv_options *opts,
		       struct kv **ret_kv);
};

int sim_create(uint64_t seed, const struct sim_options *opts, struct sim **ret_sim) CHECK_RESULT;
void sim_destroy(struct sim *s);

/* Creates a process without loops; sim_proc_start starts it, also after a crash. */
struct sim_proc *sim_proc_create(struct sim *s, const char *name);
/* The env of the current incarnation of the process. */
struct env *sim_proc_env(struct sim_proc *p);
const char *sim_proc_name(const struct sim_proc *p);
bool sim_proc_alive(const struct sim_proc *p);
uint32_t sim_proc_incarnation(const struct sim_proc *p);
/* Runs fn as the first fiber on a new loop of the process. */
int sim_proc_start(struct sim_proc *p, void (*fn)(struct loop *loop, void *arg),
		   void *arg) CHECK_RESULT;
/* Crashes the process: its loops, fibers, timers and open files vanish, the disk loses what was not
 * synced. Calls the crash hooks. Immediate, but from a fiber of the same process only when it
 * yields. */
void sim_proc_crash(struct sim_proc *p);
/* Files cannot grow and none can be created (-LE_NOSPC) until called with false. */
void sim_proc_disk_full(struct sim_proc *p, bool full);
/* Sets its wall clock ahead of the others' (less than 0: behind them), also beyond a crash. */
void sim_proc_set_wall(struct sim_proc *p, int64_t ahead_us);
/* Flips a bit somewhere in [off, off+len) of a file: media corruption. */
int sim_proc_corrupt(struct sim_proc *p, const char *path, uint64_t off, uint64_t len) CHECK_RESULT;

/* For transport_sim and harnesses: fn is called after a process has crashed. */
void sim_on_crash(struct sim *s, void (*fn)(void *arg, struct sim_proc *p), void *arg);
struct sim_proc *sim_proc_of_env(struct env *env);
struct sim *sim_of_env(struct env *env); /* NULL for a real env */

/* Runs one event (completion, timer, delivery) and everything that becomes ready by it. False: no
 * event or timer is left. */
bool sim_step(struct sim *s);
/* Steps until the predicate holds (0), virtual time passes limit_us (-LE_TIMEDOUT) or nothing is
 * left (-LE_NODATA). */
int sim_run(struct sim *s, bool (*until)(void *arg), void *arg, uint64_t limit_us) CHECK_RESULT;

/*
 * Objects that survive a crash of their process and end with the simulation (the stores of kv_sim);
 * found by name. crash: the process has just crashed; destroy: the simulation ends.
 */
struct sim_durable {
	void (*crash)(struct sim_durable *d);
	void (*destroy)(struct sim_durable *d);
};
/* Hands d over to the process. */
int sim_durable_put(struct sim_proc *p, const char *name, struct sim_durable *d) CHECK_RESULT;
struct sim_durable *sim_durable_find(struct sim_proc *p, const char *name); /* NULL: none */

#endif
