/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/chain_stat.h"

#include <stdlib.h>

#include "common/proto/ranges.h"
#include "mds/file/stripe.h"

struct cap data_cap(struct mds *m, struct ino ino, uint32_t gen, uint64_t session)
{
	struct cap c = {.ino = ino,
			.gen = gen,
			.rights = CAP_READ | CAP_WRITE,
			.epoch = m->cluster.epoch,
			.session = session,
			.expiry_s = env_wall_ns(m->env) / 1000000000 + m->params.cap_ttl_s};

	cap_sign(&m->cap_key, &c);
	return c;
}

struct cap data_own_cap(struct mds *m, struct ino ino, uint32_t gen)
{
	return data_cap(m, ino, gen, SESSION_MDS);
}

int data_stat(struct mds *m, struct ino ino, const struct layout *l,
	      const struct ranges *preallocated, uint64_t deadline_us, struct data_ends *ret_ends)
{
	uint8_t buf[RANGES_SIZE];
	struct oss_stat_req req = {
		.cap = data_own_cap(m, ino, l->gen),
		.ino = ino,
		.gen = l->gen,
		.chunk_size = l->chunk_size,
		.preallocated =
			preallocated != NULL ? ranges_put(preallocated, buf) : bytes_of(NULL, 0),
	};
	struct data_ends e = {0};
	struct stripe_job *jobs;
	uint32_t n;
	int rc;

	if (l->width == 0) {
		*ret_ends = e;
		return 0;
	}
	TRY(stripe_jobs_make(m, l, &jobs, &n));
	rc = stripe_jobs_run(jobs, n, OP_oss_stat, &req, deadline_us);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const struct oss_stat_rep *r = &jobs[i].rep.stat;

		e.size = r->size > e.size ? r->size : e.size;
		e.mtime_ns = r->mtime_ns > e.mtime_ns ? r->mtime_ns : e.mtime_ns;
		e.used += r->used;
		e.n_chunks += r->n_chunks;
		e.covered += r->covered;
	}
	free(jobs);
	if (rc == 0)
		*ret_ends = e;
	return rc;
}
