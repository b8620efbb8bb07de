/*
 * A client and a chain of three members, which answer what the test wants. On the simulator's
 * clock.
 */
#ifndef LEAT_TESTS_UNIT_CLIENT_BED_H
#define LEAT_TESTS_UNIT_CLIENT_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/io.h"
#include "common/rt/sim.h"

#define N       3
#define CHUNK   (64u << 10)
#define LEN     (16u << 10)
#define CHAIN   5u
#define SESSION 77u

struct fake {
	struct sim_proc *proc;
	uint32_t id;
	char addr[16];
	struct slot_pool *pool;
	struct rpc_server *server;
	/* what it does */
	int read_status, write_status;
	uint64_t read_us, write_us;
	bool wrong_sum;
	uint32_t n_short; /* so many reads find nothing there */
	int many_status;
	enum many_lie {
		MANY_TRUE,
		MANY_PART_FAILS,
		MANY_WRONG_SUM,
		MANY_RESULT_LACKS,
		MANY_TOO_MANY_PIECES,
		MANY_TOO_MUCH,
		MANY_TOO_LITTLE,
		MANY_SHORT
	} many_lie;
	/* what it saw */
	uint32_t n_reads, n_writes, n_verify, n_many, n_parts, n_caps;
	struct frame_hdr last_write;
	uint64_t last_off; /* in its chunk */
	/* what the first writes are answered (a session that is gone ends with it), and what they
	 * were */
	int plan[4];
	uint32_t n_plan;
	struct {
		struct frame_hdr hdr;
		uint64_t off;
		uint32_t flags;
	} writes[4];
};

/* What is one per test. */
extern struct bed {
	struct sim *sim;
	struct transport *transport;
	struct rpc_key key;
	struct sim_proc *mds_proc, *client_proc;
	struct rpc_server *mds;
	struct loop *mds_loop;
	struct fake oss[N];
	uint32_t epoch, order[N], n_members, n_sync;
	uint32_t n_maps;
	struct attr attr; /* of every file */
	int open_status;
	uint32_t n_opens, n_closes;
	uint64_t stored;  /* where it ends in store */
	uint32_t n_getattrs;
	uint64_t session, n_restarts;
	uint32_t reclaimed; /* flags of what was told after these, together */
	/* the place that an append is given; the end that each has told; the first of them ends the
	 * session instead */
	uint64_t place, next_place, told[4];
	struct mds_append_req asked; /* last, with that number */
	uint32_t asked_slot;
	uint64_t asked_seq;
	int had_status; /* of who has to get the same place again */
	uint64_t change; /* with which places are given */
	uint32_t n_appends;
	bool append_ends_session;
	struct rpc_peer *peer;
	struct client *client;
	void (*test)(void);
	bool ready, done;
} bed;

/* Runs the test in the client's process. */
void bed_run(void (*test)(void));
/* A new chain, as the metadata server decides it; in its loop: the client is told. */
void bed_set_chain(uint32_t n_members, uint32_t n_sync, uint32_t first, uint32_t second,
		   uint32_t third);
void bed_tell_client(void *arg);
/* Open for reading and writing. */
struct idata *bed_open(void);
void bed_close(struct idata *d);

#endif
