/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a client, for rpc_client.c (calls), client_path.c (where to connect, and when to
 * move), client_conn.c (one connection) and client_unreachable.c, which alone include this.
 * Everything is owned by the client's loop.
 *
 * A client has paths: path 0 always, and further ones when the server is reached over several
 * rails. A path has one connection for new calls, and perhaps older ones that only finish the
 * calls in flight.
 */
#ifndef LEAT_COMMON_RPC_CLIENT_IMPL_H
#define LEAT_COMMON_RPC_CLIENT_IMPL_H

#include "common/rpc/addr.h"
#include "common/rpc/auth.h"
#include "common/rpc/conn.h"

#define CLIENT_MAGIC 0x52504343u
#define CANDIDATES_MAX 24u
#define RPC_PATHS_MAX 8u

/* An address of the server. */
struct candidate {
	char addr[ADDR_TEXT_SIZE];
	int rank;         /* of the transport: lower is better */
	bool announced;        /* sent by the server: replaced by the next list that it sends */
	uint32_t n_fails; /* since a connection to it was last proven sound */
	uint64_t retry_us; /* until then other candidates are tried first, and no path moves here */
};

struct path {
	struct rpc_client *c;
	uint32_t i;
	struct fiber *manager;
	bool running, trying;     /* trying: in connect or in the handshake */
	struct client_conn *conn; /* for new calls, once it is up; NULL: none */
	struct client_conn *next; /* in the handshake */
	/* wakes the manager: conn has ended, or a replaced connection is idle */
	struct waitq news;
	char last[ADDR_TEXT_SIZE]; /* address of the last connection */
	int last_rank;
	/* a connection of better rank was lost, or this rail, and was not restored since */
	bool fell;
};

enum conn_state {
	CONN_SETUP, /* the connected hook runs; only its calls are sent */
	CONN_UP,
	CONN_LEFT,  /* no new calls: the server said GOODBYE, or the path has moved */
};

struct client_conn {
	struct conn conn;
	struct rpc_client *client;
	struct path *path;
	struct list link; /* of client.conns */
	enum conn_state state;
	char addr[ADDR_TEXT_SIZE];
	int rank;
	struct auth_peer peer;
	uint64_t since_us;
	struct waitq setup_done;
	bool setting_up, was_up, moved; /* moved: left for another connection */
	uint32_t n_callbacks;
};

struct client_away {
	const char *server; /* NULL: reports are off */
	struct timer timer;
	uint64_t since_us, said_us; /* unreachable since (0: reachable); last logged */
	int why;                    /* the last error; 0: reachable, or not yet reported */
};

/* What a connection reports to its path. Implemented by client_path.c, which lies above
 * client_conn.c. */
struct path_ops {
	/* The server sent its list of addresses over a connection to `at`. */
	void (*announced)(struct rpc_client *c, const char *addrs, const char *at);
	/* The connection has ended. Called in its reader, just before the reader ends. */
	void (*lost)(struct path *path, struct client_conn *cc);
};

struct rpc_client {
	uint32_t magic;
	const struct path_ops *path_ops;
	struct rpc_client_options opts;
	char *name;
	struct candidate candidates[CANDIDATES_MAX];
	uint32_t n_candidates;
	uint32_t spread; /* random: rotates rails of equal rank */
	uint32_t turn;   /* round robin over the paths, for requests without a slot */
	struct path paths[RPC_PATHS_MAX];
	struct list conns; /* struct client_conn.link: past the handshake and not ended */
	struct waitq ready; /* a connection came up, or a permanent error was recorded */
	struct waitq idle;  /* for destroy */
	uint32_t n_users;   /* fibers inside: calls, callbacks, managers, readers */
	bool closing;
	int hard_error;     /* why no address can work without a change of configuration; 0: none */
	int last_error;     /* of the last attempt; 0 after a connection was made */
	int logged_error;
	uint64_t logged_us;
	struct uuid cluster;
	struct body_pool *bodies;
	struct rpc_client_stats stats;
	struct rpc_net_totals ended; /* sums of ended connections */
	struct client_away away;
};

/* True if the connected hook binds the server's state for this client to one connection, so that a
 * move must transfer it. */
static inline bool client_has_session(const struct rpc_client *c)
{
	return c->opts.connected != NULL && c->opts.rails_max == 1;
}

/* An error that retrying cannot resolve. */
static inline bool is_hard(int status)
{
	return status == -LE_AUTH || status == -LE_VERSION || status == -LE_WRONG_CLUSTER;
}

/* The address has a name that could not be looked up. */
static inline bool is_unnamed(int status)
{
	return status == -LE_NO_HOST || status == -LE_NO_NAMES;
}

/* Ends the count in n_users of a fiber or call. */
static inline void client_leave(struct rpc_client *c)
{
	if (--c->n_users == 0)
		waitq_wake_all(&c->idle);
}

/* Adds the connection's counters. */
static inline void client_add_stats(struct rpc_client_stats *s, const struct conn *c)
{
	s->calls += c->n_calls;
	s->replies += c->n_replies;
	s->timeouts += c->n_timeouts;
	s->bytes_out += c->bytes_out;
	s->bytes_in += c->bytes_in;
	s->in_flight += c->in_flight;
}

/* True if any path has a connection that is up. */
static inline bool client_connected(const struct rpc_client *c)
{
	for (uint32_t i = 0; i < RPC_PATHS_MAX; i++) {
		const struct client_conn *cc = c->paths[i].conn;
		if (cc != NULL && cc->state == CONN_UP && !cc->conn.dead)
			return true;
	}
	return false;
}

#endif
