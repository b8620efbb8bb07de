/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/truncation.h"

#include <stddef.h>

#include "client/cache/inode_cache.h"
#include "client/cache/prefetch_cache.h"
#include "client/data/flush.h"
#include "client/data/write.h"
#include "common/base/status.h"

void inode_truncated(struct inode *i, const struct attr *attr)
{
	struct inode_io *d = i->data;

	i->n_truncations++;
	i->settled_us = 0;
	if (attr->change == i->attr.change)
		i->attr.size = attr->size;
	if (d == NULL)
		return;
	ra_drop_all(d);
	d->size = i->attr.size;
	/* Data written in the meantime may come after the truncation or be removed by it. (Another
	 * user of this mount may have opened the file and written before this reply arrived.) */
	d->size_unverified |= d->n_write > 0;
	d->was_truncated |= d->n_write > 0;
	d->durable_end = 0;
	if (d->size == 0)
		d->sparse = d->packed = false;
}

bool change_outcome_unknown(int rc)
{
	return rc == -LE_IO || rc == -LE_INTR || rc == -LE_CORRUPT;
}

int truncate_flush(struct inode *i)
{
	if (i->data == NULL)
		return 0;
	TRY(flush_visible(i->data));
	return wb_flush(i->data);
}
