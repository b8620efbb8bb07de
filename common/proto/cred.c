/* SPDX-License-Identifier: Apache-2.0 */
/* Mode bits and groups; see cred.h. */
#include "common/proto/cred.h"

#include "common/base/status.h"

int cred_check(const struct cred *c)
{
	if (c->groups.len % 4 != 0 || c->groups.len > 4 * LEAT_GROUPS_MAX)
		return -LE_INVAL;
	return 0;
}

bool cred_in_group(const struct cred *c, uint32_t gid)
{
	const uint8_t *p = c->groups.data;

	if (c->gid == gid)
		return true;
	for (uint32_t i = 0; i + 4 <= c->groups.len; i += 4) {
		uint32_t g = (uint32_t)p[i] | (uint32_t)p[i + 1] << 8 | (uint32_t)p[i + 2] << 16 |
			     (uint32_t)p[i + 3] << 24;

		if (g == gid)
			return true;
	}
	return false;
}

bool cred_mode_allows(const struct cred *c, const struct attr *a, uint32_t mask)
{
	uint32_t bits = a->mode;

	if (c->uid == a->uid)
		bits >>= 6;
	else if (cred_in_group(c, a->gid))
		bits >>= 3;
	return (bits & mask) == mask;
}
