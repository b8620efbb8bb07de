/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/scan_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest.h"
#include "client/dataset/scan_list.h"
#include "client/dataset/vol.h"

#define PATH_SIZE 4096u
#define LINKS_MAX 40

/* Result of following a link. */
enum way {
	WAY_INSIDE,
	WAY_OUT, /* above the tree, or an absolute path */
	WAY_NOWHERE,
	WAY_LOOP
};

struct follow {
	const struct scan *s;
	char done[PATH_SIZE];      /* directory of the tree that was reached */
	char rest[2 * PATH_SIZE];  /* remaining path from there */
	char again[2 * PATH_SIZE]; /* buffer for the next rest */
	int links;
};

/* Sets the remaining path to the link's target followed by `behind`. */
static enum way take_link(struct follow *f, const char *target, const char *behind)
{
	if (++f->links > LINKS_MAX)
		return WAY_LOOP;
	if (target[0] == '/')
		return WAY_OUT;
	int n = snprintf(f->again, sizeof(f->again), "%s%s", target, behind);
	if (n >= (int)sizeof(f->rest))
		return WAY_NOWHERE;
	memcpy(f->rest, f->again, (size_t)n + 1);
	return WAY_INSIDE;
}

/* Follows one component. WAY_INSIDE: continue. */
static enum way step(struct follow *f, const char *name, size_t len, const char *behind)
{
	const struct scan *s = f->s;
	size_t at = strlen(f->done);
	if (len == 2 && name[0] == '.' && name[1] == '.') {
		if (at == 0)
			return WAY_OUT;
		char *slash = strrchr(f->done, '/');
		*(slash ? slash : f->done) = 0;
	} else if (!(len == 1 && name[0] == '.')) {
		int n = snprintf(f->done + at, PATH_SIZE - at, "%s%.*s", at ? "/" : "", (int)len,
				 name);
		if (at + (size_t)n >= PATH_SIZE)
			return WAY_NOWHERE;
		int64_t link = manifest_find_in(s->links, s->n_links, sizeof(*s->links), f->done);
		if (link >= 0) {
			f->done[at] = 0;
			return take_link(f, s->links[link].target, behind);
		}
		bool dir = manifest_find_in(s->dirs, s->n_dirs, sizeof(*s->dirs), f->done) >= 0;
		/* A path ends at a file, without even a slash after it. */
		if (!dir && (*behind ||
			     manifest_find_in(s->files, s->n, sizeof(*s->files), f->done) < 0))
			return WAY_NOWHERE;
	}
	memmove(f->rest, behind, strlen(behind) + 1);
	return WAY_INSIDE;
}

static enum way follow(struct follow *f, const struct scan_link *l)
{
	const char *slash = strrchr(l->path, '/');
	size_t dir = slash ? (size_t)(slash - l->path) : 0;
	memcpy(f->done, l->path, dir);
	f->done[dir] = 0;
	f->links = 0;
	enum way way = take_link(f, l->target, "");
	while (way == WAY_INSIDE && *f->rest) {
		const char *name = f->rest + strspn(f->rest, "/");
		size_t len = strcspn(name, "/");
		if (len == 0)
			break;
		way = step(f, name, len, name + len);
	}
	return way;
}

/* ---- links that lead out ---- */

/* Converts a status into the reason to leave out a link; false if the status is a failure of the
 * scan. */
static bool why_of(int rc, enum left_why *ret_why)
{
	if (rc == -LE_NOENT || rc == -LE_NOTDIR || rc == -LE_STALE || rc == -LE_NAMETOOLONG)
		*ret_why = LEFT_DANGLING;
	else if (rc == -LE_LOOP)
		*ret_why = LEFT_LOOP;
	else if (rc == -LE_ACCES || rc == -LE_PERM)
		*ret_why = LEFT_DENIED;
	else
		return false;
	return true;
}

/* Returns the length of the common first components. */
static size_t common_part(const char *a, const char *b)
{
	size_t same = 0;
	for (size_t i = 0;; i++) {
		bool ends = (a[i] == 0 || a[i] == '/') && (b[i] == 0 || b[i] == '/');
		if (ends)
			same = i;
		if (a[i] != b[i] || a[i] == 0)
			return same;
	}
}

int scan_rights_of_other(struct vol *top, const char *tree, const char *path,
			 const struct vol_stat *st, struct acl_pool *pool,
			 struct rights *ret_rights)
{
	struct rights *gates, own;
	char dir[PATH_SIZE];
	uint32_t n = 0;
	size_t at = common_part(strcmp(tree, "/") ? tree : "", path);
	TRY(vol_rights(top, path, st, pool, &own));
	gates = calloc(strlen(path) / 2 + 1, sizeof(*gates));
	if (!gates)
		return -LE_NOMEM;
	int rc = 0;
	for (const char *c = path + at + 1; rc == 0 && (c = strchr(c, '/')) != NULL; c++) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(c - path), path);
		rc = vol_rights(top, dir, NULL, pool, &gates[n++]);
	}
	if (rc == 0)
		rc = rights_conjunction(&own, gates, n, pool, ret_rights);
	free(gates);
	return rc;
}

/* Adds the file that the link names in place of the link. Returns 1 with *ret_why if it is left
 * out. */
static int take_file(struct scan *s, const struct scan_link *l, uint64_t dev,
		     enum left_why *ret_why)
{
	char path[PATH_SIZE], real[PATH_SIZE];
	struct scan_file f = {0};
	int n = snprintf(path, sizeof(path), "%s/%s", strcmp(s->real, "/") ? s->real : "", l->path);
	int rc = n >= (int)sizeof(path) ? -LE_NAMETOOLONG : vol_real_path(s->top, path, real);
	if (rc == 0)
		rc = vol_stat(s->top, real, &f.st);
	if (rc < 0)
		return why_of(rc, ret_why) ? 1 : rc;
	*ret_why = S_ISDIR(f.st.mode) && f.st.dev == dev ? LEFT_DIRECTORY : LEFT_OUTSIDE;
	if (!S_ISREG(f.st.mode) || f.st.dev != dev)
		return 1;
	rc = scan_rights_of_other(s->top, s->real, real, &f.st, &s->acls, &f.rights);
	if (rc < 0)
		return why_of(rc, ret_why) ? 1 : rc;
	f.path = strdup(l->path);
	f.from = strdup(real);
	rc = f.path && f.from ? scan_add_file(s, &f) : -LE_NOMEM;
	if (rc < 0) {
		free(f.path);
		free(f.from);
	}
	return rc;
}

static int settle(struct scan *s, const struct scan_link *l, enum way way, uint64_t dev)
{
	enum left_why why = way == WAY_LOOP  ? LEFT_LOOP
			    : way == WAY_OUT ? LEFT_OUTSIDE
					     : LEFT_DANGLING;
	int rc = 1;
	if (way == WAY_OUT && s->top && !s->within)
		rc = take_file(s, l, dev, &why);
	return rc > 0 ? scan_leave_out(s, why, l->path) : rc;
}

/* Follows all links before it replaces any, because following uses the lists that replacing
 * changes. */
int scan_settle_links(struct scan *s, uint64_t dev)
{
	struct follow *f = malloc(sizeof(*f));
	uint8_t *ways = calloc((size_t)s->n_links + 1, 1);
	int rc = f && ways ? 0 : -LE_NOMEM;
	uint32_t n = 0, all = s->n_links;
	if (rc == 0)
		f->s = s;
	for (uint32_t i = 0; i < all && rc == 0; i++)
		ways[i] = (uint8_t)follow(f, &s->links[i]);
	for (uint32_t i = 0; i < all && rc == 0; i++)
		if (ways[i] != WAY_INSIDE)
			rc = settle(s, &s->links[i], (enum way)ways[i], dev);
	for (uint32_t i = 0; i < all && rc == 0; i++) {
		if (ways[i] == WAY_INSIDE) {
			s->links[n++] = s->links[i];
			continue;
		}
		free(s->links[i].path);
		free(s->links[i].target);
	}
	if (rc == 0)
		s->n_links = n;
	free(ways);
	free(f);
	return rc;
}
