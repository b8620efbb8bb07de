/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/name_check.h"

#include <string.h>

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "common/proto/cred.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"

bool name_is_dots(struct bytes name)
{
	return name.len <= 2 && memcmp(name.data, "..", name.len) == 0;
}

bool name_may_be_used(struct bytes name, int *ret_status)
{
	if (name.len == 0 || name.len > LEAT_NAME_MAX) {
		*ret_status = name.len == 0 ? -LE_NOENT : -LE_NAMETOOLONG;
		return false;
	}
	return true;
}

bool dir_may_search(const struct client *c, const struct cred *cred, const struct inode *dir)
{
	if (cred->uid == 0 || (cred->flags & CRED_CHECKED) != 0)
		return true;
	return inode_attr_fresh(c, dir) && (dir->attr.flags & ATTR_PLAIN) != 0 &&
	       cred_mode_allows(cred, &dir->attr, PERM_X);
}
