/* What sim.c and sim_disk.c know of each other. Nobody else includes this. */
#ifndef LEAT_RT_SIM_IMPL_H
#define LEAT_RT_SIM_IMPL_H

#include "common/rt/env_backend.h"
#include "common/rt/sim.h"

#define SIM_ENV_MAGIC 0x53454e56u

/* One incarnation of a process. Freed with the simulation: handles may still point to it. */
struct sim_env {
	struct env env;
	uint32_t magic;
	uint32_t incarnation;
	struct sim_proc *proc;
	struct list files; /* struct sim_file, for the end */
	struct list link;  /* of sim_proc.envs */
};

struct sim_disk;

struct sim_proc {
	struct sim *sim;
	char *name;
	uint32_t index, incarnation;
	bool alive, crash_pending;
	struct sim_env *env;  /* the present incarnation's */
	struct list envs;     /* all of them */
	struct list loops;    /* struct sim_loop */
	struct list durables; /* struct durable_entry */
	struct sim_disk *disk;
	struct list link; /* of sim.procs */
};

struct sim_env *sim_env_of(struct env *env);
void sim_trace(struct sim *s, uint64_t what);

/* ---- sim_disk.c ---- */
struct sim_disk *sim_disk_create(struct sim *s);
void sim_disk_destroy(struct sim_disk *d);
void sim_disk_crash(struct sim_disk *d);
void sim_disk_set_full(struct sim_disk *d, bool full);
int sim_disk_corrupt(struct sim_disk *d, const char *path, uint64_t off, uint64_t len) CHECK_RESULT;
/* Open files of an incarnation that is over. */
void sim_disk_free_files(struct sim_env *e);
/* The file calls, filled into the table of the simulated env. */
void sim_disk_ops(struct env_ops *ops);

#endif
