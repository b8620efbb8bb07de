/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The committer: one thread per store that writes batches in call order. It writes all that queued
 * during the last sync with one write and one sync. Independent of the engine.
 *
 * The queue is guarded by the committer's lock; everything else belongs to its thread.
 */
#ifndef LEAT_COMMON_KV_KV_COMMITTER_H
#define LEAT_COMMON_KV_KV_COMMITTER_H

#include "common/kv/kv_batch.h"

struct kv_committer;

struct kv_committer_options {
	struct loop *loop; /* the loop of the committing fibers */
	/* Writes a group, on the committer's thread. A failure is final. */
	int (*write)(void *arg, struct kv_batch *group, bool sync);
	/* Called on that thread once, about rest_us after a write, and after each further rest_us
	 * while it returns true. Batches wait meanwhile, so it must be quick. NULL: never
	 * called. */
	bool (*rest)(void *arg);
	uint64_t rest_us;
	void *arg;
};

int kv_committer_start(const struct kv_committer_options *opts,
		       struct kv_committer **ret_committer) CHECK_RESULT;
/* Joins the thread: not on a loop. No commit may be pending. */
void kv_committer_stop(struct kv_committer *c);
/* Returns when the batch is written (and synced). Does not change b. Yields. */
int kv_committer_commit(struct kv_committer *c, struct kv_batch *b, bool sync) CHECK_RESULT;

#endif
