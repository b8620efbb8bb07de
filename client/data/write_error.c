/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/write_error.h"

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/open_file.h"
#include "client/data/restart_marks.h"
#include "client/data/write_state.h"
#include "common/base/log.h"
#include "common/base/status.h"

bool write_error_reported(struct ll_file *f)
{
	struct inode_io *d = f->d;

	if (f->err_seen == d->err_gen)
		return false;
	f->err_seen = d->err_gen;
	if (--d->n_unreported == 0)
		restart_mark_update(d, wb_has_unflushed(d));
	return true;
}

int write_error_take(struct ll_file *f)
{
	return write_error_reported(f) ? f->d->err : 0;
}

void wb_set_error(struct inode_io *d, int status)
{
	d->err = status;
	d->err_gen++;
	d->n_unreported = d->n_files;
	restart_mark_update(d, wb_has_unflushed(d));
	log_warn("client %s: background write to ino %llu failed: %s; fsync or close reports it",
		 d->c->name, (unsigned long long)d->inode->ino.v, status_name(status));
}
