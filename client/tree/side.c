#include "client/tree/side.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

bool tmeta_cannot(int rc)
{
	int err = rc < 0 ? status_errno(rc) : 0;

	return err == EOPNOTSUPP || err == ENOTSUP || err == EPERM || err == EACCES;
}
