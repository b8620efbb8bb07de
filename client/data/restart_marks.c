/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/restart_marks.h"

#include <stddef.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/servers/restart_log.h"
#include "common/base/list.h"

bool restart_mark_begin(struct inode_io *d)
{
	struct ll_restart_state *k = d->c->restart;

	if (k == NULL)
		return true;
	for (uint32_t i = 0; d->mark == 0 && i < LL_RESTART_MARKS; i++) {
		uint32_t at = d->c->next_mark++ % LL_RESTART_MARKS;

		if (k->marks[at].state == MARK_CLEAN)
			d->mark = at + 1;
	}
	if (d->mark == 0)
		return false;
	k->marks[d->mark - 1].ino = d->inode->ino.v;
	RESTART_LOG_ORDER();
	if (k->marks[d->mark - 1].state != MARK_LOST)
		k->marks[d->mark - 1].state = MARK_WRITTEN;
	return true;
}

void restart_mark_update(struct inode_io *d, bool unflushed)
{
	struct ll_restart_mark *m;

	if (d->mark == 0)
		return;
	m = &d->c->restart->marks[d->mark - 1];
	if (d->n_unreported != 0) {
		m->state = MARK_LOST;
	} else if (unflushed) {
		m->state = MARK_WRITTEN;
	} else if (!list_empty(&d->writes)) {
		m->state = MARK_VISIBLE;
	} else {
		m->state = MARK_CLEAN;
		d->mark = 0;
	}
}
