/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/replay_seq.h"

#include "common/base/assert.h"

void replay_seq_init(struct replay_seq *q)
{
	*q = (struct replay_seq){0};
	waitq_init(&q->done);
}

int replay_seq_check(const struct replay_seq *q, uint64_t seq)
{
	if (q->running != 0 && seq >= q->running)
		return REPLAY_WAIT;
	if (seq < q->running || seq < q->last)
		return -LE_STALE_SEQ;
	return seq == q->last ? REPLAY_ANSWER : REPLAY_EXECUTE;
}

int replay_seq_wait(struct replay_seq *q)
{
	return waitq_wait(&q->done, fiber_deadline());
}

void replay_seq_begin(struct replay_seq *q, uint64_t seq)
{
	ASSERT(q->running == 0 && seq != 0);
	q->running = seq;
}

void replay_seq_end(struct replay_seq *q, bool replied)
{
	ASSERT(q->running != 0);
	if (replied)
		q->last = q->running;
	q->running = 0;
	waitq_wake_all(&q->done);
}
