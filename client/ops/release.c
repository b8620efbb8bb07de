/* SPDX-License-Identifier: Apache-2.0 */
/* Closes a file for its caller (ll_release). */

#include <fcntl.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/open_file.h"
#include "client/data/readahead.h"
#include "client/data/write_error.h"
#include "client/ll.h"
#include "client/ops/close.h"
#include "client/ops/delegated_open.h"
#include "common/base/assert.h"
#include "common/proto/types.h"
#include "common/rpc/mds_clock.h"

/* Returns true if the close must report a new access time. */
static bool atime_due(const struct ll_file *f)
{
	const struct attr *a = &f->inode->attr;

	if (f->c->atime == LL_ATIME_NONE || (f->flags & O_NOATIME) != 0 ||
	    (a->flags & ATTR_NOATIME) != 0 || !f->was_read)
		return false;
	return f->c->atime == LL_ATIME_STRICT ||
	       attr_atime_due(a, mds_clock_now_ns(&f->c->clock, f->c->env));
}

void ll_release(struct ll_file *file)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	(void)write_error_reported(f);
	ASSERT(f->d->n_files > 0);
	ASSERT(f->counted == f->flags || f->d->n_append_cleared > 0);
	f->d->n_files--;
	f->d->n_append_cleared -= f->counted != f->flags;
	ll_unlock_all(f);
	if (f->expected)
		ra_closed(f->c, f->was_read);
	f->new_atime = atime_due(f);
	if (!f->delegated || !delegation_close(f))
		file_close_start(f);
}
