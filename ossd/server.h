/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object server of one target, for targets.c, the simulator and tests. One loop owns
 * everything: all calls come from fibers of the loop that called ossd_start. A process may have
 * any number of them; there is no static state.
 */
#ifndef LEAT_OSSD_SERVER_H
#define LEAT_OSSD_SERVER_H

#include <stdbool.h>
#include <stdio.h>

#include "common/rpc/rpc.h"
#include "ossd/metrics.h"
#include "ossd/params.h"

struct ossd;

struct ossd_options {
	struct transport *transport;
	struct rpc_key key;
	struct ossd_params params;
	const char *mds_addrs;
	bool reports_unreachable; /* log when the metadata server cannot be reached */
};

/* Opens the formatted store params.data_dir, listens, and registers with the MDS in the
 * background. -LE_NOENT: not formatted; -LE_STORE_IN_USE; -LE_STORE_FORMAT; … Yields. */
int ossd_start(const struct ossd_options *o, struct ossd **ret_ossd) CHECK_RESULT;
/* Finishes requests in flight, and closes the store. Yields. */
void ossd_stop(struct ossd *s);
/* Returns "host:port host:port", the addresses sent to the MDS. */
const char *ossd_addrs(const struct ossd *s);
/* True when the MDS has accepted the target: requests are served. */
bool ossd_ready(const struct ossd *s);
/* Returns why the metadata server cannot be reached; 0: it can be, or no attempt has failed yet,
 * or reports_unreachable is not set. */
int ossd_away(const struct ossd *s);
/* Returns 0, or the status for which this target must stop: -LE_IO (a sync failed), -LE_STORE_OLD,
 * -LE_WRONG_CLUSTER (the MDS has refused the store), … */
int ossd_failed(const struct ossd *s);
/* Returns the metrics, which any thread may read while the server lives. */
const struct ossd_metrics *ossd_metrics(const struct ossd *s);

#endif
