/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/repair.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

static struct inode_rec *edit(struct store *s, struct inode *i)
{
	struct inode_rec *rec = inode_edit(s, i);

	rec->attr.change++;
	rec->attr.ctime_ns = env_wall_ns(s->env);
	return rec;
}

int repair_entry(struct store *s, struct ino dir, uint64_t cookie, struct ino ino)
{
	struct dentry_val val;
	struct dentry *d;
	struct inode *i;
	bool tomb;
	int rc = inode_get(s, dir, VIEW_NEWEST, &i, NULL), found;

	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	found = dentry_at(s, dir, cookie, VIEW_NEWEST, &d, &val);
	if (found < 0)
		return found == -LE_NOENT ? 0 : found;
	if (val.state != DENTRY_LIVE || val.ino.v != ino.v)
		return 0;
	tomb = dentry_remove(s, d);
	if (rc == 0) {
		struct inode_rec *rec = edit(s, i);

		rec->flags |= tomb ? INODE_TOMBS : 0;
		rec->entries -= rec->entries > 0;
	}
	return 1;
}

int repair_counts(struct store *s, struct ino ino, const struct repair_counts *c)
{
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	bool dir;

	TRY(inode_get(s, ino, VIEW_NEWEST, &i, &old));
	dir = S_ISDIR(old->attr.mode);
	if (old->attr.nlink == c->nlink &&
	    (!dir || (old->entries == c->entries && old->parent.v == c->parent.v)))
		return 0;
	rec = edit(s, i);
	rec->attr.nlink = c->nlink;
	if (dir) {
		rec->entries = c->entries;
		rec->parent = c->parent;
	}
	return 1;
}

static void make_lost_found(struct store *s, struct inode *root, struct dentry *d,
			    struct ino *ret_dir)
{
	int64_t now = env_wall_ns(s->env);
	struct inode_rec *rec;
	struct inode *dir = inode_create(s, &rec);

	rec->attr.mode = S_IFDIR | 0700;
	rec->attr.nlink = 2;
	rec->attr.size = 4096;
	rec->attr.atime_ns = rec->attr.mtime_ns = rec->attr.ctime_ns = rec->attr.btime_ns = now;
	rec->attr.change = 1;
	rec->attr.layout.flags = LAYOUT_F_INHERITED;
	*ret_dir = dir->ino;
	dentry_put(s, d, dir->ino, S_IFDIR);
	rec = edit(s, root);
	rec->entries++;
	rec->attr.nlink++;
}

int repair_lost_found(struct store *s, struct ino *ret_dir)
{
	struct dentry_val val;
	struct inode *root;
	struct dentry *d;
	int rc;

	TRY(inode_get(s, LEAT_ROOT_INO, VIEW_NEWEST, &root, NULL));
	rc = dentry_find(s, LEAT_ROOT_INO, bytes_str("lost+found"), VIEW_NEWEST, &d, &val);
	if (rc == 0)
		*ret_dir = val.ino;
	if (rc != -LE_NOENT)
		return rc;
	make_lost_found(s, root, d, ret_dir);
	return 1;
}

int repair_name(struct store *s, struct ino ino, struct ino lost_found, uint32_t nlink)
{
	const struct inode_rec *old;
	struct inode *dir, *i;
	struct dentry_val val;
	struct inode_rec *rec;
	struct dentry *d;
	uint32_t mode;
	char name[40];
	int rc;

	snprintf(name, sizeof(name), "ino.%" PRIu64, ino.v);
	TRY(inode_get(s, ino, VIEW_NEWEST, &i, &old));
	mode = old->attr.mode;
	TRY(inode_get(s, lost_found, VIEW_NEWEST, &dir, NULL));
	rc = dentry_find(s, lost_found, bytes_str(name), VIEW_NEWEST, &d, &val);
	if (rc != -LE_NOENT)
		return rc == 0 ? -LE_EXIST : rc;
	rec = edit(s, i);
	rec->attr.nlink = nlink;
	dentry_put(s, d, ino, mode);
	rec = edit(s, dir);
	rec->entries++;
	rec->attr.nlink += S_ISDIR(mode);
	return 1;
}

int repair_orphan(struct store *s, struct ino ino)
{
	const struct inode_rec *rec;
	int rc = inode_get(s, ino, VIEW_NEWEST, NULL, &rec);

	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	if (rec->attr.nlink != 0)
		return 0;
	txn_put(s, key_of('O', ino.v), NULL, 0);
	return 1;
}

int repair_false_orphan(struct store *s, struct ino ino)
{
	const struct inode_rec *rec;
	int rc = inode_get(s, ino, VIEW_NEWEST, NULL, &rec);

	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	if (rc == 0 && rec->attr.nlink == 0)
		return 0;
	txn_delete(s, key_of('O', ino.v));
	return 1;
}
