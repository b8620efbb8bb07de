/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inodes against directory entries. `window` inodes are in memory at a time, in order; then all
 * entries are read, and each counts if its inode or its directory is among them. So memory is
 * bounded, and the entries are read once for each window.
 */
#include "tools/fsck_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_SHOWN 64

struct node {
	uint64_t ino, parent, named_in, change, entries, found_entries;
	uint32_t mode, nlink, names, subdirs;
	bool orphan, damaged;
	enum {
		UNKNOWN,
		ON_THE_WAY,
		REACHED
	} reach;
};

struct names {
	struct fsck *f;
	struct node *nodes;
	uint64_t n;
	uint64_t total;  /* inodes of all windows */
	uint64_t lo, hi; /* this window checks the numbers lo < number <= hi */
	bool whole;      /* the window has all inodes */
};

static bool is_dir(const struct node *n)
{
	return S_ISDIR(n->mode);
}

static bool is_root(const struct node *n)
{
	return n->ino == LEAT_ROOT_INO.v;
}

static bool covers(const struct names *w, uint64_t ino)
{
	return ino > w->lo && ino <= w->hi;
}

static int compare_node(const void *key, const void *element)
{
	uint64_t a = *(const uint64_t *)key, b = ((const struct node *)element)->ino;

	return a < b ? -1 : a > b;
}

static struct node *node_find(const struct names *w, uint64_t ino)
{
	return bsearch(&ino, w->nodes, w->n, sizeof(*w->nodes), compare_node);
}

/* ---- reading ---- */

/* Reads the next inodes; the window may be empty at the end. */
static int read_window(struct names *w, struct fsck_cursor *cur)
{
	bool first = !cur->begun;
	int rc = 1;

	w->lo = first ? 0 : w->hi;
	w->n = 0;
	while (w->n < w->f->window && (rc = fsck_row(w->f, cur)) == 1) {
		struct node *n = &w->nodes[w->n++];
		struct fsck_inode i;

		wire_get_fsck_inode(&cur->r, &i);
		TRY(cur->r.status);
		*n = (struct node){.ino = i.ino.v,
				   .parent = i.parent.v,
				   .change = i.change,
				   .entries = i.entries,
				   .mode = i.mode,
				   .nlink = i.nlink,
				   .damaged = i.damaged};
		if (w->n > 1 && n->ino <= n[-1].ino)
			return -LE_BAD_MESSAGE;
	}
	if (rc < 0)
		return rc;
	rc = fsck_row(w->f, cur); /* are there others? */
	w->hi = rc == 1 ? w->nodes[w->n - 1].ino : UINT64_MAX;
	w->whole = first && rc == 0;
	w->total += w->n;
	return rc < 0 ? rc : 0;
}

static int read_orphans(struct names *w)
{
	struct fsck_cursor cur = {.kind = FSCK_ORPHANS};
	int rc;

	while ((rc = fsck_row(w->f, &cur)) == 1) {
		struct mds_fsck_repair_req fix = {.what = FSCK_REPAIR_FALSE_ORPHAN};
		struct node *n;

		wire_get_u64(&cur.r, &fix.ino.v);
		rc = cur.r.status;
		n = node_find(w, fix.ino.v);
		if (rc == 0 && n && n->nlink == 0)
			n->orphan = true;
		else if (rc == 0 && covers(w, fix.ino.v) && !(n && n->damaged))
			rc = fsck_found(w->f, FSCK_orphans, &fix, "orphan %" PRIu64 ": %s",
					fix.ino.v, n ? "has links" : "there is no such inode");
		if (rc < 0)
			break;
	}
	fsck_cursor_fini(&cur);
	return rc < 0 ? rc : 0;
}

/* Copies the bytes of the name, bounded; the functions that print them escape them. */
static const char *show(struct bytes name, char buf[NAME_SHOWN + 4])
{
	uint32_t n = name.len < NAME_SHOWN ? name.len : NAME_SHOWN;

	memcpy(buf, name.len ? name.data : "", n);
	snprintf(buf + n, 4, "%s", n < name.len ? "..." : "");
	return buf;
}

static int dangling(struct names *w, const struct fsck_entry *e, const char *why, uint64_t missing)
{
	struct mds_fsck_repair_req fix = {
		.what = FSCK_REPAIR_ENTRY, .ino = e->ino, .dir = e->dir, .cookie = e->cookie};
	char name[NAME_SHOWN + 4];

	return fsck_found(w->f, FSCK_entries, &fix,
			  "entry '%s' in %" PRIu64 ": %s %" PRIu64 " does not exist",
			  show(e->name, name), e->dir.v, why, missing);
}

static int named(struct names *w, const struct fsck_entry *e, struct node *n)
{
	char name[NAME_SHOWN + 4];

	if (!n->damaged && e->type != (uint8_t)(n->mode >> 12))
		TRY(fsck_found(w->f, FSCK_damaged, NULL,
			       "entry '%s' in %" PRIu64 ": wrong type of inode %" PRIu64,
			       show(e->name, name), e->dir.v, e->ino.v));
	if (is_dir(n) && n->names > 0)
		TRY(fsck_found(w->f, FSCK_damaged, NULL,
			       "entry '%s' in %" PRIu64 ": directory %" PRIu64 " has another name",
			       show(e->name, name), e->dir.v, e->ino.v));
	n->names++;
	n->named_in = e->dir.v;
	return 0;
}

static int count_entry(struct names *w, const struct fsck_entry *e)
{
	struct node *d;

	if (covers(w, e->dir.v)) {
		d = node_find(w, e->dir.v);
		if (!d || (!d->damaged && !is_dir(d)))
			return dangling(w, e, "its directory", e->dir.v);
		d->found_entries++;
		d->subdirs += e->type == (S_IFDIR >> 12);
	}
	if (covers(w, e->ino.v)) {
		d = node_find(w, e->ino.v);
		return d ? named(w, e, d) : dangling(w, e, "inode", e->ino.v);
	}
	return 0;
}

static int read_entries(struct names *w)
{
	struct fsck_cursor cur = {.kind = FSCK_ENTRIES};
	uint64_t seen = 0;
	int rc;

	while ((rc = fsck_row(w->f, &cur)) == 1) {
		struct fsck_entry e;

		wire_get_fsck_entry(&cur.r, &e);
		rc = cur.r.status;
		if (rc == 0)
			rc = count_entry(w, &e);
		if (rc == 0 && ++seen % 1024 == 0)
			rc = fsck_going(w->f, "names", seen, w->f->n_inodes);
		if (rc < 0)
			break;
	}
	w->f->n_entries = seen;
	fsck_cursor_fini(&cur);
	return rc < 0 ? rc : 0;
}

/* ---- checks ---- */

static int check_counts(struct names *w, const struct node *n)
{
	uint32_t links = is_dir(n) ? 2 + n->subdirs : n->names;
	uint64_t parent = is_root(n) ? n->ino : n->named_in;
	struct mds_fsck_repair_req fix = {.what = FSCK_REPAIR_COUNTS,
					  .ino = {n->ino},
					  .change = n->change,
					  .nlink = links,
					  .entries = n->found_entries,
					  .parent = {parent}};

	if (n->nlink != links)
		return fsck_found(w->f, FSCK_links, &fix,
				  "inode %" PRIu64 ": link count %u should be %u", n->ino, n->nlink,
				  links);
	if (is_dir(n) && n->entries != n->found_entries)
		return fsck_found(w->f, FSCK_links, &fix,
				  "directory %" PRIu64 ": %" PRIu64 " entries should be %" PRIu64,
				  n->ino, n->entries, n->found_entries);
	if (is_dir(n) && n->parent != parent)
		return fsck_found(w->f, FSCK_links, &fix,
				  "directory %" PRIu64 ": parent %" PRIu64 " should be %" PRIu64,
				  n->ino, n->parent, parent);
	return 0;
}

static int judge(struct names *w, const struct node *n)
{
	struct mds_fsck_repair_req fix = {.what = FSCK_REPAIR_NAME,
					  .ino = {n->ino},
					  .change = n->change,
					  .nlink = is_dir(n) ? 2 + n->subdirs : 1};

	if (n->damaged)
		return fsck_found(w->f, FSCK_damaged, NULL,
				  "inode %" PRIu64 ": its record is damaged", n->ino);
	if (n->names > 0 || is_root(n))
		return check_counts(w, n);
	if (n->orphan)
		return 0;
	if (n->nlink > 0)
		return fsck_found(w->f, FSCK_names, &fix, "inode %" PRIu64 ": has no name", n->ino);
	fix.what = FSCK_REPAIR_ORPHAN;
	return fsck_found(w->f, FSCK_orphans, &fix,
			  "inode %" PRIu64 ": no links, but not among the orphans", n->ino);
}

/* Follows the names up to the root, or to a directory from which the root was reached. */
static bool leads_up(const struct names *w, struct node *n)
{
	struct node *at = n;
	bool reached;

	while (at && at->reach == UNKNOWN && at->names > 0) {
		at->reach = ON_THE_WAY;
		at = node_find(w, at->named_in);
	}
	/* ON_THE_WAY: this is a cycle. A directory without a name is found by another check. */
	reached = at && (at->reach == REACHED || (at->names == 0 && at->reach == UNKNOWN));
	for (at = n; reached && at && at->reach == ON_THE_WAY; at = node_find(w, at->named_in))
		at->reach = REACHED;
	return reached;
}

static int check_reach(struct names *w)
{
	struct node *root = node_find(w, LEAT_ROOT_INO.v);

	if (!root)
		return fsck_found(w->f, FSCK_damaged, NULL, "the root directory does not exist");
	root->reach = REACHED;
	for (uint64_t i = 0; i < w->n; i++) {
		struct node *n = &w->nodes[i];

		if (is_dir(n) && n->names > 0 && n->reach == UNKNOWN && !leads_up(w, n))
			TRY(fsck_found(w->f, FSCK_damaged, NULL,
				       "directory %" PRIu64 ": cannot be reached from the root",
				       n->ino));
	}
	return 0;
}

static int check_all(struct names *w)
{
	for (uint64_t i = 0; i < w->n; i++)
		TRY(judge(w, &w->nodes[i]));
	if (w->whole)
		return check_reach(w);
	if (w->lo == 0)
		fsck_note(w->f, "cycles of directories are searched for only if the window holds "
				"all inodes (--window); `leat-mds check` finds them too");
	return 0;
}

static int one_window(struct names *w, struct fsck_cursor *cur)
{
	TRY(read_window(w, cur));
	TRY(read_orphans(w));
	TRY(read_entries(w));
	return check_all(w);
}

static int check_total(struct names *w)
{
	struct fsck *f = w->f;
	struct mds_fsck_repair_req fix = {
		.what = FSCK_REPAIR_TOTAL, .change = f->snapshot, .entries = w->total};

	if (w->total == f->n_inodes)
		return 0;
	return fsck_found(f, FSCK_links, &fix,
			  "the number of inodes, %" PRIu64 ", should be %" PRIu64, f->n_inodes,
			  w->total);
}

int fsck_names(struct fsck *f)
{
	struct fsck_cursor cur = {.kind = FSCK_INODES};
	uint64_t space = f->window;
	struct names w = {.f = f};
	int rc;

	w.nodes = calloc(space, sizeof(*w.nodes));
	if (!w.nodes)
		return -LE_NOMEM;
	do
		rc = one_window(&w, &cur);
	while (rc == 0 && w.hi != UINT64_MAX);
	if (rc == 0)
		rc = check_total(&w);
	fsck_cursor_fini(&cur);
	free(w.nodes);
	return rc;
}
