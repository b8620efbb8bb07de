/*
 * The simulator: clock, randomness, disk, workers and key-value stores of many simulated
 * processes on one thread, deterministic from a seed. Loops made through a sim_proc's env are
 * stepped by sim_step. One event at a time; between events every ready fiber runs, in an order
 * drawn from the seed.
 *
 * Disk: every process has a private tree of files that survives its crash. A crash keeps what
 * was synced; each write since then, sector (512 B) by sector, is kept, dropped or (rarely)
 * replaced by garbage; names that were not made durable (path_syncdir) may vanish or stay.
 * kv stores keep committed batches that were synced, and a prefix of the others.
 *
 * Memory of a crashed process's heap objects is not freed: run many seeds in child processes.
 */
#ifndef LEAT_RT_SIM_H
#define LEAT_RT_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/rt/env.h"

struct sim;
struct sim_proc;

struct sim_options {
	uint64_t disk_us_max;    /* latency of a disk operation is 1..this; 0: 500 */
	uint64_t worker_us_max;  /* of offloaded work; 0: 300 */
	uint32_t disk_error_ppm; /* chance of -LE_IO per disk operation */
	uint64_t start_wall_ns;  /* 0: a fixed date */
	/* The key-value engine (kv_sim_open). May be NULL. */
	int (*kv_open)(struct env *env, const char *path, const struct kv_options *opts,
		       struct kv **ret_kv);
};

int sim_create(uint64_t seed, const struct sim_options *opts, struct sim **ret_sim) CHECK_RESULT;
void sim_destroy(struct sim *s);

/* A process that has not been started yet, or has crashed, has no loops. */
struct sim_proc *sim_proc_create(struct sim *s, const char *name);
/* The env of the present incarnation of the process. */
struct env *sim_proc_env(struct sim_proc *p);
const char *sim_proc_name(const struct sim_proc *p);
bool sim_proc_alive(const struct sim_proc *p);
uint32_t sim_proc_incarnation(const struct sim_proc *p);
/* Runs fn(arg) in a first fiber on a new loop of the process. */
int sim_proc_start(struct sim_proc *p, void (*fn)(struct loop *loop, void *arg),
		   void *arg) CHECK_RESULT;
/* At once: loops, fibers, timers, open files vanish; the disk forgets. Calls the crash hooks. From
 * within a fiber of that very process: as soon as that fiber yields. */
void sim_proc_crash(struct sim_proc *p);
/* Files cannot grow and none can be created (-LE_NOSPC) until called with false. */
void sim_proc_disk_full(struct sim_proc *p, bool full);
/* Flips a bit somewhere in [off, off+len) of a file: media corruption. */
int sim_proc_corrupt(struct sim_proc *p, const char *path, uint64_t off, uint64_t len) CHECK_RESULT;

/* transport_sim and harnesses: called after a process has vanished */
void sim_on_crash(struct sim *s, void (*fn)(void *arg, struct sim_proc *p), void *arg);
struct sim_proc *sim_proc_of_env(struct env *env);
struct sim *sim_of_env(struct env *env); /* NULL for a real env */

/* One event (completion, timer, delivery) and all that becomes ready by it. False: nothing will
 * ever happen again. */
bool sim_step(struct sim *s);
/* Steps until the predicate holds (0) or virtual time passes limit_us (-LE_TIMEDOUT) or nothing is
 * left
 * (-LE_NODATA). */
int sim_run(struct sim *s, bool (*until)(void *arg), void *arg, uint64_t limit_us) CHECK_RESULT;
uint64_t sim_now_us(const struct sim *s);
uint64_t sim_events(const struct sim *s);

/*
 * Things that outlive a crash of their process and end with the simulation (the stores of kv_sim):
 * found again by name. crash: the process has just vanished; destroy: the simulation ends.
 */
struct sim_durable {
	void (*crash)(struct sim_durable *d);
	void (*destroy)(struct sim_durable *d);
};
int sim_durable_put(struct sim_proc *p, const char *name, struct sim_durable *d) CHECK_RESULT;
struct sim_durable *sim_durable_find(struct sim_proc *p, const char *name); /* NULL: none */
/* The current fiber waits for a random time of 1..max_us, then it knows whether the disk failed
 * (disk_error_ppm): 0 or -LE_IO. Yields. Never returns when its process is about to crash. */
int sim_disk_wait(struct env *env, uint64_t max_us) CHECK_RESULT;
uint64_t sim_disk_us_max(const struct sim *s);
uint64_t sim_worker_us_max(const struct sim *s);

/* Seeded randomness for harness and faults. */
uint64_t sim_random(struct sim *s);
uint64_t sim_random_below(struct sim *s, uint64_t n);
bool sim_chance_ppm(struct sim *s, uint32_t ppm);
/* fn(arg) after delay_us, outside of loops; inside loop's context when loop is given (dropped if
 * the loop's process has crashed by then). */
int sim_after(struct sim *s, uint64_t delay_us, struct loop *loop, void (*fn)(void *arg),
	      void *arg) CHECK_RESULT;
/* A running hash of every event: equal seeds must give equal traces. */
uint64_t sim_trace_hash(const struct sim *s);

#endif
