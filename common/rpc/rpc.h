/*
 * Requests and replies over a transport link: handshake with version and mutual authentication,
 * many requests in flight, credits, deadlines, cancellation, reconnect with back-off, callbacks
 * from server to client. Both sides are owned by one loop.
 *
 * Client:  rpc_client_create (reconnects for ever in the background) → rpc_call, any number of
 *          fibers at once → rpc_client_destroy.
 * Server:  rpc_server_create with a table of handlers; each request runs in a fiber of its own.
 */
#ifndef LEAT_RPC_RPC_H
#define LEAT_RPC_RPC_H

#include "common/proto/message.h"
#include "common/rpc/transport.h"

#define RPC_KEY_SIZE 32
#define RPC_BULK_VECS_MAX 64u

struct rpc_key {
	uint8_t b[RPC_KEY_SIZE];
};
/* Reads the cluster key file: 64 hex digits. -LE_CONFIG with a log line when malformed, -LE_ACCES
 * when others may read it. Blocking: at start only. */
int rpc_key_load(const char *path, struct rpc_key *ret_key) CHECK_RESULT;

enum rpc_role { ROLE_CLIENT = 1, ROLE_MDS = 2, ROLE_OSSD = 3, ROLE_AGENT = 4, ROLE_TOOL = 5 };

/* ---- client ---- */
struct rpc_client;

struct rpc_client_options {
	struct transport *transport;
	/* "host:port verbs:host:port ..." of one server (addr.h): tried in turn, the best that
	 * the transport knows first, and what the server tells about itself too */
	const char *addrs;
	const char *name;            /* of this node, for the server's log */
	enum rpc_role role;
	struct uuid cluster;         /* zero: take the server's (and check it for ever after) */
	struct rpc_key key;
	uint32_t loop;               /* of the server */
	uint32_t in_flight_max;      /* 0: 256; further calls wait */
	uint32_t connect_timeout_ms; /* 0: 2000 */
	uint32_t backoff_max_ms;     /* 0: 500; first retry after about 1 ms */
	/* 0: 1. Connections over different rails to the same server, requests spread over them;
	 * needs a server that binds no session to a connection. Above 1 `connected` is called for
	 * each of them, and again after `disconnected` when one was lost and others are there;
	 * it must not make calls then. */
	uint32_t rails_max;
	/* Until the first connection: where no address is of a known host, calls end at once with
	 * -LE_NO_HOST. Else they wait, as DNS may come later. */
	bool hosts_known;
	void *arg;
	/* In a fiber of their own, in order. connected: before other calls go out (open a session
	 * here with RPC_CALL_SETUP); non-zero breaks the connection again. Either may be NULL. */
	int (*connected)(void *arg, struct rpc_client *c);
	void (*disconnected)(void *arg, struct rpc_client *c, int why);
	/* A callback from the server; returns the reply's status. */
	int (*callback)(void *arg, struct rpc_client *c, uint16_t op, const void *req, void *rep);
};

/* On the current loop. Starts connecting; does not wait for it. */
int rpc_client_create(const struct rpc_client_options *opts,
		      struct rpc_client **ret_client) CHECK_RESULT;
/* Calls under way end with -LE_SHUTDOWN. Yields. */
void rpc_client_destroy(struct rpc_client *c);

enum rpc_call_flags {
	RPC_CALL_SETUP = 1,   /* from the connected hook: ahead of everybody else */
	RPC_CALL_NO_WAIT = 2, /* -LE_DISCONNECTED at once when there is no connection */
};

/* One attempt. Zero what you do not use. */
struct rpc_call {
	uint16_t op;
	uint16_t flags;
	const void *req; /* struct NAME_req */
	void *rep;       /* struct NAME_rep, filled on success; its bytes point into `body` */
	uint64_t deadline_us;
	uint64_t session, seq;
	uint32_t slot, epoch, target, chain;
	bool again;     /* FRAME_AGAIN */
	bool seen;      /* FRAME_SEEN */
	bool withdrawn; /* FRAME_WITHDRAWN */
	const struct slot_vec *bulk_out;
	uint32_t n_bulk_out;
	const struct slot_vec
		*bulk_in; /* room for the reply's data; a larger reply is -LE_BAD_MESSAGE */
	uint32_t n_bulk_in;
	uint32_t ret_bulk_len; /* bytes that came */
	/* May be NULL. The server has accepted the request (rpc_accept): called in the fiber that
	 * reads the connection, while rpc_call waits on; must not yield. */
	void (*accepted)(void *arg);
	void *accepted_arg;
	bool ret_accepted; /* that has happened in the last attempt, whatever it returned */
	bool ret_sent;     /* it went out */
	void *body;        /* held until rpc_call_fini */
	uint64_t sent_us;  /* the caller's own: when the last attempt began */
};
/*
 * Sends and waits for the reply. Returns the reply's status, or -LE_TIMEDOUT (the server is told to
 * cancel), -LE_INTR, -LE_DISCONNECTED (sent, answer unknown), -LE_CONNREFUSED, -LE_AUTH,
 * -LE_VERSION, -LE_WRONG_CLUSTER, -LE_NO_HOST, -LE_NO_NAMES (also after the deadline while
 * nothing but that was heard), -LE_SHUTDOWN. After it returned, no buffer is touched.
 * rpc_call_fini always. Yields.
 */
int rpc_call(struct rpc_client *c, struct rpc_call *call) CHECK_RESULT;
void rpc_call_fini(struct rpc_call *call);

bool rpc_client_connected(const struct rpc_client *c);
const struct uuid *
rpc_client_cluster(const struct rpc_client *c); /* zero before the first connection */
struct rpc_client_stats {
	uint64_t calls, replies, timeouts, disconnects, connects, bytes_out, bytes_in;
	uint64_t moves;  /* to a better address while a connection was there */
	uint64_t broken; /* calls whose connection broke before the answer */
	uint32_t in_flight;
	char peer[96]; /* "tcp 127.0.0.1:7440", or why there is no connection */
};
void rpc_client_stats(const struct rpc_client *c, struct rpc_client_stats *ret_stats);

/* One connection, for people. The strings are borrowed for the call. */
struct rpc_net {
	const char *state;     /* "up", "setup", "leaving", "connecting" */
	const char *transport; /* "verbs" */
	const char *name;      /* of the other side, as it called itself */
	const char *addr;      /* of the other side */
	enum rpc_role role;    /* of the other side; 0: not known */
	uint32_t rail;         /* client: number of the lane */
	int why;               /* there is no connection */
	uint64_t age_us;
	uint64_t calls, replies; /* server: frames that came and went */
	uint64_t in_rate, out_rate; /* bytes of data per second, over the last one or longer */
	uint32_t in_flight;
	/* client, of all its connections so far: */
	uint64_t reconnects, moves, repeated;
	struct link_stats link;
};
/* fn for each connection, or once for the lack of one; must not yield. */
void rpc_client_net(const struct rpc_client *c, void (*fn)(void *arg, const struct rpc_net *n),
		    void *arg);
/* Sums over connections, those that have ended too, by transport (whatever is not verbs counts as
 * tcp). */
struct rpc_net_sum {
	uint64_t connections, connects; /* now, and in all */
	uint64_t frames_in, frames_out, bulk_in, bulk_out, copied, stalls;
};
struct rpc_net_totals {
	struct rpc_net_sum tcp, verbs;
	struct transport_resources held; /* of the transport, not a sum */
};
/* Added to what is in totals. */
void rpc_client_totals(const struct rpc_client *c, struct rpc_net_totals *totals);

/* ---- server ---- */
struct rpc_server;
struct rpc_req;

/* A connected client, as the server sees it. Lives until `closed` has returned and its last request
 * has ended. */
struct rpc_peer {
	enum rpc_role role;
	char name[64];      /* as it called itself */
	char addr[96];
	uint32_t version;   /* negotiated */
	uint64_t id;        /* unique in this process */
	void *user;         /* the server program's */
	bool gone;          /* the connection has ended */
};

/*
 * A request in its fiber. in/out: the decoded request and the zeroed reply struct. in's bytes point
 * into the frame, which stays until the fiber ends. Memory for out's bytes: rpc_req_alloc.
 */
struct rpc_req {
	struct rpc_server *server;
	struct rpc_peer *peer;
	const struct msg_desc *desc;
	struct frame_hdr hdr;      /* session, slot, seq, epoch, target, chain */
	const void *in;
	void *out;
	struct slot_vec
		bulk[RPC_BULK_VECS_MAX]; /* data that came with it; unref'd after the reply */
	uint32_t n_bulk, bulk_len;
	struct slot_vec reply_bulk[RPC_BULK_VECS_MAX]; /* data to go back; one ref per entry is
							  taken over */
	uint32_t n_reply_bulk;
	uint64_t deadline_us;
	uint64_t start_us;
	void *arg; /* of the server options */
};
/* From the request's arena; freed after the reply is sent. NULL above RPC_ARENA_MAX or without
 * memory. */
#define RPC_ARENA_MAX (1u << 19)
void *rpc_req_alloc(struct rpc_req *r, size_t size);
/*
 * From the handler: tells the client that what it asked for has taken effect, though the reply has
 * to wait (until it is durable). Once; harmless when the connection is gone. Yields, so that what
 * is accepted in one turn goes out together.
 */
void rpc_accept(struct rpc_req *r);
/* The client has cancelled, or its connection is gone: work that changes nothing may stop. */
bool rpc_req_canceled(const struct rpc_req *r);

struct rpc_handler {
	uint16_t op;
	int (*fn)(struct rpc_req *r, const void *in, void *out);
};

struct rpc_server_options {
	struct transport *transport;
	const char *addrs;          /* to listen on, space separated (addr.h) */
	const char *advertise;      /* told to clients instead of those; NULL or empty: those */
	const char *name;
	enum rpc_role role;
	struct uuid cluster;
	struct rpc_key key;
	struct slot_pool *bulk_pool; /* incoming data; may be NULL when no request carries any */
	uint32_t bulk_max;           /* largest bulk of a request, bytes */
	uint32_t in_flight_max;      /* per connection (credits), 0: 256 */
	uint32_t requests_max;       /* in all, 0: 8192: beyond it -LE_OVERLOAD */
	uint32_t connections_max;    /* 0: 16384 */
	uint32_t data_stall_ms;      /* who takes nothing of a reply with data for so long, 0: 4000,
					is cut off: it holds slots that others wait for */
	uint32_t slow_ms;            /* log requests that take longer, 0: never */
	const struct rpc_handler *handlers;
	uint32_t n_handlers;
	void *arg;
	int (*opened)(void *arg,
		      struct rpc_peer *p); /* after authentication; non-zero refuses. May be NULL */
	void (*closed)(void *arg, struct rpc_peer *p); /* may be NULL */
	/* Called after each request with its status, for metrics. May be NULL. */
	void (*served)(void *arg, const struct rpc_req *r, int status, uint64_t us);
};
int rpc_server_create(const struct rpc_server_options *opts,
		      struct rpc_server **ret_server) CHECK_RESULT;
struct transport *rpc_server_transport(const struct rpc_server *s);
/* The addresses it listens on, as "host:port host:port" with real ports (and schemes, where the
 * transport has several). */
const char *rpc_server_addrs(const struct rpc_server *s);
/* What clients are told: no wildcards but "scheme:*:port", which stands for the host that the
 * client used. */
void rpc_server_told(const struct rpc_server *s, char *buf, size_t size);
void rpc_server_totals(struct rpc_server *s, struct rpc_net_totals *totals);
/* fn for each authenticated connection; must not yield. */
void rpc_server_net(struct rpc_server *s, void (*fn)(void *arg, const struct rpc_net *n),
		    void *arg);
/* No new connections and requests; waits for running ones (at most drain_ms), closes. Yields. */
void rpc_server_destroy(struct rpc_server *s, uint32_t drain_ms);
/* To a client, over its own connection; like rpc_call. Yields. The reply's bytes live until
 * rpc_call_fini. */
int rpc_callback(struct rpc_peer *p, struct rpc_call *call) CHECK_RESULT;
void rpc_peer_ref(struct rpc_peer *p);
void rpc_peer_unref(struct rpc_peer *p);
/* Breaks the connection (a session was fenced or taken over by a newer connection). */
void rpc_peer_kill(struct rpc_peer *p);
void rpc_server_each_peer(struct rpc_server *s, void (*fn)(void *arg, struct rpc_peer *p),
			  void *arg);

#endif
