/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/scan_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Grows an array to hold one more element. */
static int make_space(void *array, uint32_t n, uint32_t *cap, size_t size)
{
	void *all;
	if (n < *cap)
		return 0;
	uint32_t more = *cap ? *cap * 2 : 64;
	memcpy(&all, array, sizeof(all));
	all = more <= SCAN_FILES_MAX ? realloc(all, more * size) : NULL;
	if (!all)
		return -LE_NOMEM;
	memcpy(array, &all, sizeof(all));
	*cap = more;
	return 0;
}

int scan_add_file(struct scan *s, const struct scan_file *f)
{
	TRY(make_space(&s->files, s->n, &s->cap, sizeof(*s->files)));
	s->files[s->n++] = *f;
	s->bytes += f->st.size;
	s->n_hard_links += f->st.nlink > 1;
	return 0;
}

int scan_add_link(struct scan *s, const struct scan_link *link)
{
	TRY(make_space(&s->links, s->n_links, &s->cap_links, sizeof(*s->links)));
	s->links[s->n_links++] = *link;
	return 0;
}

int scan_leave_out(struct scan *s, enum left_why why, const char *path)
{
	struct left_out *l = &s->left[why];
	uint64_t i = l->n++;
	if (i >= LEFT_NAMES)
		return 0;
	l->names[i] = strdup(path);
	return l->names[i] ? 0 : -LE_NOMEM;
}

int scan_add_dir(struct scan *s, const struct scan_dir *dir)
{
	TRY(make_space(&s->dirs, s->n_dirs, &s->cap_dirs, sizeof(*s->dirs)));
	char *path = strdup(dir->path);
	if (!path)
		return -LE_NOMEM;
	s->dirs[s->n_dirs++] = (struct scan_dir){path, dir->st, dir->rights};
	return 0;
}

static int by_dir(const void *a, const void *b)
{
	return strcmp(((const struct scan_dir *)a)->path, ((const struct scan_dir *)b)->path);
}

void scan_sort_dirs(struct scan *s)
{
	uint32_t n = 0;
	if (s->n_dirs)
		qsort(s->dirs, s->n_dirs, sizeof(*s->dirs), by_dir);
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		if (!n || strcmp(s->dirs[n - 1].path, s->dirs[i].path) != 0) {
			s->dirs[n++] = s->dirs[i];
			continue;
		}
		if (!rights_equal(&s->dirs[n - 1].rights, &s->dirs[i].rights))
			s->dirs[n - 1].rights = (struct rights){.mode = 0500};
		free(s->dirs[i].path);
	}
	s->n_dirs = n;
}

int scan_source_path(const struct scan *s, const struct scan_file *f, struct vol **ret_vol,
		     char ret_path[4096])
{
	int n = f->from ? snprintf(ret_path, 4096, "%s", f->from)
			: snprintf(ret_path, 4096, "%s/%s", strcmp(s->real, "/") ? s->real : "",
				   f->path);
	*ret_vol = f->from ? s->top : s->in;
	return n >= 4096 ? -LE_NAMETOOLONG : 0;
}

void scan_fini(struct scan *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		free(s->files[i].path);
		free(s->files[i].from);
	}
	for (uint32_t i = 0; i < s->n_dirs; i++)
		free(s->dirs[i].path);
	for (uint32_t i = 0; i < s->n_links; i++) {
		free(s->links[i].path);
		free(s->links[i].target);
	}
	for (uint32_t k = 0; k < LEFT_KINDS; k++)
		for (uint32_t i = 0; i < LEFT_NAMES; i++)
			free(s->left[k].names[i]);
	free(s->files);
	free(s->dirs);
	free(s->links);
	free(s->real);
	acl_pool_fini(&s->acls);
	vol_destroy(s->in);
	vol_destroy(s->top);
	*s = (struct scan){0};
}
