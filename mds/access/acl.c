/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/access/acl.h"

#include <string.h>

#define XATTR_VERSION 2u
#define HEAD_LEN      4u
#define ENTRY_LEN     8u
#define NO_ID         UINT32_MAX

/* linux/posix_acl.h */
enum tag {
	TAG_USER_OBJ = 0x01,
	TAG_USER = 0x02,
	TAG_GROUP_OBJ = 0x04,
	TAG_GROUP = 0x08,
	TAG_MASK = 0x10,
	TAG_OTHER = 0x20
};

enum acl_which acl_which(struct bytes name)
{
	if (bytes_equal(name, bytes_str("system.posix_acl_access")))
		return ACL_ACCESS;
	if (bytes_equal(name, bytes_str("system.posix_acl_default")))
		return ACL_DEFAULT;
	return ACL_NONE;
}

/* ---- from programs ---- */

struct parse {
	struct acl_base base;
	uint32_t seen; /* tags */
};

/* Takes an entry without an id. Entries must come in the order of their tags, and each of these
 * tags at most once. */
static int take_base(struct parse *p, uint32_t tag, uint32_t perm)
{
	if (p->seen >= tag) /* a repeated tag, or one out of order */
		return -LE_INVAL;
	switch (tag) {
	case TAG_USER_OBJ:
		p->base.user = perm;
		return 0;
	case TAG_GROUP_OBJ:
		p->base.group = perm;
		return 0;
	case TAG_MASK:
		p->base.has_mask = true;
		p->base.mask = perm;
		return 0;
	case TAG_OTHER:
		p->base.other = perm;
		return 0;
	default:
		return -LE_INVAL;
	}
}

static int take_entry(struct parse *p, const uint8_t *e, uint8_t *buf, uint32_t *len)
{
	uint32_t tag = acl_get_le(e, 2), perm = acl_get_le(e + 2, 2), id = acl_get_le(e + 4, 4);
	struct acl_entry named = {tag == TAG_USER ? ACL_USER : ACL_GROUP, perm, id};

	if (perm > 7)
		return -LE_INVAL;
	if (tag != TAG_USER && tag != TAG_GROUP) {
		TRY(take_base(p, tag, perm));
	} else {
		/* Must follow the entry of the owner or owning group, before the next tag. */
		if (id == NO_ID || p->seen < (uint32_t)tag >> 1 || p->seen >= (uint32_t)tag << 1)
			return -LE_INVAL;
		if (*len + ACL_ENTRY_LEN > ACL_LEN_MAX)
			return -LE_2BIG;
		acl_add(buf, &named, len);
	}
	p->seen |= tag;
	return 0;
}

int acl_from_xattr(struct bytes value, uint8_t buf[ACL_LEN_MAX], uint32_t *ret_len,
		   struct acl_base *ret_base)
{
	const uint32_t needed = TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_OTHER;
	const uint8_t *p = value.data;
	struct parse parse = {.seen = 0};
	uint32_t len, ignored;

	*ret_len = 0;
	if (value.len == 0)
		return 0;
	if (value.len > ACL_XATTR_MAX)
		return -LE_2BIG;
	if (value.len < HEAD_LEN || (value.len - HEAD_LEN) % ENTRY_LEN != 0)
		return -LE_INVAL;
	if (acl_get_le(p, 4) != XATTR_VERSION)
		return -LE_NOTSUP;
	if (value.len == HEAD_LEN)
		return 0;
	len = ACL_HEAD_LEN;
	for (uint32_t at = HEAD_LEN; at < value.len; at += ENTRY_LEN)
		TRY(take_entry(&parse, p + at, buf, &len));
	if ((parse.seen & needed) != needed || (len > ACL_HEAD_LEN && !parse.base.has_mask))
		return -LE_INVAL;
	acl_begin(buf, &parse.base, &ignored);
	*ret_len = len;
	*ret_base = parse.base;
	return 0;
}

/* ---- to programs ---- */

static uint32_t put_entry(uint8_t *buf, uint32_t at, uint32_t tag, uint32_t perm, uint32_t id)
{
	const uint32_t v[] = {tag | perm << 16, id};

	for (int i = 0; i < (int)ENTRY_LEN; i++)
		buf[at + (uint32_t)i] = (uint8_t)(v[i / 4] >> (i % 4 * 8));
	return at + ENTRY_LEN;
}

static uint32_t put_named(struct bytes acl, enum acl_kind kind, uint8_t *buf, uint32_t at)
{
	for (uint32_t i = 0; i < acl_n_named(acl); i++) {
		struct acl_entry e = acl_named(acl, i);

		if (e.kind == kind)
			at = put_entry(buf, at, kind == ACL_USER ? TAG_USER : TAG_GROUP, e.perm,
				       e.id);
	}
	return at;
}

uint32_t acl_to_xattr(struct bytes acl, enum acl_which which, uint32_t mode, uint8_t *buf)
{
	struct acl_base b = acl_base(acl);
	uint32_t at = HEAD_LEN;

	if (which == ACL_ACCESS) {
		b.user = mode >> 6 & 7;
		b.mask = mode >> 3 & 7;
		b.other = mode & 7;
		b.has_mask = true;
	}
	memcpy(buf, (const uint8_t[]){XATTR_VERSION, 0, 0, 0}, HEAD_LEN);
	at = put_entry(buf, at, TAG_USER_OBJ, b.user, NO_ID);
	at = put_named(acl, ACL_USER, buf, at);
	at = put_entry(buf, at, TAG_GROUP_OBJ, b.group, NO_ID);
	at = put_named(acl, ACL_GROUP, buf, at);
	if (b.has_mask)
		at = put_entry(buf, at, TAG_MASK, b.mask, NO_ID);
	return put_entry(buf, at, TAG_OTHER, b.other, NO_ID);
}

/* ---- modes ---- */

uint32_t acl_mode(const struct acl_base *b, uint32_t mode)
{
	return (mode & ~0777u) | b->user << 6 | (b->has_mask ? b->mask : b->group) << 3 | b->other;
}

uint32_t acl_inherit(struct bytes dir_default, uint32_t mode, bool *ret_same)
{
	struct acl_base b = acl_base(dir_default);

	/* The requested mode as far as the list allows it; the umask does not apply. */
	*ret_same = b.has_mask;
	return (mode & ~0777u) | (mode & acl_mode(&b, 0));
}
