/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/stripe.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/file/give_up.h"

#define STRIPE_MAX   65536u
#define DAMAGE_TRIES 3u /* replies -LE_CORRUPT that prove that no replica is good */

static int job_call(struct stripe_job *j)
{
	struct oss *o = &j->m->oss;

	if (j->no.seq == 0)
		return oss_call(o, j->no.chain, j->op, j->req, &j->rep, j->deadline_us);
	return oss_call_numbered(o, &j->no, j->op, j->req, &j->rep, j->deadline_us);
}

static void job_run(void *arg)
{
	struct stripe_job *j = arg;
	uint64_t wait_ms = 50;
	uint32_t n_damaged = 0;

	for (;;) {
		j->status = job_call(j);
		/* The object server has a higher number in this slot. An intent gets the slot
		 * only after the one before has ended, so this one was done. (A store that was
		 * restored from a backup has its intent again.) */
		if (j->no.seq != 0 && j->status == -LE_STALE_SEQ)
			j->status = 0;
		/* A chain that was given up cannot be trimmed, and no client writes there: the
		 * size in the record is all that there is (lost_files_extend). */
		if (j->status == -LE_GIVEN_UP && j->op == OP_oss_stat)
			j->status = 0;
		else if (j->status == -LE_GIVEN_UP && j->for_ever)
			j->status = give_up_uncut(j->m, j->no.chain);
		if (j->status >= 0 || !j->for_ever || j->m->stopping)
			return;
		if (j->status == -LE_CORRUPT && ++n_damaged == DAMAGE_TRIES)
			return;
		if (wait_ms >= 1000)
			log_warn("chain %u: %s failed: %s; retrying", j->no.chain,
				 msg_find(j->op)->name, status_name(j->status));
		if (mds_sleep_ms(j->m, wait_ms) < 0)
			return;
		wait_ms = wait_ms * 2 > 5000 ? 5000 : wait_ms * 2;
		j->deadline_us = loop_deadline_ms(j->m->params.oss_timeout_ms);
	}
}

int stripe_jobs_make(struct mds *m, const struct layout *l, struct stripe_job **ret_jobs,
		     uint32_t *ret_n)
{
	uint32_t width = cluster_layout_width(&m->cluster, l);
	struct stripe_job *jobs;

	if (width == 0 || width > STRIPE_MAX)
		return -LE_CORRUPT_STORE;
	jobs = calloc(width, sizeof(*jobs));
	if (jobs == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < width; i++)
		jobs[i] = (struct stripe_job){
			.m = m, .no.chain = cluster_layout_chain(&m->cluster, l, i)->id};
	*ret_jobs = jobs;
	*ret_n = width;
	return 0;
}

int stripe_jobs_run(struct stripe_job *jobs, uint32_t n, uint16_t op, const void *req,
		    uint64_t deadline_us)
{
	for (uint32_t i = 0; i < n; i++) {
		jobs[i].op = op;
		jobs[i].req = req;
		jobs[i].for_ever = deadline_us == NO_DEADLINE;
		jobs[i].deadline_us = jobs[i].for_ever
					      ? loop_deadline_ms(jobs[i].m->params.oss_timeout_ms)
					      : deadline_us;
	}
	fiber_parallel("stripe", job_run, jobs, sizeof(*jobs), n, 16);
	for (uint32_t i = 0; i < n; i++)
		TRY(jobs[i].status);
	return 0;
}
