/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of ll.h about extended attributes. */

#include <string.h>

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/ops/own_change.h"
#include "client/ops/removed_dir.h"
#include "client/servers/mds_call.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"

/* Copies a value to a caller's buffer. Returns its length, or -LE_RANGE. */
static int64_t value_out(struct bytes value, int rc, struct rpc_call *call, void *buf, size_t size)
{
	int64_t ret = rc;

	if (rc >= 0) {
		ret = value.len;
		if (size > 0 && value.len > size)
			ret = -LE_RANGE;
		else if (size > 0 && value.len > 0)
			memcpy(buf, value.data, value.len);
	}
	rpc_call_fini(call);
	return ret;
}

/* Returns true if the cached attributes are valid and exclude extended attributes. That saves
 * requests, because the kernel reads access lists and security.capability of every file in use. */
static bool known_plain(struct client *c, const struct cred *cred, struct ino ino,
			struct bytes name)
{
	static const char *const kinds[] = {"user.", "trusted.", "security.", "system.posix_acl_"};
	struct inode *i;
	bool plain;

	if ((cred->flags & CRED_CHECKED) == 0)
		return false;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		size_t n = strlen(kinds[k]);

		if (name.len > n && memcmp(name.data, kinds[k], n) == 0)
			goto look;
	}
	return false;
look:
	i = inode_peek(c, ino);
	if (i == NULL)
		return false;
	plain = (i->attr.flags & ATTR_PLAIN) != 0 && inode_attr_fresh(c, i);
	inode_put(c, i);
	return plain;
}

/* Replaces -LE_STALE for a removed directory by `instead`. The kernel reads the access list of a
 * directory before it looks up a name there. So a program that removes a name which another program
 * has removed gets ENOENT, not ESTALE. */
static int64_t of_removed_dir(struct client *c, struct ino ino, int64_t rc, int64_t instead)
{
	struct inode *i = rc == -LE_STALE ? inode_peek(c, ino) : NULL;
	struct attr attr;

	if (i == NULL)
		return rc;
	if (removed_dir(i, &attr))
		rc = instead;
	inode_put(c, i);
	return rc;
}

int64_t ll_getxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		    void *buf, size_t size)
{
	struct mds_getxattr_req req = {.cred = *cred, .ino = ino, .name = name};
	struct mds_getxattr_rep rep;
	struct rpc_call call;
	int rc;

	if (known_plain(c, cred, ino, name))
		return -LE_NODATA;
	rc = mds_call(c, OP_mds_getxattr, &req, &rep, &call);
	return of_removed_dir(c, ino, value_out(rep.value, rc, &call, buf, size), -LE_NODATA);
}

int64_t ll_listxattr(struct client *c, const struct cred *cred, struct ino ino, void *buf,
		     size_t size)
{
	struct mds_listxattr_req req = {.cred = *cred, .ino = ino};
	struct mds_listxattr_rep rep;
	struct rpc_call call;
	int rc;

	if (known_plain(c, cred, ino, bytes_str("user.any")))
		return 0;
	rc = mds_call(c, OP_mds_listxattr, &req, &rep, &call);
	const char *names = rc >= 0 ? rep.names.data : NULL;
	if (names != NULL && rep.names.len > 0 && names[rep.names.len - 1] != '\0') {
		rpc_call_fini(&call);
		return -LE_BAD_MESSAGE;
	}
	return of_removed_dir(c, ino, value_out(rep.names, rc, &call, buf, size), 0);
}

int ll_setxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		struct bytes value, uint32_t flags)
{
	struct mds_setxattr_req req = {
		.cred = *cred,
		.ino = ino,
		.name = name,
		.value = value,
		.flags = flags,
	};
	struct mds_setxattr_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (name.len > LEAT_XATTR_NAME_MAX)
		return -LE_RANGE;
	if (value.len > LEAT_XATTR_VALUE_MAX)
		return -LE_2BIG;
	pending_change_begin(c, &ch, ino);
	rc = mds_call(c, OP_mds_setxattr, &req, &rep, &call);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_outdated(c, ino);
	return 0;
}

int ll_removexattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name)
{
	struct mds_removexattr_req req = {.cred = *cred, .ino = ino, .name = name};
	struct mds_removexattr_rep rep;
	struct rpc_call call;
	struct pending_change ch;
	int rc;

	pending_change_begin(c, &ch, ino);
	rc = mds_call(c, OP_mds_removexattr, &req, &rep, &call);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_outdated(c, ino);
	return 0;
}
