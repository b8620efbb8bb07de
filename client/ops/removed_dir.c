/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/removed_dir.h"

#include <stddef.h>
#include <sys/stat.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "common/base/status.h"
#include "common/proto/cred.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rpc/mds_clock.h"

#define TIMES (SET_ATIME | SET_MTIME | SET_ATIME_NOW | SET_MTIME_NOW)
#define OWN   (SET_MODE | SET_UID | SET_GID | SET_ATIME | SET_MTIME | SET_CTIME)

bool removed_dir(const struct inode *i, struct attr *ret_attr)
{
	if (!S_ISDIR(i->attr.mode))
		return false;
	*ret_attr = i->attr;
	ret_attr->nlink = 0;
	return true;
}

static int may_set(const struct cred *c, const struct attr *a, uint32_t mask,
		   const struct attr *new)
{
	if (c->uid == 0 || (c->flags & CRED_CHECKED) != 0)
		return 0;
	if ((mask & OWN) != 0 && c->uid != a->uid)
		return -LE_PERM;
	if (((mask & SET_UID) != 0 && new->uid != a->uid) ||
	    ((mask & SET_GID) != 0 && new->gid != a->gid && !cred_in_group(c, new->gid)))
		return -LE_PERM;
	return c->uid == a->uid || cred_mode_allows(c, a, PERM_W) ? 0 : -LE_ACCES;
}

int removed_dir_set(struct client *c, const struct mds_setattr_req *req, struct inode *i,
		    struct attr *ret_attr)
{
	const struct attr *new = &req->attr;
	int64_t now = mds_clock_stamp_ns(&c->clock, c->env);
	uint32_t mask = req->mask;
	struct attr *a = &i->attr;

	if (!S_ISDIR(a->mode) ||
	    (mask & ~(uint32_t)(OWN | TIMES | SET_KILL_SUID | SET_KILL_CAPS)) != 0)
		return -LE_STALE;
	TRY(may_set(&req->cred, a, mask, new));
	if ((mask & SET_MODE) != 0)
		a->mode = (a->mode & S_IFMT) | (new->mode & 07777);
	if ((mask & SET_UID) != 0)
		a->uid = new->uid;
	if ((mask & SET_GID) != 0)
		a->gid = new->gid;
	if ((mask & (SET_ATIME | SET_ATIME_NOW)) != 0)
		a->atime_ns = (mask & SET_ATIME_NOW) != 0 ? now : new->atime_ns;
	if ((mask & (SET_MTIME | SET_MTIME_NOW)) != 0)
		a->mtime_ns = (mask & SET_MTIME_NOW) != 0 ? now : new->mtime_ns;
	a->ctime_ns = now;
	return ret_attr == NULL || removed_dir(i, ret_attr) ? 0 : -LE_STALE;
}
