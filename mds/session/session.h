/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: one for each mount (client uuid), durable, with replay rows (replay.h) and open
 * files (open_file.h). A session expires when its client has not contacted the server for
 * session_ttl_ms. When a client with the same uuid connects again, its session moves to the new
 * connection; the server breaks the old one and does not execute the requests that were queued
 * on it.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_SESSION_SESSION_H
#define LEAT_MDS_SESSION_SESSION_H

#include "common/base/clocks.h"
#include "common/base/hmap.h"
#include "common/rpc/rpc.h"
#include "mds/params.h"
#include "mds/session/replay.h"
#include "mds/store/txn.h"

#define SESSION_MDS   1u  /* of the MDS itself, at object servers */
#define SESSION_FIRST 16u /* below are reserved */

#define SESSION_MAGIC 0x53455353u
struct session {
	uint32_t magic;
	uint32_t refs;
	struct hmap_node by_id, by_client;
	struct list link; /* all of them */
	uint64_t id;
	struct uuid client;
	char name[64];
	uint32_t n_slots;
	struct replay_slot *slots;
	struct rpc_peer *peer; /* NULL: not connected */
	char addr[96];         /* of the last connection; "": none since the start */
	uint64_t last_contact_us;
	/* The bools are independent: a session that its client closes, that a fiber probes or ends,
	 * or whose client restarts may also have opens from before the restart of this server. */
	bool ended;
	bool ending;            /* a fiber is ending it (lease/holder.h) */
	bool asked;             /* a fiber probes its client (lease/recall.h) */
	bool closing;           /* its client has closed it */
	uint64_t reclaimed_sum; /* checksum of the last reclaim message */
	uint32_t reclaimed_lost; /* opens of that message that could not be restored */
	uint32_t n_unshared;    /* shared leases not given again since the reclaim began */
	bool from_store;     /* from before the restart of this server, opens not reclaimed yet */
	bool taking_over;    /* taken over by a process that has not reclaimed its opens yet */
	struct list opens;   /* struct open */
	struct list leases;  /* struct lease */
	struct list assumed; /* struct open: lease/assumed_open.h */
	uint64_t silent_us;  /* when it was found silent; void if last_contact_us is later */
	uint32_t n_recalls;  /* callbacks in flight */
	struct reached *reached; /* mds/ops/reach.h; NULL: none */
	/* How far the client's wall clock differs from this server's, as the client reports it. For
	 * `leat status`; the client logs it, this server does not. */
	struct clock_seen clock;
};

struct sessions {
	struct store *store;
	const struct mds_params *params;
	struct hmap by_id, by_client;
	struct list all;
	uint32_t n, n_from_store;
	uint64_t gen;       /* advanced when a session is opened or ended */
	struct fmutex lock; /* held while a session is opened or ended */
};

/* Makes an empty table. Does not yield. */
void sessions_init(struct sessions *ss);
/* Reads all sessions and their replay rows from the store. Returns 0, -LE_CORRUPT_STORE, -LE_NOMEM
 * or the error of the store. Yields. */
int sessions_load(struct sessions *ss, struct store *s, const struct mds_params *p) CHECK_RESULT;
/* Frees all sessions. Does not yield. */
void sessions_fini(struct sessions *ss);

/* The live session with that id, NULL if there is none. Does not yield. */
struct session *session_find(struct sessions *ss, uint64_t id);
/* The session of that client, NULL if there is none. Does not yield. */
struct session *session_find_client(struct sessions *ss, const struct uuid *client);
/* Makes a session, which is durable when this returns 0. slots: how many mutations the client wants
 * in flight. Returns -LE_OVERLOAD (sessions_max), -LE_NOMEM or the error of the store otherwise.
 * The caller holds ss->lock. Yields. */
int session_create(struct sessions *ss, const struct uuid *client, struct bytes name,
		   uint32_t slots, struct session **ret_session) CHECK_RESULT;
/* The session that is bound to the connection, NULL if there is none. Does not yield. */
static inline struct session *session_of(const struct rpc_peer *p)
{
	return p->user != NULL ? CAST_OBJ(p->user, struct session, SESSION_MAGIC) : NULL;
}
/* Binds the session to the connection, and breaks the connection that it had. Does not yield. */
void session_attach(struct session *se, struct rpc_peer *p);
/* Unbinds the session from the connection, if it is bound to that one. Does not yield. */
void session_detach(struct session *se, struct rpc_peer *p);
/* Removes the session and its rows durably, takes it out of the tables and sets se->ended. Its
 * locks, leases and opens are left to the caller. The caller holds ss->lock and a reference.
 * Returns 0 or the error of the store. Yields. */
int session_remove(struct sessions *ss, struct session *se) CHECK_RESULT;
/* Notes that the session has reclaimed its opens, or has ended. Returns true if it was the last
 * session from before the restart. Does not yield. */
bool session_returned(struct sessions *ss, struct session *se);

/* Take and drop a reference; the last one that is dropped frees the session. Do not yield. */
void session_ref(struct session *se);
void session_unref(struct session *se);

#endif
