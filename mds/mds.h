/*
 * One metadata server: everything belongs to the loop on which it was started. Seen by the
 * files of mds/ only.
 */
#ifndef LEAT_MDS_MDS_H
#define LEAT_MDS_MDS_H

#include "common/rpc/cap.h"
#include "mds/cluster.h"
#include "mds/convert.h"
#include "mds/exports.h"
#include "mds/fsck.h"
#include "mds/linger.h"
#include "mds/oss_client.h"
#include "mds/recovery.h"
#include "mds/reclaim.h"
#include "mds/residency.h"
#include "mds/server.h"
#include "mds/session/leases.h"
#include "mds/session/locks.h"
#include "mds/session/open_file.h"

#define MDS_MAGIC   0x4d445331u
#define INTENTS_MAX 65536u /* under way at once */

struct mds {
	uint32_t magic;
	struct env *env;
	struct mds_params params;
	struct transport *transport;
	struct rpc_key key;
	struct cap_key cap_key;
	void (*failed)(void *arg, int status);
	void *failed_arg;
	bool stopping;
	struct waitq stop;   /* background fibers sleep here */
	struct latch fibers; /* background fibers */

	struct store store;
	struct sessions sessions;
	struct open_files opens;
	struct locks locks;
	struct leases leases;
	struct cluster cluster;
	struct exports exports;
	struct oss oss;
	struct recovery recovery;
	struct reclaim reclaim;
	struct linger linger;
	struct conversions conversions;
	struct fsck fsck;
	struct residency residency;
	struct rpc_server *server;
	struct mds_metrics metrics;
	struct waitq presumed_q; /* recall.h: there is something to ask */
	uint64_t start_us;
	/* Since when sessions can return (UINT64_MAX: they cannot yet); later if the process stood
	 * still. */
	uint64_t serving_us;
	uint64_t intent_seq, removal_seq;
	bool intent_slots[INTENTS_MAX]; /* taken: data.c */
	struct { /* for the rates of mds_status */
		uint64_t at_us, requests, mutations;
	} sampled;
	double requests_s, mutations_s;
	uint32_t n_settling;
};

/* A background fiber that mds_stop waits for. fn ends soon when m->stopping is set. */
int mds_spawn(struct mds *m, const char *name, void (*fn)(struct mds *m)) CHECK_RESULT;
/* Sleeps; -LE_SHUTDOWN when the server stops, -LE_TIMEDOUT when the request's time is over. */
int mds_sleep_ms(struct mds *m, uint64_t ms) CHECK_RESULT;

#endif
