/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a simulation, for the files of this folder, which alone include this. */
#ifndef LEAT_COMMON_RT_SIM_SIM_IMPL_H
#define LEAT_COMMON_RT_SIM_SIM_IMPL_H

#include "common/rt/env_backend.h"
#include "common/rt/sim/sim.h"

#define SIM_ENV_MAGIC 0x53454e56u

/* One incarnation of a process. Freed with the simulation: handles may still point to it. */
struct sim_env {
	struct env env;
	uint32_t magic;
	uint32_t incarnation;
	struct sim_proc *proc;
	struct list files; /* struct sim_file, freed with the incarnation */
	struct list link;  /* of sim_proc.envs */
};

struct sim_disk;

struct sim_proc {
	struct sim *sim;
	char *name;
	uint32_t index, incarnation;
	bool alive, crash_pending;
	int64_t wall_ahead_us; /* its wall clock minus the simulation's */
	struct sim_env *env;  /* of the current incarnation */
	struct list envs;     /* of all incarnations */
	struct list loops;    /* struct sim_loop */
	struct list durables; /* struct durable_entry */
	struct sim_disk *disk;
	struct list link; /* of sim.procs */
};

struct sim_event {
	uint64_t at_us, tie, seq;
	struct sim_proc *proc; /* NULL: none */
	uint32_t incarnation;
	struct loop *loop; /* the loop in which fn runs; NULL: none */
	void (*fn)(void *arg);
	void *arg;
};

struct sim {
	struct sim_options opts;
	uint64_t rng, now_us, seq, n_events, trace;
	uint32_t n_procs;
	struct sim_event *events; /* a binary heap */
	uint32_t n_queued, queue_size;
	struct list procs, hooks;
};

#endif
