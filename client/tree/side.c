/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tree/side.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/include/leat/leat_tree.h"

void side_destroy(struct side *s)
{
	if (s)
		s->ops->destroy(s);
}

int tmeta_add(struct tmeta *m, const char *name, const void *value, uint32_t len)
{
	size_t n = strlen(name) + 1, need = m->len + n + sizeof(len) + len;

	if (need > LEAT_XATTR_TOTAL_MAX + LEAT_XATTR_NAMES_MAX * 2)
		return -LE_2BIG;
	if (need > m->cap) {
		size_t cap = need * 2;
		char *more = realloc(m->xattrs, cap);

		if (!more)
			return -LE_NOMEM;
		m->xattrs = more;
		m->cap = cap;
	}
	memcpy(m->xattrs + m->len, name, n);
	memcpy(m->xattrs + m->len + n, &len, sizeof(len));
	memcpy(m->xattrs + m->len + n + sizeof(len), value, len);
	m->len = need;
	return 0;
}

bool tmeta_next(const struct tmeta *m, size_t *at, const char **ret_name, struct bytes *ret_value)
{
	const char *p;
	uint32_t len;

	if (*at >= m->len)
		return false;
	p = m->xattrs + *at;
	*ret_name = p;
	p += strlen(p) + 1;
	memcpy(&len, p, sizeof(len));
	p += sizeof(len);
	*ret_value = bytes_of(p, len);
	*at = (size_t)(p + len - m->xattrs);
	return true;
}

bool tmeta_is_acl(const char *name)
{
	return strncmp(name, "system.posix_acl_", 17) == 0;
}

const char *tmeta_no_acl(const struct tmeta *m, size_t i)
{
	static const char *const lists[] = {"system.posix_acl_access", "system.posix_acl_default"};
	size_t n = !(m->keep & LEAT_KEEP_XATTRS) || !(m->keep & LEAT_KEEP_MODE) ? 0
		   : S_ISDIR(m->a.mode)                                         ? 2
		   : S_ISLNK(m->a.mode)                                         ? 0
										: 1;

	for (size_t k = 0; k < n; k++) {
		const char *name;
		struct bytes v;
		size_t at = 0;
		bool has = false;

		while (!has && tmeta_next(m, &at, &name, &v))
			has = strcmp(name, lists[k]) == 0;
		if (!has && i-- == 0)
			return lists[k];
	}
	return NULL;
}

bool tmeta_cannot(int rc)
{
	int err = rc < 0 ? status_errno(rc) : 0;

	return err == EOPNOTSUPP || err == ENOTSUP || err == EPERM || err == EACCES;
}
