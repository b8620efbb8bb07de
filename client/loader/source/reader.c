/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/reader.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/loader/source/dataset.h"
#include "common/base/assert.h"

void reader_init(struct reader *r, struct leat_dataset *ds, struct loop *loop)
{
	*r = (struct reader){.ds = ds, .loop = loop};
	hmap_init(&r->files, 64);
	list_init(&r->idle);
}

static void end(struct reader *r, struct reader_file *f)
{
	ASSERT(f->refs == 0 && !f->opening && r->n > 0);
	if (!f->dropped)
		hmap_remove(&r->files, &f->node);
	r->n--;
	vol_close(f->file);
	free(f);
}

static void trim(struct reader *r, uint32_t max)
{
	while (r->n > max) {
		struct list *l = list_pop(&r->idle);
		if (!l)
			return;
		end(r, list_entry(l, struct reader_file, link));
	}
}

void reader_fini(struct reader *r)
{
	trim(r, 0);
	ASSERT(r->n == 0);
	hmap_fini(&r->files);
}

static struct reader_file *find(struct reader *r, uint32_t index)
{
	struct hmap_node *n = hmap_find(&r->files, hash_u64(index));
	for (; n; n = hmap_find_next(n)) {
		struct reader_file *f = container_of(n, struct reader_file, node);
		if (f->index == index)
			return f;
	}
	return NULL;
}

static int open_file(struct reader *r, struct reader_file *f)
{
	struct leat_dataset *ds = r->ds;
	char path[4096];
	uint32_t unused;
	const struct leat_dataset *from = dataset_of_file(ds, f->index, &unused);
	int n = snprintf(path, sizeof(path), "%s/%s", from->root,
			 index_string(ds->x, ds->x->files[f->index].path));
	return n >= (int)sizeof(path) ? -LE_NAMETOOLONG
				      : vol_open(dataset_vol(ds, from), path, &f->file);
}

int reader_get(struct reader *r, uint32_t index, struct reader_file **ret_file)
{
	struct reader_file *f = find(r, index);
	if (f) {
		if (f->refs++ == 0)
			list_remove(&f->link);
		while (f->opening) {
			int rc = waitq_wait(&f->opened, NO_DEADLINE);
			(void)rc; /* the loop checks again */
		}
	} else {
		f = calloc(1, sizeof(*f));
		if (!f)
			return -LE_NOMEM;
		f->index = index;
		f->refs = 1;
		f->opening = true;
		waitq_init(&f->opened);
		list_init(&f->link);
		hmap_insert(&r->files, &f->node, hash_u64(index));
		r->n++;
		trim(r, READER_FILES_MAX);
		f->rc = open_file(r, f);
		f->opening = false;
		waitq_wake_all(&f->opened);
	}
	if (f->rc < 0) {
		int rc = f->rc;
		reader_put(r, f);
		return rc;
	}
	*ret_file = f;
	return 0;
}

void reader_put(struct reader *r, struct reader_file *f)
{
	ASSERT(f->refs > 0);
	if (--f->refs > 0)
		return;
	if (f->rc < 0 || f->dropped) {
		end(r, f);
		return;
	}
	list_push(&r->idle, &f->link);
	trim(r, READER_FILES_MAX);
}

void reader_drop(struct reader *r, uint32_t index)
{
	struct reader_file *f = find(r, index);
	if (!f || f->opening)
		return;
	if (f->refs == 0) {
		list_remove(&f->link);
		end(r, f);
		return;
	}
	hmap_remove(&r->files, &f->node);
	f->dropped = true;
}
