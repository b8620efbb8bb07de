/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/set_ids.h"

#include <sys/stat.h>

#include "fuse/kernel/kernel_pages.h"
#include "fuse/ops/credentials.h"

#define GROUPS_MAX 256u

/* True if the caller is in the group, or in more than GROUPS_MAX groups. */
static bool in_group(fuse_req_t req, gid_t gid)
{
	gid_t groups[GROUPS_MAX];
	int n = fuse_req_getgroups(req, GROUPS_MAX, groups);

	if (fuse_req_ctx(req)->gid == gid || n > (int)GROUPS_MAX)
		return true;
	for (int i = 0; i < n; i++)
		if (groups[i] == gid)
			return true;
	return false;
}

int drop_set_ids(fuse_req_t req, fuse_ino_t ino)
{
	struct leatfs *fs = req_fs(req);
	struct attr attr, set = {.mode = 0};
	uint32_t mask = SET_KILL_SUID;
	struct req_cred rc;

	req_cred_init(req, &rc);
	TRY(ll_getattr_rights(fs->client, &rc.cred, ino_of(fs, ino), &attr));
	if ((attr.mode & (S_ISGID | S_IXGRP)) == S_ISGID && !in_group(req, attr.gid)) {
		/* SET_KILL_SUID stays: by it the client's restart log recognizes a removal of
		 * bits */
		mask |= SET_MODE;
		set.mode = attr.mode & ~(uint32_t)(S_IFMT | S_ISUID | S_ISGID);
	} else if (!(attr.mode & S_ISUID) && !((attr.mode & S_ISGID) && (attr.mode & S_IXGRP))) {
		return 0;
	}
	TRY(ll_setattr(fs->client, &rc.cred, ino_of(fs, ino), NULL, mask, &set, NULL));
	/* The kernel removes the bits from its own attributes for buffered writes only. Dropping
	 * attributes takes no page lock, so it can be done here, before the reply. */
	kernel_size_forget_attr(fs, ino_of(fs, ino));
	return 0;
}

int drop_set_ids_for_user(fuse_req_t req, fuse_ino_t ino)
{
	return fuse_req_ctx(req)->uid != 0 ? drop_set_ids(req, ino) : 0;
}
