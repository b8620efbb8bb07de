/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client and a chain of three members, whose replies the test sets. On the simulator's clock.
 */
#ifndef LEAT_TESTS_UNIT_CLIENT_BED_H
#define LEAT_TESTS_UNIT_CLIENT_BED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "common/proto/frame.h"
#include "common/proto/mds_proto.h"
#include "common/rpc/rpc.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/sim/sim.h"

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
	/* how it answers */
	int read_status, write_status;
	uint64_t read_us, write_us;
	bool wrong_sum;
	uint32_t n_short; /* number of reads that find no data */
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
	/* what it received */
	uint32_t n_reads, n_writes, n_verify, n_many, n_parts, n_caps;
	struct frame_hdr last_write;
	uint64_t last_off; /* in its chunk */
	/* results of the first writes (-LE_SESSION_GONE ends the session), and the requests */
	int plan[4];
	uint32_t n_plan;
	struct {
		struct frame_hdr hdr;
		uint64_t off;
		uint32_t flags;
	} writes[4];
};

/* The state of one test. */
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
	uint64_t stored;  /* end of the file as the chains report it */
	uint32_t n_getattrs;
	uint64_t session, n_restarts;
	uint32_t reclaimed; /* flags of all reclaims after these restarts */
	/* Offset of the next append reservation; sizes that the requests carried.
	 * append_ends_session: the first request ends the session instead. */
	uint64_t append_range, next_place, append_sizes[4];
	struct mds_append_req tried; /* the last request, and its slot and sequence */
	uint32_t asked_slot;
	uint64_t asked_seq;
	int had_status; /* result for a request that must get its previous reservation */
	uint64_t change; /* change counter of reservations */
	uint32_t n_appends;
	bool append_ends_session;
	/* Each directory has one entry, of cookie 1. How long the metadata server takes for a later
	 * cookie. */
	uint64_t readdir_us;
	uint32_t n_readdirs;
	struct rpc_peer *peer;
	struct client *client;
	void (*test)(void);
	bool ready, done;
} bed;

/* Runs the test in the client's process. */
void bed_run(void (*test)(void));
/* Sets a new chain; bed_tell_client, in the metadata server's loop, notifies the client. */
void bed_set_chain(uint32_t n_members, uint32_t n_sync, uint32_t first, uint32_t second,
		   uint32_t third);
void bed_tell_client(void *arg);
/* Opens the file for reading and writing. */
struct inode_io *bed_open(void);
void bed_close(struct inode_io *d);

#endif
