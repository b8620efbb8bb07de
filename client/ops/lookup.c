/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/lookup.h"

#include <stddef.h>
#include <sys/stat.h>

#include "client/cache/attr_cache.h"
#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/size.h"
#include "client/ll.h"
#include "client/ops/name_check.h"
#include "client/ops/removed_dir.h"
#include "client/servers/mds_call.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"

int lookup_note(struct client *c, const struct cred *cred, const struct attr *attr,
		uint64_t sent_us, struct attr *ret_attr)
{
	struct inode *i;
	int rc;

	i = inode_get(c, attr->ino);
	if (i == NULL)
		return -LE_NOMEM;
	inode_update(c, i, attr, false, sent_us);
	rc = size_wait_times(i);
	if (rc >= 0 && (attr->flags & ATTR_UNSETTLED) && S_ISREG(attr->mode)) {
		if (i->data != NULL && i->data->n_closing > 0) {
			/* The close by this client that is in flight settles the file. */
			rc = size_get_attr(c, cred, i,
					   ret_attr != NULL ? ret_attr : &(struct attr){0});
		} else {
			rc = size_settle(c, i, attr);
		}
		if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_STALE)
			rc = 0;
	}
	if (rc >= 0 && ret_attr != NULL)
		size_settled_attr(c, i, ret_attr);
	inode_put(c, i);
	return rc;
}

/* Answers a lookup from the cache, if the user may certainly search the directory. Returns true if
 * *ret_rc is the answer. */
static bool lookup_known(struct client *c, const struct cred *cred, struct ino parent,
			 struct bytes name, struct attr *ret_attr, int *ret_rc)
{
	struct inode *dir = inode_peek(c, parent), *i;
	struct ino ino;
	bool known = false;

	if (dir == NULL)
		return false;
	if (dir_may_search(c, cred, dir) && dentry_cache_find(c, dir, name, &ino)) {
		i = ino.v != 0 ? inode_peek(c, ino) : NULL;
		known = ino.v == 0 ||
			(i != NULL && inode_size_fresh(c, i) && !size_times_are_open(i));
		*ret_rc = ino.v == 0 ? -LE_NOENT : 0;
		if (i != NULL && known) {
			inode_attr(c, i, ret_attr);
			ret_attr->flags &= ~(uint32_t)ATTR_UNSETTLED;
		}
		if (i != NULL)
			inode_put(c, i);
	}
	inode_put(c, dir);
	return known;
}

/* Keeps a capability to read that a lookup has granted, for a delegated open. */
static void may_be_read(struct client *c, const struct cap *cap)
{
	struct inode *i = inode_peek(c, cap->ino);

	if (i == NULL)
		return;
	if (cap->gen == i->attr.layout.gen) {
		i->cap = *cap;
		i->cap_gen = c->session_gen;
	}
	inode_put(c, i);
}

int ll_lookup(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct attr *ret_attr)
{
	struct mds_lookup_req req = {.cred = *cred, .parent = parent, .name = name};
	struct mds_lookup_rep rep;
	struct rpc_call call;
	struct attr unused;
	int rc;

	if (!name_may_be_used(name, &rc))
		return rc;
	/* The dots are not in the dentry cache. */
	if (!name_is_dots(name) && lookup_known(c, cred, parent, name,
					   ret_attr != NULL ? ret_attr : &unused, &rc))
		return rc;
	rc = mds_call(c, OP_mds_lookup, &req, &rep, &call);
	rpc_call_fini(&call);
	TRY(rc);
	if (rep.dir.ino.v != 0) {
		inode_saw(c, &rep.dir, false, call.sent_us);
		dentry_cache_update(c, &rep.dir, name, rep.attr.ino, false, call.sent_us);
	}
	if (rep.attr.ino.v == 0)
		return -LE_NOENT;
	rc = lookup_note(c, cred, &rep.attr, call.sent_us, ret_attr);
	if (rep.cap.ino.v != 0)
		may_be_read(c, &rep.cap);
	return rc;
}

int ll_getattr(struct client *c, const struct cred *cred, struct ino ino, struct attr *ret_attr)
{
	struct inode *i = inode_get(c, ino);
	struct attr attr;
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	rc = size_get_attr(c, cred, i, &attr);
	if (rc == -LE_STALE && removed_dir(i, &attr))
		rc = 0;
	if (rc >= 0 && ret_attr != NULL)
		*ret_attr = attr;
	inode_put(c, i);
	return rc;
}

int ll_getattr_rights(struct client *c, const struct cred *cred, struct ino ino,
		      struct attr *ret_attr)
{
	struct inode *i = inode_get(c, ino);
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	rc = size_refresh_rights(c, cred, i);
	if (rc >= 0)
		inode_attr(c, i, ret_attr);
	inode_put(c, i);
	return rc;
}

bool ll_hold(struct client *c, struct ino ino)
{
	struct inode *i = inode_get(c, ino);

	if (i == NULL)
		return false;
	i->n_held++;
	return true;
}

void ll_unhold(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);

	ASSERT(i != NULL && i->n_held > 0 && i->refs > 1);
	i->n_held--;
	i->refs--;
	inode_put(c, i);
}
