/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A metadata server in the simulator, called without rpc, and object servers that only record the
 * requests that they get. A test body runs in a fiber; fx_crash crashes the server's process
 * between two bodies.
 */
#ifndef LEAT_TESTS_UNIT_MDS_FIXTURE_H
#define LEAT_TESTS_UNIT_MDS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/rt/loop.h"
#include "common/rt/sim/sim.h"
#include "mds/op.h"
#include "mds/server.h"

#define FX_TARGETS 3
#define FX_SLOTS   8

struct fx {
	struct sim *sim;
	struct sim_proc *mds_proc, *oss_proc;
	struct transport *net;
	struct mds_params params;
	bool no_targets; /* the test itself registers the targets */
	struct rpc_key key;
	struct mds *m;
	void (*body)(struct fx *f);
	bool done;
	/* the session that fx_call uses, and its sequence numbers */
	uint64_t session, seq[FX_SLOTS];
	uint32_t slot;
	struct cred cred;
	struct op op; /* last call: has the memory of its reply */
	/* object servers */
	struct rpc_server *oss[FX_TARGETS];
	char oss_addr[FX_TARGETS][64];
	uint64_t n_trims, n_punches, n_removed, n_syncs;
	uint64_t intent_seq[FX_TARGETS][FX_SLOTS]; /* by chain and slot: last trim or punch */
	bool oss_fail, oss_stop, to_crash;
	bool shown;       /* a trim reports that other clients have chunk leases, */
	uint64_t cut;     /* and that it changed that many chunks, */
	uint32_t n_lost;  /* after that many requests with lost replies */
	bool punched_fails; /* stat fails once a punch was requested */
	struct oss_stat_rep stat; /* reply to stat; only the first server returns the size */
};

struct fx *fx_create(uint64_t seed);
/* For tests that call fx_crash: memory that the crashed process had allocated is not reported as a
 * leak. */
struct fx *fx_create_to_crash(uint64_t seed);
void fx_destroy(struct fx *f);
/* Runs the body in the server's process. Starts that first if it does not run (formats the store
 * and registers the targets). */
void fx_run(struct fx *f, void (*body)(struct fx *f));
/* Like fx_run, but does not wait for the body's end. */
void fx_start(struct fx *f, void (*body)(struct fx *f));
/* Crashes the server's process immediately; the next fx_run starts it again. */
void fx_crash(struct fx *f);

/* ---- in a body ---- */
uint64_t fx_session(struct fx *f, uint8_t client);
/* Sends a request of f->session in slot f->slot; a mutation gets the next sequence. */
int fx_call(struct fx *f, uint16_t op, const void *in, void *out);
/* Like fx_call, with session, slot and sequence of the caller. */
int fx_call_as(struct fx *f, uint64_t session, uint32_t slot, uint64_t seq, uint16_t op,
	       const void *in, void *out);

/* Shorthands for requests by parent and name. They return the status. */
int fx_create_file(struct fx *f, struct ino dir, const char *name, uint32_t flags,
		   struct attr *ret_attr);
int fx_mkdir(struct fx *f, struct ino dir, const char *name, struct ino *ret_ino);
int fx_lookup(struct fx *f, struct ino dir, const char *name, struct attr *ret_attr);
int fx_getattr(struct fx *f, struct ino ino, struct attr *ret_attr);
struct attr fx_attr(struct fx *f, struct ino ino);
void fx_sleep_ms(uint32_t ms);
/* Reports one open of the session; done: it was the last one. */
int fx_reclaim(struct fx *f, struct ino ino, uint32_t flags, bool done, uint32_t *ret_lost);
int fx_unlink(struct fx *f, struct ino dir, const char *name);
int fx_rmdir(struct fx *f, struct ino dir, const char *name);
int fx_rename(struct fx *f, struct ino dir, const char *name, struct ino dir2, const char *name2,
	      uint32_t flags);
int fx_link(struct fx *f, struct ino ino, struct ino dir, const char *name);
int fx_open(struct fx *f, struct ino ino, uint32_t flags);
int fx_close(struct fx *f, struct ino ino, uint32_t flags, uint64_t size);
int fx_truncate(struct fx *f, struct ino ino, uint64_t size);
/* Returns how many problems mds_check finds in the store. Stops the server first (to_crash: crashes
 * it). */
uint64_t fx_check(struct fx *f, bool repair);
/* Like fx_check, for a store that mds_check may refuse: returns its status. */
int fx_check_status(struct fx *f);

#define TEST(name, body)                                                                           \
	static void name(void **state)                                                             \
	{                                                                                          \
		struct fx *f = fx_create(1);                                                       \
		(void)state;                                                                       \
		fx_run(f, body);                                                                   \
		fx_destroy(f);                                                                     \
	}

#endif
