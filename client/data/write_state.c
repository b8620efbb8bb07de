/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/write_state.h"

#include <stddef.h>

#include "client/cache/inode_cache.h"
#include "client/data/write_request.h"
#include "common/base/list.h"

bool wreq_is_visible(const struct wreq *w)
{
	return w->call != NULL && w->call->ret_accepted;
}

bool wb_range_is_unflushed(const struct inode_io *d, uint64_t seq)
{
	list_for_each (l, &d->writes) {
		const struct wreq *w = list_entry(l, struct wreq, link);

		if (w->seq > seq)
			return false;
		if (!wreq_is_visible(w))
			return true;
	}
	return false;
}

bool wb_has_unflushed(const struct inode_io *d)
{
	return d->coalesce.slot != NULL || wb_range_is_unflushed(d, UINT64_MAX);
}
