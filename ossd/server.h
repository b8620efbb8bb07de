/*
 * The object server of one target, for main.c, the simulator and tests. One loop owns
 * everything: all calls come from a fiber of the loop that called ossd_start. Any number of
 * them live in one process; there is no static state.
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
};

/* Opens the formatted store params.data_dir, listens, and registers with the MDS in the
 * background. -LE_NOENT: not formatted; -LE_STORE_IN_USE; -LE_STORE_FORMAT; … Yields. */
int ossd_start(const struct ossd_options *o, struct ossd **ret_ossd) CHECK_RESULT;
/* Answers what is under way, closes the store. Yields. */
void ossd_stop(struct ossd *s);
/* "host:port host:port" as the MDS was told. */
const char *ossd_addrs(const struct ossd *s);
/* The MDS has accepted the target: requests are served. */
bool ossd_ready(const struct ossd *s);
/* 0, or the status that makes this process useless: -LE_IO (a sync failed), -LE_STORE_OLD,
 * -LE_WRONG_CLUSTER (the MDS refused the store). */
int ossd_failed(const struct ossd *s);
/* Values that any thread may read while the server lives. */
const struct ossd_metrics *ossd_metrics(const struct ossd *s);

/* Makes an empty store in params.data_dir. -LE_EXIST when there is one, -LE_BUSY when
 * params.data_device is in use or, without force, not empty. Yields. */
int ossd_format(struct env *env, const struct ossd_params *p, bool force) CHECK_RESULT;
/* Offline: reads the whole index (and with verify_data every block), one line per problem on
 * report. -LE_STORE_IN_USE while a server runs. Yields. */
int ossd_check(struct env *env, const struct ossd_params *p, bool verify_data, FILE *report,
	       uint64_t *ret_problems) CHECK_RESULT;

#endif
