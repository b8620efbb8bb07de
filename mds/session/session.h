/*
 * Sessions: one per mount (client uuid), durable, with replay rows (replay.h) and open files
 * (open_file.h). A session lives while something is heard of it, and session_ttl_ms longer. A new
 * connection with the same client uuid takes its session over; the old connection is broken and
 * what it still had queued is not executed.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_SESSION_SESSION_H
#define LEAT_MDS_SESSION_SESSION_H

#include "common/base/hmap.h"
#include "common/rpc/rpc.h"
#include "mds/params.h"
#include "mds/session/replay.h"
#include "mds/store/txn.h"

#define SESSION_MDS   1u  /* of the MDS itself, at object servers */
#define SESSION_FIRST 16u /* below are reserved */

struct session {
	struct hmap_node by_id, by_client;
	struct list link; /* all of them */
	uint64_t id;
	struct uuid client;
	char name[64];
	uint32_t n_slots;
	struct replay_slot *slots;
	struct rpc_peer *peer; /* NULL: not connected */
	char addr[96];         /* that it was last connected from; "": not since the start */
	uint64_t heard_us;
	uint32_t refs;
	bool ended;
	bool ending;            /* a fiber is at that (recall.h) */
	bool asked;             /* a fiber asks whether it is there */
	bool closing;           /* by its client, not by silence */
	uint64_t reclaimed_sum; /* of the last reclaim message */
	uint32_t n_unshared;    /* since it began to reclaim: the client may not have heard */
	bool from_store;  /* of a former incarnation of this server, has not reclaimed its opens yet
			   */
	bool taking_over; /* by another process, which has not told everything yet */
	struct list opens;    /* struct open */
	struct list leases;   /* struct lease */
	struct list presumed; /* struct open: nobody has told of it (recall.h) */
	uint64_t silent_us;   /* when it was found silent; later than heard_us: it still is */
	uint32_t n_recalls;   /* under way */
	struct reached *reached; /* mds/ops/reach.h; NULL: nothing is noted */
};

struct sessions {
	struct store *store;
	const struct mds_params *params;
	struct hmap by_id, by_client;
	struct list all;
	uint32_t n, n_from_store;
	uint64_t gen;       /* changes with the set of live sessions */
	struct fmutex lock; /* opening and ending */
};

void sessions_init(struct sessions *ss);
/* Reads all sessions and their replay rows. Yields. */
int sessions_load(struct sessions *ss, struct store *s, const struct mds_params *p) CHECK_RESULT;
void sessions_fini(struct sessions *ss);

struct session *session_find(struct sessions *ss, uint64_t id); /* NULL: none alive */
struct session *session_find_client(struct sessions *ss, const struct uuid *client);
/* A new one, durable when this returns. Under ss->lock. Yields. */
int session_create(struct sessions *ss, const struct uuid *client, struct bytes name,
		   uint32_t slots, struct session **ret_session) CHECK_RESULT;
/* Binds the connection, breaks the former one. */
void session_attach(struct session *se, struct rpc_peer *p);
void session_detach(struct session *se, struct rpc_peer *p);
/* Removes it and its rows durably and takes it out of the tables; its opens are left in se->opens
 * to the caller. Under ss->lock. The caller holds a reference. Yields. */
int session_remove(struct sessions *ss, struct session *se) CHECK_RESULT;
/* It has reclaimed. True: it was the last one. */
bool session_returned(struct sessions *ss, struct session *se);

void session_ref(struct session *se);
void session_unref(struct session *se);

#endif
