/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether a user may access an inode by its number. */
#include "mds/ops/reach.h"

#include <stdlib.h>

#include "mds/access/exports_policy.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"

#define NAMES     256u /* names that a session notes, one per hash of the inode number */
#define DEPTH_MAX 65536u

struct name {
	struct ino ino, dir;
	uint64_t place;
};
struct reached {
	struct name names[NAMES];
};

#define ONE(op, member) OP_##op, {offsetof(struct op##_req, member), SIZE_MAX}
#define TWO(op, member, other)                                                                     \
	OP_##op, {offsetof(struct op##_req, member), offsetof(struct op##_req, other)}
static const struct {
	uint16_t op;
	size_t at[2];
} named[] = {
	{ONE(mds_lookup, parent)},
	{ONE(mds_getattr, ino)},
	{ONE(mds_setattr, ino)},
	{ONE(mds_create, parent)},
	{ONE(mds_mknod, parent)},
	{ONE(mds_mkdir, parent)},
	{ONE(mds_symlink, parent)},
	{ONE(mds_readlink, ino)},
	{TWO(mds_link, ino, parent)},
	{ONE(mds_unlink, parent)},
	{ONE(mds_rmdir, parent)},
	{TWO(mds_rename, parent, new_parent)},
	{ONE(mds_readdir, ino)},
	{ONE(mds_open, ino)},
	{ONE(mds_tmpfile, parent)},
	{TWO(mds_copy, ino, to)},
	{ONE(mds_fallocate, ino)},
	{ONE(mds_getxattr, ino)},
	{ONE(mds_setxattr, ino)},
	{ONE(mds_listxattr, ino)},
	{ONE(mds_removexattr, ino)},
	{ONE(mds_layout_set, ino)},
	{ONE(mds_access, ino)},
	{ONE(mds_quota_set, ino)},
};

static bool has_open(const struct op *op, struct ino ino)
{
	const struct open *o =
		op->session != NULL ? open_find(&op->m->opens, op->session, ino) : NULL;

	return o != NULL && o->granted != 0;
}

bool reach_knows(const struct op *op, struct ino ino)
{
	const struct lease *l =
		op->session != NULL ? lease_find(&op->m->leases, ino, op->session) : NULL;

	return (l != NULL && (l->modes & LEASE_CACHING) != 0 && !l->claimed) ||
	       has_open(op, ino);
}

/* Checks that the user may search this directory and all above it. */
static int may_search(struct op *op, const struct cred *c, struct ino dir)
{
	const struct inode_rec *rec;

	for (uint32_t depth = 0; depth < DEPTH_MAX; depth++) {
		int rc = inode_get(op->store, dir, VIEW_NEWEST, NULL, &rec);

		if (rc < 0)
			return rc == -LE_NOENT ? -LE_ACCES : rc;
		TRY(perm_access(c, rec, PERM_X));
		if (ino_equal(dir, LEAT_ROOT_INO))
			return 0;
		dir = rec->parent;
	}
	return -LE_ACCES;
}

/* Returns -LE_ACCES if the name does not lead to the inode or may not be searched. */
static int by_name(struct op *op, const struct cred *c, const struct name *name)
{
	struct dentry_val val;
	struct dentry *d;

	TRY(dentry_at(op->store, name->dir, name->place, VIEW_NEWEST, &d, &val));
	if (val.state != DENTRY_LIVE || !ino_equal(val.ino, name->ino))
		return -LE_ACCES;
	return may_search(op, c, name->dir);
}

static int check_one(struct op *op, const struct cred *c, struct ino ino)
{
	const struct inode_rec *rec;
	struct name last, *other;
	int rc;

	/* A lease belongs to the session, whichever user's lookup brought it, so it proves nothing
	 * for this user. */
	if (ino_equal(ino, LEAT_ROOT_INO) || has_open(op, ino))
		return 0;
	rc = inode_get(op->store, ino, VIEW_NEWEST, NULL, &rec);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc; /* the operation returns its own error */
	if (rec->parent.v == 0)
		/* It never had a name: only the session that created it may have it open. */
		return op->session != NULL &&
				       open_find(&op->m->opens, op->session, ino) != NULL
			       ? 0
			       : -LE_ACCES;
	/* A directory has one name; after the removal of the last name only that one is
	 * recorded. */
	if (S_ISDIR(rec->attr.mode) || rec->attr.nlink == 0)
		return may_search(op, c, rec->parent);
	last = (struct name){ino, rec->parent, rec->place};
	rc = by_name(op, c, &last);
	if (rc != -LE_ACCES || op->session == NULL || op->session->reached == NULL)
		return rc;
	other = &op->session->reached->names[hash_u64(ino.v) % NAMES];
	return ino_equal(other->ino, ino) ? by_name(op, c, other) : rc;
}

struct question {
	const struct cred *cred;
	struct ino ino;
};

static int ask(struct op *op, const void *vin, void *vout)
{
	const struct question *q = vin;

	(void)vout;
	return check_one(op, q->cred, q->ino);
}

int reach_check(struct op *op, const void *in)
{
	struct question q = {.cred = in}; /* every such request begins with its credential */

	if (!export_squashes(op))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		if (named[i].op != op->desc->op)
			continue;
		TRY(cred_check(q.cred));
		for (uint32_t k = 0; k < 2 && named[i].at[k] != SIZE_MAX; k++) {
			memcpy(&q.ino, (const char *)in + named[i].at[k], sizeof(q.ino));
			TRY(op_read(op, ask, &q, NULL));
		}
	}
	return 0;
}

void reach_note(struct op *op, const struct inode_rec *rec, struct ino dir, uint64_t place)
{
	struct session *se = op->session;

	if (se == NULL || S_ISDIR(rec->attr.mode) ||
	    (ino_equal(rec->parent, dir) && rec->place == place) || !export_squashes(op))
		return;
	if (se->reached == NULL)
		se->reached = calloc(1, sizeof(*se->reached));
	if (se->reached != NULL) /* otherwise the client looks the name up again */
		se->reached->names[hash_u64(rec->attr.ino.v) % NAMES] =
			(struct name){rec->attr.ino, dir, place};
}
