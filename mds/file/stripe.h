/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to every chain of a file's stripe, sent concurrently. Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_STRIPE_H
#define LEAT_MDS_FILE_STRIPE_H

#include "mds/mds.h"

/* The request to one chain. The caller may set no.slot, no.seq and no.again between make and run.
 */
struct stripe_job {
	struct mds *m;
	struct oss_number no; /* seq 0: without a number, only no.chain counts */
	uint16_t op;
	const void *req;
	bool for_ever;
	uint64_t deadline_us;
	union {
		struct oss_stat_rep stat;
		struct oss_trim_rep trim;
		struct oss_punch_rep punch;
		struct oss_sync_rep sync;
	} rep;
	int status;
};

/* Makes one job for each chain of the layout, in the order of the stripe. The caller frees the
 * array. Returns 0, -LE_CORRUPT_STORE or -LE_NOMEM. Does not yield. */
int stripe_jobs_make(struct mds *m, const struct layout *l, struct stripe_job **ret_jobs,
		     uint32_t *ret_n) CHECK_RESULT;
/*
 * Sends the request to all chains and waits for the replies, which are in the jobs then. Returns
 * 0 or the status of the first job that failed. With NO_DEADLINE each request is repeated until
 * it succeeds, the server stops, or a chunk is damaged in all its replicas (-LE_CORRUPT).
 *
 * For a chain that was given up, OP_oss_stat succeeds without data, because no client can write
 * there. Other requests with NO_DEADLINE mark the chain (give_up_uncut) and succeed. Yields.
 */
int stripe_jobs_run(struct stripe_job *jobs, uint32_t n, uint16_t op, const void *req,
		    uint64_t deadline_us) CHECK_RESULT;

#endif
