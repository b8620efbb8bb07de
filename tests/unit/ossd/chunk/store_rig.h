/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk store in a simulated process, and data to write into it. */
#ifndef LEAT_TESTS_UNIT_OSSD_CHUNK_STORE_RIG_H
#define LEAT_TESTS_UNIT_OSSD_CHUNK_STORE_RIG_H

#include "common/rt/sim/sim.h"
#include "ossd/chunk/chunk_store.h"
#include "ossd/server.h"

#define RIG_DIR "/store"

struct rig {
	/* Called when a write has joined its group, before it is durable. May be NULL. */
	void (*joined)(void *arg, const struct chunk_key *id);
	void *joined_arg;
	struct sim *sim;
	struct sim_proc *proc;
	struct ossd_params params;
	struct ossd_metrics metrics;
	struct chunk_store *store; /* NULL unless rig_run runs */
	struct slot_pool *pool;
	bool formatted, done;
	bool pack; /* compress written data where that saves space */
	void (*fn)(struct rig *r, void *arg);
	void *arg;
};

/* The test may change the parameters before the first run. */
void rig_init(struct rig *r, uint64_t seed);
void rig_fini(struct rig *r);
/* Formats if need be, opens the store, runs fn in a fiber, closes the store. */
void rig_run(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg);
/* Like rig_run, but the process crashes after that many events, with the store open. Returns
 * whether it crashed (false: fn ended first). */
bool rig_run_crash(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg, uint64_t events);
uint64_t rig_check(struct rig *r, bool verify);

/* Writes data at off; shift moves it inside its slot (not 0: unaligned). Returns when it is
 * durable. */
int rig_write(struct rig *r, const struct chunk_key *id, uint32_t chunk_size, uint32_t off,
	      const void *data, uint32_t len, uint32_t shift);
/* Reads and verifies pieces; buf holds len bytes. Returns the number of bytes, up to the end of the
 * chunk, or a status. */
int64_t rig_read(struct rig *r, const struct chunk_key *id, uint32_t off, void *buf, uint32_t len,
		 bool verify);

#endif
