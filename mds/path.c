/* SPDX-License-Identifier: Apache-2.0 */
/* See path.h. */
#include "mds/path.h"

#include "mds/access/perm.h"
#include "mds/mds.h"

#define DEPTH_MAX 2048u

/* Reads a durable record. cred: a user that must be permitted to list and search it; NULL: no
 * check. */
static int get_inode(struct mds *m, const struct cred *cred, struct ino ino,
		     struct inode_rec *ret_rec)
{
	struct key k = key_inode(ino);
	struct kv_value v;
	struct wire_r r;
	int rc;

	TRY(kv_get(m->store.kv, k.b, k.len, &v));
	wire_r_init(&r, v.data, v.len);
	wire_get_inode_rec(&r, ret_rec);
	rc = r.status;
	if (rc == 0 && cred != NULL) /* its access list is in v */
		rc = perm_access(cred, ret_rec, PERM_R | PERM_X);
	kv_value_fini(&v); /* the caller uses nothing that is in v */
	return rc;
}

/* Puts the last name of an inode before the text at *at. Returns 0, -LE_NOENT if it has no name,
 * or -LE_NAMETOOLONG. */
static int put_name(struct mds *m, struct ino ino, const struct inode_rec *rec, char *buf,
		    uint32_t *at)
{
	struct key k = key_dentry(rec->parent, rec->place);
	struct dentry_rec d;
	struct kv_value v;
	struct wire_r r;
	int rc;

	TRY(kv_get(m->store.kv, k.b, k.len, &v));
	wire_r_init(&r, v.data, v.len);
	wire_get_dentry_rec(&r, &d);
	rc = r.status < 0 ? r.status : !ino_equal(d.ino, ino) ? -LE_NOENT : 0;
	if (rc == 0 && d.name.len + 1 > *at)
		rc = -LE_NAMETOOLONG;
	if (rc == 0) {
		*at -= d.name.len;
		memcpy(buf + *at, d.name.data, d.name.len);
		buf[--*at] = '/';
	}
	kv_value_fini(&v);
	return rc;
}

int path_find(struct mds *m, const struct cred *cred, struct ino ino, char *buf, uint32_t size,
	      uint32_t *ret_at)
{
	struct inode_rec rec;

	*ret_at = size;
	for (uint32_t depth = 0; !ino_equal(ino, LEAT_ROOT_INO); depth++) {
		if (depth == DEPTH_MAX)
			return -LE_NAMETOOLONG;
		TRY(get_inode(m, depth > 0 ? cred : NULL, ino, &rec));
		if (rec.attr.nlink == 0 || rec.parent.v == 0)
			return -LE_NOENT;
		TRY(put_name(m, ino, &rec, buf, ret_at));
		ino = rec.parent;
	}
	if (*ret_at == size)
		buf[--*ret_at] = '/'; /* the root itself: nothing is above it */
	else if (cred != NULL)
		TRY(get_inode(m, cred, LEAT_ROOT_INO, &rec));
	return 0;
}
