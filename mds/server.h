/*
 * The metadata server as a library: main.c, the simulator and the tests start it with these. An
 * instance belongs to the loop on which it was started; many may run in one process.
 */
#ifndef LEAT_MDS_SERVER_H
#define LEAT_MDS_SERVER_H

#include <stdio.h>

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
/* In a fiber of the loop: opens the store in params.data_dir, recovers, listens. Yields.
 * -LE_STORE_FORMAT when there is none (mds_format makes one), and what kv_open and
 * rpc_server_create give. */
int mds_start(const struct mds_options *o, struct mds **ret_mds) CHECK_RESULT;
/* Requests under way are finished, then everything is closed and freed. Yields. */
void mds_stop(struct mds *m);
/* What it listens on: "host:port host:port" with real ports. */
const char *mds_addrs(const struct mds *m);
/* Readable from any thread. */
const struct mds_metrics *mds_metrics_of(const struct mds *m);

/* Makes an empty file system in params.data_dir; cluster zero: a random uuid. -LE_EXIST when there
 * is one. */
int mds_format(struct env *env, const struct mds_params *p,
	       const struct uuid *cluster) CHECK_RESULT;
/* Compares everything with everything; a line to report for each problem. With repair what can be
 * mended is. */
int mds_check(struct env *env, const struct mds_params *p, bool repair, FILE *report,
	      uint64_t *ret_problems) CHECK_RESULT;
/* A consistent copy of the store (of a server that is not running) at path, which must not exist.
 */
int mds_backup(struct env *env, const struct mds_params *p, const char *path) CHECK_RESULT;
/* Puts a copy made by mds_backup in the place of a store that must not exist. Inode numbers and
 * request numbers given out since the backup are skipped, so that none is used twice. */
int mds_restore(struct env *env, const struct mds_params *p, const char *path) CHECK_RESULT;

#endif
