/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of one metadata server, which all folders of mds/ share. Owned by the loop on which
 * the server was started. Only files of mds/ include this one.
 */
#ifndef LEAT_MDS_MDS_H
#define LEAT_MDS_MDS_H

#include "common/rpc/cap.h"
#include "mds/access/exports.h"
#include "mds/cluster/cluster.h"
#include "mds/cluster/oss_client.h"
#include "mds/file/give_up.h"
#include "mds/file/orphan_delay.h"
#include "mds/file/replica_convert.h"
#include "mds/file/space_reclaim.h"
#include "mds/fsck_snapshot.h"
#include "mds/lease/leases.h"
#include "mds/lease/locks.h"
#include "mds/metrics.h"
#include "mds/params.h"
#include "mds/recovery.h"
#include "mds/session/open_file.h"
#include "mds/staged_locations.h"

#define MDS_MAGIC   0x4d445331u
#define INTENTS_MAX 65536u /* intents in progress, at most */

/* Calls from an earlier folder to a later one. mds_start sets them before it starts anything. */
struct mds_hooks {
	/* Called when an open of the inode has ended. Removes an orphan, and settles a file without
	 * writers (file/idle.h). Returns 0 or an error. Yields. */
	int (*inode_idle)(struct mds *m, struct ino ino);
	/* Called when a session from before the restart has returned or ended (recovery.h). Does
	 * not yield. */
	void (*session_back)(struct mds *m);
};

/* One metadata server. */
struct mds {
	uint32_t magic;
	struct mds_hooks hooks;
	struct env *env;
	struct mds_params params;
	struct transport *transport;
	struct rpc_key key;
	struct cap_key cap_key;
	/* Called when the store has failed. May be NULL. */
	void (*failed)(void *arg, int status);
	void *failed_arg;
	bool stopping;
	struct waitq stop;   /* background fibers sleep here */
	struct latch fibers; /* background fibers, for whose end mds_stop waits */

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
	struct orphan_delay orphan_delay;
	struct conversions conversions;
	struct fsck fsck;
	struct give_up give_up;
	struct residency residency;
	struct rpc_server *server;
	struct mds_metrics metrics;
	struct waitq assumed_q; /* woken when a session has an assumed open (lease/) */
	uint64_t start_us;
	/* Since when clients can return after a restart; UINT64_MAX: not yet. After each pause of
	 * the process, later by its length. */
	uint64_t serving_us;
	uint64_t intent_seq, removal_seq;
	bool intent_slots[INTENTS_MAX]; /* true: taken (file/truncate.c) */
	struct {                        /* for the rates of mds_status */
		uint64_t at_us, requests, mutations;
	} sampled;
	double requests_s, mutations_s;
	uint32_t n_settling;
};

#endif
