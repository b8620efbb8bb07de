/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of inodes and one fiber that removes them in time; see orphan_delay.h. */
#include "mds/file/orphan_delay.h"

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/file/idle.h"
#include "mds/mds.h"

#define ORPHAN_DELAY_MS 5000u

void orphan_delay_init(struct orphan_delay *l)
{
	l->first = l->next = 0;
	waitq_init(&l->work);
}

bool orphan_delay_add(struct mds *m, struct ino ino)
{
	struct orphan_delay *l = &m->orphan_delay;

	if (l->next - l->first == ORPHAN_DELAY_MAX)
		return false;
	l->ring[l->next % ORPHAN_DELAY_MAX].ino = ino;
	l->ring[l->next % ORPHAN_DELAY_MAX].until_us = loop_deadline_ms(ORPHAN_DELAY_MS);
	l->next++;
	waitq_wake_all(&l->work);
	return true;
}

bool orphan_delay_closed(struct mds *m, const struct open_file *f)
{
	return f->replaced_us != 0 && loop_now_us() < f->replaced_us + ORPHAN_DELAY_MS * 1000 &&
	       orphan_delay_add(m, f->ino);
}

void orphan_delay_run(struct mds *m)
{
	struct orphan_delay *l = &m->orphan_delay;

	while (!m->stopping) {
		uint64_t at = l->first % ORPHAN_DELAY_MAX;
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
		rc = data_idle(m, l->ring[at].ino); /* does nothing if it is open */
		if (rc < 0 && !m->stopping)
			log_error("removed inode %llu takes space until the next start: %s",
				  (unsigned long long)l->ring[at].ino.v, status_text(rc));
		l->first++;
	}
}
