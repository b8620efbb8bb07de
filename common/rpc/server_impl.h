/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a server, for rpc_server.c (listening, connections) and rpc_request.c (requests),
 * which alone include this. Everything is owned by the server's loop.
 */
#ifndef LEAT_COMMON_RPC_SERVER_IMPL_H
#define LEAT_COMMON_RPC_SERVER_IMPL_H

#include "common/base/hmap.h"
#include "common/rpc/conn.h"

#define LISTENERS_MAX 16u
#define OPS_MAX 0x400u /* op numbers are lower */
#define ARENA_INLINE 8192u
#define SEND_STALL_MS 30000u /* a peer that receives nothing for so long is disconnected */
#define BULK_STALL_MS 30000u
/* Slowest rate of a client: a reply with data gets this much time in addition to data_stall_ms. */
#define SLOWEST_BYTES_PER_MS 4096u
#define LOG_PEERS 32u

/* When a message about a peer was last logged; limits them to one a minute. */
struct log_peer {
	uint64_t hash, at_us;
};

#define SERVER_MAGIC 0x52504353u
struct rpc_server {
	uint32_t magic;
	struct rpc_server_options opts;
	char *text; /* memory of the listen addresses and of opts.name */
	char *advertise;
	char *addrs;
	struct listener *listeners[LISTENERS_MAX];
	struct fiber *acceptors[LISTENERS_MAX];
	uint32_t n_listeners;
	bool closing;
	struct list conns;   /* all; struct server_conn.link */
	struct list strangers; /* not authenticated yet, oldest first; .stranger_link */
	uint32_t n_conns, n_strangers, n_acceptors;
	uint32_t n_requests;
	struct waitq idle; /* n_requests, n_conns or n_acceptors became 0 */
	/* Held by the one reader that collects slots, so that no two wait with half of theirs. */
	struct fmutex bulk_lock;
	struct body_pool *bodies;
	struct list free_requests;
	uint32_t n_free_requests;
	const struct rpc_handler *by_op[OPS_MAX];
	struct log_peer logged[LOG_PEERS];
	struct rpc_net_totals ended; /* sums of ended connections */
};

#define SERVER_CONN_MAGIC 0x52504350u
struct server_conn {
	uint32_t magic;
	struct conn conn;
	struct rpc_server *s;
	struct rpc_peer peer;
	struct list link, stranger_link;
	struct fiber *reader;
	struct list running; /* struct request.link */
	struct hmap by_id;   /* of running */
	uint32_t n_running, credits;
	uint64_t n_sent; /* replies sent, to detect progress */
	uint64_t since_us;
	bool said_goodbye;
};

struct arena_chunk {
	struct arena_chunk *next;
	uint64_t data[];
};

#define REQUEST_MAGIC 0x52504352u
struct request {
	uint32_t magic;
	bool canceled, accepted;
	bool fetching; /* its data is being received into pub.bulk */
	bool replying;
	bool released; /* the client has its memory back */
	struct server_conn *sc;
	struct fiber *fiber;
	const struct rpc_handler *handler;
	struct list link; /* in sc->running or s->free_requests */
	struct hmap_node node;
	struct arena_chunk *chunks;
	uint32_t arena_used, arena_total;
	/* The first n_out descriptors are the source of the request's data, the others the
	 * destination of the reply's. */
	uint32_t n_out;
	const uint8_t *body;
	uint32_t body_len;
	struct rpc_req pub;
	uint64_t in[MSG_STRUCT_MAX / 8], out[MSG_STRUCT_MAX / 8];
	struct link_rx rx; /* header and descriptors */
	uint64_t arena[ARENA_INLINE / 8];
};

#endif
