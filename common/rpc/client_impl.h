/*
 * What rpc_client.c (calls), client_lane.c (where to connect, and when to move) and client_conn.c
 * (one connection) know of each other. Nobody else includes this. Everything is owned by the
 * client's loop.
 *
 * A client has lanes: lane 0 always, and further ones when the server is reached over several
 * rails. A lane has one connection that new calls use, and perhaps others that it has left and that
 * only finish what is under way.
 */
#ifndef LEAT_RPC_CLIENT_IMPL_H
#define LEAT_RPC_CLIENT_IMPL_H

#include "common/rpc/addr.h"
#include "common/rpc/auth.h"
#include "common/rpc/conn.h"

#define CLIENT_MAGIC 0x52504343u
#define CANDIDATES_MAX 24u
#define LANES_MAX 8u
#define HANDSHAKE_MS 5000u
#define GOODBYE_MS 100u

/* An address of the server. */
struct candidate {
	char addr[ADDR_TEXT_SIZE];
	int rank;         /* of the transport: lower is better */
	bool told;        /* by the server: replaced by what it tells next time */
	uint32_t n_fails; /* since a connection there has proven itself */
	uint64_t retry_us; /* until then others go first, and nobody moves there */
};

struct lane {
	struct rpc_client *c;
	uint32_t i;
	struct fiber *manager;
	bool running, trying;     /* trying: in connect or in the handshake */
	struct client_conn *conn; /* for new calls, once it is up; NULL: none */
	struct client_conn *next; /* in the handshake */
	struct waitq news;        /* conn has ended, or one that was left is idle */
	char last[ADDR_TEXT_SIZE]; /* where the last connection was */
	int last_rank;
	bool fell; /* a connection over a better rank was lost, and not had again since */
};

enum conn_state {
	CONN_SETUP, /* the connected hook runs: its calls only */
	CONN_UP,
	CONN_LEFT,  /* no new calls: the server says goodbye, or the lane has moved on */
};

struct client_conn {
	struct conn conn;
	struct rpc_client *client;
	struct lane *lane;
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

struct rpc_client {
	uint32_t magic;
	struct rpc_client_options opts;
	char *name;
	struct candidate candidates[CANDIDATES_MAX];
	uint32_t n_candidates;
	uint32_t spread; /* random: which of several equal rails comes first */
	uint32_t turn;   /* of the lanes, for requests without a slot */
	struct lane lanes[LANES_MAX];
	struct list conns; /* struct client_conn.link: past the handshake and not ended */
	struct waitq ready; /* a connection, or a reason why there is none */
	struct waitq idle;  /* for destroy */
	uint32_t n_users;   /* fibers inside: calls, callbacks, managers, readers */
	bool closing;
	int hard_error;     /* what every address answered last, if time does not heal it */
	int last_error;     /* of the last attempt; 0 since a connection */
	int logged_error;
	uint64_t logged_us;
	struct uuid cluster;
	struct body_pool *bodies;
	struct rpc_client_stats stats;
	struct rpc_net_totals ended; /* of the connections that have */
};

/* The connected hook binds the server's idea of us to one connection: a move takes care of that. */
static inline bool client_has_session(const struct rpc_client *c)
{
	return c->opts.connected != NULL && c->opts.rails_max == 1;
}

/* What time does not heal. */
static inline bool is_hard(int status)
{
	return status == -LE_AUTH || status == -LE_VERSION || status == -LE_WRONG_CLUSTER;
}

/* The address has a name that could not be looked up. */
static inline bool is_unnamed(int status)
{
	return status == -LE_NO_HOST || status == -LE_NO_NAMES;
}

/* ---- rpc_client.c ---- */
void client_leave(struct rpc_client *c);
void client_add_stats(struct rpc_client_stats *s, const struct conn *c);

/* ---- client_conn.c ---- */
/* Connects and shakes hands. The caller has the one reference. Yields. */
int client_conn_open(struct lane *lane, const struct candidate *at, uint64_t timeout_ms,
		     struct client_conn **ret_cc) CHECK_RESULT;
/* Starts its reader, which holds a reference of its own, and the connected hook. */
int client_conn_start(struct client_conn *cc) CHECK_RESULT;
/* It ends with a farewell: nobody has a call there any more. Yields. */
void client_conn_retire(struct client_conn *cc);

/* ---- client_lane.c ---- */
/* What the configuration says, as candidates. */
int lanes_init(struct rpc_client *c, const char *addrs) CHECK_RESULT;
int lane_start(struct lane *lane) CHECK_RESULT;
/* The server told its addresses to a connection at `at`. */
void lanes_told(struct rpc_client *c, const char *addrs, const char *at);
/* From the reader at the end of the connection. */
void lane_lost(struct lane *lane, struct client_conn *cc);

#endif
