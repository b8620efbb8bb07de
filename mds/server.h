/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata server as a library: main.c, the simulator and the tests start it with these. An
 * instance belongs to the loop on which it was started; many may run in one process.
 */
#ifndef LEAT_MDS_SERVER_H
#define LEAT_MDS_SERVER_H

#include "common/rpc/rpc.h"
#include "mds/metrics.h"
#include "mds/params.h"

struct mds;

struct mds_options {
	struct transport *transport;
	struct rpc_key key;
	struct mds_params params; /* listen must be set */
	/* Called once, in a fiber, when the store has failed: the instance answers every mutation
	 * with an error from then on, and the process should end, so that a supervisor starts it
	 * again. May be NULL. */
	void (*failed)(void *arg, int status);
	void *arg;
};
/* Opens the store in params.data_dir, recovers, and listens. Called in a fiber of the loop. Returns
 * 0, -LE_STORE_FORMAT if there is no store (mds_format makes one), or the errors of kv_open and
 * rpc_server_create. Yields. */
int mds_start(const struct mds_options *o, struct mds **ret_mds) CHECK_RESULT;
/* Finishes the requests in flight, then closes and frees everything. Yields. */
void mds_stop(struct mds *m);
/* The addresses that it listens on, as "host:port host:port" with real ports. */
const char *mds_addrs(const struct mds *m);
/* The counters, which any thread may read. */
const struct mds_metrics *mds_metrics_of(const struct mds *m);

#endif
