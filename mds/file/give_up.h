/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `leat target remove --lost`: targets whose data will not come back leave the cluster. This is
 * done in steps, so that the files that lose data are found before anything is given up:
 *
 *   1. The intent is made durable. From then on none of the targets may register, and no new file
 *      uses a chain whose complete members are all among them. A server that restarts continues.
 *   2. All inodes are searched for data on such chains (lost_files.h). If a file has some, and the
 *      administrator has not accepted that, the intent is deleted and nothing has changed.
 *   3. Each chain of the targets continues without them if another complete member is left, and
 *      rebalance.c replaces the missing members. A chain without a complete member restarts, empty
 *      and with other members, if no file has data on it. Otherwise it is CHAIN_LOST.
 *   4. The targets are removed for good (TARGET_GIVEN_UP), and the intent ends.
 *
 * Owned by the loop: one fiber runs while this lasts. c->lock is held over each decision.
 */
#ifndef LEAT_MDS_FILE_GIVE_UP_H
#define LEAT_MDS_FILE_GIVE_UP_H

#include "mds/file/lost_files.h"

#define GIVE_UP_MAX 256u

struct give_up {
	uint64_t id;
	enum lose_state state;
	int status;
	uint8_t accept; /* enum lose_accept */
	uint32_t targets[GIVE_UP_MAX], n;
	struct lost_files files;
};

/* Reads the intent from the store, if there is one. Called before requests are served. Returns 0,
 * -LE_CORRUPT_STORE or the error of the store. Yields. */
int give_up_load(struct mds *m) CHECK_RESULT;
/* Starts the fiber that continues the intent which give_up_load has read, if any. Returns 0 or
 * the error of mds_spawn. Does not yield. */
int give_up_go_on(struct mds *m) CHECK_RESULT;
/* Frees the list of files. Does not yield. */
void give_up_fini(struct mds *m);
/* Called when a truncation or punch ends without a lost chain: marks the chain (CHAIN_UNCUT), so
 * that `leat target recover` refuses its members. They hold bytes that should have been removed,
 * and the file may grow over them. Returns 0, -LE_AGAIN if the chain is no longer lost, or the
 * error of the store. Yields. */
int give_up_uncut(struct mds *m, uint32_t chain) CHECK_RESULT;
/* Serves mds_target_lose: starts to give targets up, or reports the progress and the files that
 * lose data. The files of the reply are encoded into buf. Returns 0, -LE_INVAL, -LE_NO_TARGET,
 * -LE_BUSY while other targets are being given up or one of these is up, -LE_STALE for the id of
 * another call, or an error of the store. Yields. */
int give_up_asked(struct mds *m, const struct mds_target_lose_req *in, struct bytes buf,
		  struct mds_target_lose_rep *out) CHECK_RESULT;

#endif
