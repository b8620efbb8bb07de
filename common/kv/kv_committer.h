/*
 * The committer: one thread per store that writes batches in call order, all that queued during
 * the last sync in one write and one sync. Knows no engine.
 *
 * The queue is guarded by the committer's lock; everything else belongs to its thread.
 */
#ifndef LEAT_KV_KV_COMMITTER_H
#define LEAT_KV_KV_COMMITTER_H

#include "common/kv/kv_engine.h"

struct kv_committer;

struct kv_committer_options {
	struct loop *loop; /* whose fibers commit */
	/* On the committer's thread. A failure is final. */
	int (*write)(void *arg, struct kv_batch *group, bool sync);
	void *arg;
};

int kv_committer_start(const struct kv_committer_options *opts,
		       struct kv_committer **ret_committer) CHECK_RESULT;
/* Nothing may be pending. Joins the thread: not on a loop. */
void kv_committer_stop(struct kv_committer *c);
/* Yields until the batch is written (and synced). b is not changed. */
int kv_committer_commit(struct kv_committer *c, struct kv_batch *b, bool sync) CHECK_RESULT;

#endif
