/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/store/acl.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "mds/store/store.h"

#define FLAG_MASK 1u

struct acl {
	struct hmap_node node;
	uint32_t refs, len;
	uint8_t data[];
};

uint32_t acl_get_le(const uint8_t *p, int n)
{
	uint32_t v = 0;

	for (int i = n - 1; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

static void put_le(uint8_t *p, uint32_t v, int n)
{
	for (int i = 0; i < n; i++, v >>= 8)
		p[i] = (uint8_t)v;
}

struct acl_entry acl_named(struct bytes acl, uint32_t i)
{
	const uint8_t *p = (const uint8_t *)acl.data + ACL_HEAD_LEN + (size_t)i * ACL_ENTRY_LEN;

	return (struct acl_entry){(enum acl_kind)(p[0] >> 3), p[0] & 7u, acl_get_le(p + 1, 4)};
}

struct acl_base acl_base(struct bytes acl)
{
	const uint8_t *p = acl.data;
	uint32_t bits = acl_get_le(p + 1, 2);

	return (struct acl_base){
		.has_mask = (p[0] & FLAG_MASK) != 0,
		.user = bits >> 6 & 7,
		.group = bits >> 3 & 7,
		.mask = bits >> 9 & 7,
		.other = bits & 7,
	};
}

void acl_begin(uint8_t *buf, const struct acl_base *b, uint32_t *ret_len)
{
	buf[0] = b->has_mask ? FLAG_MASK : 0;
	put_le(buf + 1, b->mask << 9 | b->user << 6 | b->group << 3 | b->other, 2);
	*ret_len = ACL_HEAD_LEN;
}

void acl_add(uint8_t *buf, const struct acl_entry *e, uint32_t *len)
{
	ASSERT(*len + ACL_ENTRY_LEN <= ACL_LEN_MAX);
	buf[*len] = (uint8_t)((uint32_t)e->kind << 3 | e->perm);
	put_le(buf + *len + 1, e->id, 4);
	*len += ACL_ENTRY_LEN;
}

int acl_check(struct bytes acl)
{
	const uint8_t *p = acl.data;

	if (acl.len == 0)
		return 0;
	if (acl.len < ACL_HEAD_LEN || acl.len > ACL_LEN_MAX ||
	    (acl.len - ACL_HEAD_LEN) % ACL_ENTRY_LEN != 0 || p[0] > FLAG_MASK || p[2] >= 16)
		return -LE_CORRUPT_STORE;
	if (acl_n_named(acl) > 0 && p[0] == 0)
		return -LE_CORRUPT_STORE;
	for (uint32_t i = 0; i < acl_n_named(acl); i++) {
		struct acl_entry e = acl_named(acl, i);

		if (e.kind != ACL_USER && e.kind != ACL_GROUP)
			return -LE_CORRUPT_STORE;
	}
	return 0;
}

/* ---- interning ---- */

static struct acl *acl_of(struct bytes b)
{
	return (struct acl *)((uintptr_t)b.data - offsetof(struct acl, data));
}

struct bytes acl_intern(struct store *s, struct bytes b)
{
	uint64_t hash = checksum64(b.data, b.len);
	struct hmap_node *n;
	struct acl *a;

	if (b.len == 0)
		return bytes_of(NULL, 0);
	for (n = hmap_find(&s->acls, hash); n != NULL; n = hmap_find_next(n)) {
		a = container_of(n, struct acl, node);
		if (a->len == b.len && memcmp(a->data, b.data, b.len) == 0) {
			a->refs++;
			return bytes_of(a->data, a->len);
		}
	}
	a = malloc(sizeof(*a) + b.len);
	if (a == NULL)
		return bytes_of(NULL, b.len);
	a->refs = 1;
	a->len = b.len;
	memcpy(a->data, b.data, b.len);
	hmap_insert(&s->acls, &a->node, hash);
	s->mem += sizeof(*a) + a->len;
	return bytes_of(a->data, a->len);
}

void acl_ref(struct bytes b)
{
	if (b.len > 0)
		acl_of(b)->refs++;
}

void acl_unref(struct store *s, struct bytes b)
{
	struct acl *a;

	if (b.len == 0)
		return;
	a = acl_of(b);
	ASSERT(a->refs > 0);
	if (--a->refs > 0)
		return;
	acl_forget(s, &a->node);
}

void acl_forget(struct store *s, struct hmap_node *n)
{
	struct acl *a = container_of(n, struct acl, node);

	s->mem -= sizeof(*a) + a->len;
	hmap_remove(&s->acls, n);
	free(a);
}

void acl_replace(struct store *s, struct bytes *of, struct bytes acl)
{
	acl_ref(acl);
	acl_unref(s, *of);
	*of = acl;
}
