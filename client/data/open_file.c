/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/open_file.h"

#include <fcntl.h>
#include <stdlib.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "common/base/list.h"

#define FREE_FILES_MAX 256u

struct ll_file *file_make(struct client *c, struct inode *i, struct inode_io *d,
			  const struct cred *cred, uint32_t flags)
{
	struct list *l = list_pop(&c->free_files);
	struct ll_file *f;

	if (l != NULL) {
		c->n_free_files--;
		f = list_entry(l, struct ll_file, link);
	} else {
		f = malloc(sizeof(*f));
		if (f == NULL)
			return NULL;
	}
	*f = (struct ll_file){
		.magic = LL_FILE_MAGIC,
		.c = c,
		.inode = i,
		.d = d,
		.flags = flags,
		.counted = flags,
		.can_read = (flags & O_ACCMODE) != O_WRONLY,
		.can_write = (flags & O_ACCMODE) != O_RDONLY,
		.sync = (flags & (O_SYNC | O_DSYNC)) != 0,
		.append = (flags & O_APPEND) != 0,
		.direct = (flags & O_DIRECT) != 0,
		.err_seen = d->err_gen,
		.kills_suid = cred->uid != 0 && (cred->flags & CRED_CHECKED) == 0,
	};
	list_init(&f->link);
	d->renew_uid = cred->uid;
	d->renew_gid = cred->gid;
	c->n_files++;
	d->n_files++;
	return f;
}

void file_free(struct ll_file *f)
{
	struct client *c = f->c;

	f->magic = 0;
	c->n_files--;
	if (c->n_free_files < FREE_FILES_MAX) {
		c->n_free_files++;
		list_push_front(&c->free_files, &f->link);
	} else {
		free(f);
	}
}

void open_count_add(struct inode_io *d, uint32_t flags, int by)
{
	uint32_t *n = open_flags_write(flags) ? &d->n_write : &d->n_read;

	*n += (uint32_t)by;
	if (open_flags_write(flags) && (flags & O_APPEND))
		d->n_append += (uint32_t)by;
}
