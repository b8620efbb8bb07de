/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk store in a simulated process, and data to write into it. */
#ifndef LEAT_TESTS_STORE_RIG_H
#define LEAT_TESTS_STORE_RIG_H

#include "common/rt/sim/sim.h"
#include "ossd/chunk/chunk_store.h"
#include "ossd/server.h"

#define RIG_DIR "/store"

struct rig {
	/* After a write has joined its group, before it is durable. May be NULL. */
	void (*joined)(void *arg, const struct chunk_key *id);
	void *joined_arg;
	struct sim *sim;
	struct sim_proc *proc;
	struct ossd_params params;
	struct ossd_metrics metrics;
	struct chunk_store *store; /* while rig_run runs */
	struct slot_pool *pool;
	bool formatted, done;
	bool pack; /* what is written is compressed where that pays */
	void (*fn)(struct rig *r, void *arg);
	void *arg;
};

/* Parameters may be changed before the first run. */
void rig_init(struct rig *r, uint64_t seed);
void rig_fini(struct rig *r);
/* Formats if need be, opens the store, runs fn in a fiber, closes the store. */
void rig_run(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg);
/* The same, but the process crashes after some events, with the store open. Returns whether it did
 * (false: fn ended first). */
bool rig_run_crash(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg, uint64_t events);
uint64_t rig_check(struct rig *r, bool verify);

/* Writes data at off; shift moves it inside its slot (unaligned when not 0). Durable. */
int rig_write(struct rig *r, const struct chunk_key *id, uint32_t chunk_size, uint32_t off,
	      const void *data, uint32_t len, uint32_t shift);
/* Reads and verifies pieces; buf has room for len. Returns bytes (up to the end) or a status. */
int64_t rig_read(struct rig *r, const struct chunk_key *id, uint32_t off, void *buf, uint32_t len,
		 bool verify);

#endif
