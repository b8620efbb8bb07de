/* A ring of inodes and one fiber that removes them in time; see linger.h. */
#include "mds/linger.h"

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/op.h"

#define LINGER_MS 5000u

void linger_init(struct linger *l)
{
	l->first = l->next = 0;
	waitq_init(&l->work);
}

bool linger_add(struct mds *m, struct ino ino)
{
	struct linger *l = &m->linger;

	if (l->next - l->first == LINGER_MAX)
		return false;
	l->ring[l->next % LINGER_MAX].ino = ino;
	l->ring[l->next % LINGER_MAX].until_us = loop_deadline_ms(LINGER_MS);
	l->next++;
	waitq_wake_all(&l->work);
	return true;
}

bool linger_wanted(const struct open_file *f)
{
	return f->replaced_us != 0 && loop_now_us() < f->replaced_us + LINGER_MS * 1000;
}

void linger_run(struct mds *m)
{
	struct linger *l = &m->linger;

	while (!m->stopping) {
		uint64_t at = l->first % LINGER_MAX;
		int rc;

		if (l->first == l->next) {
			if (waitq_wait(&l->work, NO_DEADLINE) < 0)
				break;
			continue;
		}
		if (l->ring[at].until_us > loop_now_us()) {
			if (mds_sleep_ms(m, 100) < 0)
				break;
			continue;
		}
		rc = data_idle(m, l->ring[at].ino); /* nothing if somebody has it open now */
		if (rc < 0 && !m->stopping)
			log_error("inode %llu stays until the next start: %s",
				  (unsigned long long)l->ring[at].ino.v, status_text(rc));
		l->first++;
	}
}
