/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/rights.h"

#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_BACK 64u /* lists of a pool that a new list is compared with */
#define TAGS      (ACL_USER_OBJ | ACL_USER | ACL_GROUP_OBJ | ACL_GROUP | ACL_MASK | ACL_OTHER)

struct acl_blob {
	uint32_t len;
	uint8_t bytes[];
};

struct entry {
	uint32_t tag, perm, id;
};

static uint32_t n_entries(size_t len)
{
	return (uint32_t)((len - sizeof(struct posix_acl_xattr_header)) /
			  sizeof(struct posix_acl_xattr_entry));
}

static struct entry entry_at(const uint8_t *acl, uint32_t i)
{
	struct posix_acl_xattr_entry e;
	memcpy(&e, acl + sizeof(struct posix_acl_xattr_header) + i * sizeof(e), sizeof(e));
	return (struct entry){le16toh(e.e_tag), le16toh(e.e_perm), le32toh(e.e_id)};
}

static void set_perm(uint8_t *acl, uint32_t i, uint32_t perm)
{
	struct posix_acl_xattr_entry e;
	uint8_t *at = acl + sizeof(struct posix_acl_xattr_header) + i * sizeof(e);
	memcpy(&e, at, sizeof(e));
	e.e_perm = htole16((uint16_t)perm);
	memcpy(at, &e, sizeof(e));
}

/* Tags must ascend. Only tags with an id may repeat, with ids in any order. */
static bool in_order(const struct entry *before, const struct entry *e)
{
	return e->tag > before->tag ||
	       (e->tag == before->tag && (e->tag == ACL_USER || e->tag == ACL_GROUP));
}

bool rights_acl_is_valid(const void *acl, size_t len)
{
	struct posix_acl_xattr_header h;
	struct entry before = {0};
	uint32_t seen = 0;
	if (len < sizeof(h) || len > RIGHTS_ACL_MAX ||
	    (len - sizeof(h)) % sizeof(struct posix_acl_xattr_entry))
		return false;
	memcpy(&h, acl, sizeof(h));
	if (le32toh(h.a_version) != POSIX_ACL_XATTR_VERSION)
		return false;
	for (uint32_t i = 0; i < n_entries(len); i++) {
		struct entry e = entry_at(acl, i);
		if ((e.tag & ~(uint32_t)TAGS) || e.tag == 0 || (e.tag & (e.tag - 1)) ||
		    e.perm > 7 || !in_order(&before, &e))
			return false;
		if ((e.tag == ACL_USER || e.tag == ACL_GROUP) && e.id == UINT32_MAX)
			return false;
		seen |= e.tag;
		before = e;
	}
	const uint32_t base = ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_OTHER;
	return (seen & base) == base && (!(seen & (ACL_USER | ACL_GROUP)) || (seen & ACL_MASK));
}

bool rights_equal(const struct rights *a, const struct rights *b)
{
	return ((a->mode ^ b->mode) & 07777) == 0 && a->uid == b->uid && a->gid == b->gid &&
	       a->acl_len == b->acl_len &&
	       (a->acl_len == 0 || memcmp(a->acl, b->acl, a->acl_len) == 0);
}

void acl_pool_fini(struct acl_pool *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		free(p->all[i]);
	free(p->all);
	*p = (struct acl_pool){0};
}

static const struct acl_blob *find(const struct acl_pool *p, const void *acl, size_t len)
{
	for (uint32_t i = p->n; i > 0 && p->n - i < LOOK_BACK; i--) {
		const struct acl_blob *b = p->all[i - 1];
		if (b->len == len && memcmp(b->bytes, acl, len) == 0)
			return b;
	}
	return NULL;
}

static const struct acl_blob *add(struct acl_pool *p, const void *acl, size_t len)
{
	if (p->n == p->cap) {
		uint32_t cap = p->cap ? p->cap * 2 : 8;
		struct acl_blob **more =
			cap < 1u << 27 ? realloc(p->all, cap * sizeof(*more)) : NULL;
		if (!more)
			return NULL;
		p->all = more;
		p->cap = cap;
	}
	struct acl_blob *b = malloc(sizeof(*b) + len);
	if (!b)
		return NULL;
	b->len = (uint32_t)len;
	memcpy(b->bytes, acl, len);
	p->all[p->n++] = b;
	return b;
}

int acl_pool_set(struct acl_pool *p, struct rights *r, const void *acl, size_t len)
{
	r->acl = NULL;
	r->acl_len = 0;
	if (len == 0)
		return 0;
	if (!rights_acl_is_valid(acl, len))
		return -LE_CORRUPT;
	const struct acl_blob *b = find(p, acl, len);
	if (!b)
		b = add(p, acl, len);
	if (!b)
		return -LE_NOMEM;
	r->acl = b->bytes;
	r->acl_len = b->len;
	return 0;
}

/* Converts mode bits for reading into bits for reading and searching. */
static uint32_t as_folder(uint32_t mode)
{
	return (mode & 0444) | (mode & 0444) >> 2;
}

int rights_of_folder(const struct rights *file, struct acl_pool *p, struct rights *ret_rights)
{
	*ret_rights =
		(struct rights){.mode = as_folder(file->mode), .uid = file->uid, .gid = file->gid};
	if (!file->acl_len)
		return 0;
	uint8_t *acl = malloc(file->acl_len);
	if (!acl)
		return -LE_NOMEM;
	memcpy(acl, file->acl, file->acl_len);
	for (uint32_t i = 0; i < n_entries(file->acl_len); i++)
		set_perm(acl, i, as_folder(entry_at(acl, i).perm) & 7);
	int rc = acl_pool_set(p, ret_rights, acl, file->acl_len);
	free(acl);
	return rc;
}

/* ---- lists with the mask applied ---- */

/* Entries of a list, without a mask: it has been applied. The first entry is the owner's, the
 * last that of others. */
struct list {
	uint32_t uid, gid, n;
	struct entry *e;
};

static int list_open(const struct rights *r, struct list *ret_list)
{
	uint32_t n = r->acl_len ? n_entries(r->acl_len) : 3, mask = 7;
	struct list l = {r->uid, r->gid, 0, malloc((size_t)n * sizeof(*l.e))};
	if (!l.e)
		return -LE_NOMEM;
	if (!r->acl_len) {
		l.e[0] = (struct entry){ACL_USER_OBJ, r->mode >> 6 & 7, 0};
		l.e[1] = (struct entry){ACL_GROUP_OBJ, r->mode >> 3 & 7, 0};
		l.e[2] = (struct entry){ACL_OTHER, r->mode & 7, 0};
		l.n = 3;
	}
	for (uint32_t i = 0; r->acl_len && i < n; i++) {
		struct entry e = entry_at(r->acl, i);
		if (e.tag == ACL_MASK)
			mask = e.perm;
		else
			l.e[l.n++] = e;
	}
	for (uint32_t i = 0; i < l.n; i++)
		if (l.e[i].tag != ACL_USER_OBJ && l.e[i].tag != ACL_OTHER)
			l.e[i].perm &= mask;
	*ret_list = l;
	return 0;
}

/* Return the bits that all entries with these tags have, or that any of them has. */
static uint32_t all_of(const struct list *l, uint32_t tags)
{
	uint32_t perm = 7;
	for (uint32_t i = 0; i < l->n; i++)
		if (l->e[i].tag & tags)
			perm &= l->e[i].perm;
	return perm;
}

static uint32_t any_of(const struct list *l, uint32_t tags)
{
	uint32_t perm = 0;
	for (uint32_t i = 0; i < l->n; i++)
		if (l->e[i].tag & tags)
			perm |= l->e[i].perm;
	return perm;
}

static const struct entry *entry_of(const struct list *l, uint32_t tag, uint32_t id)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->e[i].tag == tag && l->e[i].id == id)
			return &l->e[i];
	return NULL;
}

/* Returns the bits that a user, each member of a group or each user has, whatever other groups
 * they are in. */
static uint32_t sure_bits(const struct list *l, enum rights_who who, uint32_t id)
{
	const uint32_t groups = ACL_GROUP_OBJ | ACL_GROUP;
	const uint32_t outside = all_of(l, groups | ACL_OTHER);
	const struct entry *e;
	if (who == RIGHTS_USER) {
		e = entry_of(l, ACL_USER, id);
		return id == 0 ? 7 : id == l->uid ? l->e[0].perm : e ? e->perm : outside;
	}
	/* A member may be the owner, or a named user. User 0 has all rights. */
	uint32_t users = all_of(l, ACL_USER) & (l->uid ? l->e[0].perm : 7);
	if (who == RIGHTS_ALL)
		return users & outside;
	uint32_t group = id == l->gid ? any_of(l, ACL_GROUP_OBJ) : 0;
	e = entry_of(l, ACL_GROUP, id);
	return users & (group | (e ? e->perm : 0) | outside);
}

bool rights_surely(const struct rights *r, enum rights_who who, uint32_t id, uint32_t bits)
{
	struct list l;
	if (list_open(r, &l) < 0)
		return false;
	bool sure = (sure_bits(&l, who, id) & bits) == bits;
	free(l.e);
	return sure;
}

void audience_add(struct audience *a, const struct rights *r, uint32_t bits)
{
	a->user = a->user && rights_surely(r, RIGHTS_USER, a->uid, bits);
	a->group = a->group && rights_surely(r, RIGHTS_GROUP, a->gid, bits);
	a->all = a->all && rights_surely(r, RIGHTS_ALL, 0, bits);
}

/* ---- narrowing ---- */

/* True if all users have the same rights. */
static bool is_uniform(const struct list *l)
{
	return all_of(l, TAGS) == any_of(l, TAGS);
}

/* For a uniform list: users that may search the gate keep their rights. */
static int take_shape(struct list *l, const struct list *gate)
{
	uint32_t perm = l->e[0].perm;
	struct entry *e = malloc(gate->n * sizeof(*e));
	if (!e)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < gate->n; i++) {
		e[i] = gate->e[i];
		e[i].perm = e[i].perm & 1 ? perm : 0;
	}
	free(l->e);
	*l = (struct list){gate->uid, gate->gid, gate->n, e};
	return 0;
}

/* Clears each entry with users that may fail to pass the gate. The entry of a named user that
 * may fail is removed if the user's groups then grant no more rights than the entry did. */
static void take_out(struct list *l, const struct list *gate)
{
	const uint32_t below = any_of(l, ACL_GROUP_OBJ | ACL_GROUP | ACL_OTHER);
	bool owner = sure_bits(gate, RIGHTS_USER, l->uid) & 1;
	uint32_t n = 0, any = any_of(l, TAGS & ~(uint32_t)ACL_USER_OBJ);
	for (uint32_t i = 0; i < l->n; i++) {
		struct entry e = l->e[i];
		if (e.tag == ACL_USER && !(sure_bits(gate, RIGHTS_USER, e.id) & 1)) {
			if ((e.perm & below) == below)
				continue;
			e.perm = 0;
		}
		uint32_t id = e.tag == ACL_GROUP_OBJ ? l->gid : e.id;
		if ((e.tag & (ACL_GROUP_OBJ | ACL_GROUP)) &&
		    !(sure_bits(gate, RIGHTS_GROUP, id) & 1))
			e.perm = 0;
		if (e.tag == ACL_OTHER)
			e.perm = 0; /* some users may not pass */
		l->e[n++] = e;
	}
	l->n = n;
	if (!owner && (l->e[0].perm & any) == any)
		l->uid = 0;
	else if (!owner)
		l->e[0].perm = 0;
}

static int through_gate(struct list *l, const struct rights *gate)
{
	struct list g;
	TRY(list_open(gate, &g));
	int rc = 0;
	if (is_uniform(l))
		rc = take_shape(l, &g);
	else
		take_out(l, &g);
	free(g.e);
	return rc;
}

static int list_encode(const struct list *l, struct acl_pool *p, struct rights *ret_rights)
{
	const uint32_t named = ACL_USER | ACL_GROUP, classes = named | ACL_GROUP_OBJ;
	struct rights r = {.uid = l->uid, .gid = l->gid};
	/* With an empty mask the kernel ignores the list, and treats the named users and groups
	 * as others. */
	uint32_t mask = any_of(l, classes);
	bool list = false;
	for (uint32_t i = 0; i < l->n; i++)
		list = list || (l->e[i].tag & named);
	if (list)
		mask |= l->e[l->n - 1].perm;
	r.mode = l->e[0].perm << 6 | mask << 3 | l->e[l->n - 1].perm;
	*ret_rights = r;
	if (!list)
		return 0;
	size_t len = sizeof(struct posix_acl_xattr_header) +
		     (l->n + 1) * sizeof(struct posix_acl_xattr_entry);
	uint8_t *acl = malloc(len);
	if (!acl)
		return -LE_NOMEM;
	struct posix_acl_xattr_header h = {htole32(POSIX_ACL_XATTR_VERSION)};
	memcpy(acl, &h, sizeof(h));
	for (uint32_t i = 0; i <= l->n; i++) {
		/* The mask comes before the last entry. */
		struct entry e = i + 1 < l->n    ? l->e[i]
				 : i + 1 == l->n ? (struct entry){ACL_MASK, mask, UINT32_MAX}
						 : l->e[l->n - 1];
		struct posix_acl_xattr_entry x = {htole16((uint16_t)e.tag),
						  htole16((uint16_t)e.perm),
						  htole32(e.tag & named ? e.id : UINT32_MAX)};
		memcpy(acl + sizeof(h) + i * sizeof(x), &x, sizeof(x));
	}
	int rc = acl_pool_set(p, ret_rights, acl, len);
	free(acl);
	return rc;
}

int audience_rights(const struct audience *a, uint32_t owner, uint32_t bits, struct acl_pool *p,
		    struct rights *ret_rights)
{
	struct entry e[4] = {{ACL_USER_OBJ, bits | 2, 0}};
	struct list l = {owner, a->group ? a->gid : 0, 1, e};
	if (a->user && !a->all && a->uid != owner && a->uid != 0)
		e[l.n++] = (struct entry){ACL_USER, bits, a->uid};
	e[l.n++] = (struct entry){ACL_GROUP_OBJ, a->group || a->all ? bits : 0, 0};
	e[l.n++] = (struct entry){ACL_OTHER, a->all ? bits : 0, 0};
	return list_encode(&l, p, ret_rights);
}

int rights_conjunction(const struct rights *r, const struct rights *gates, uint32_t n,
		       struct acl_pool *p, struct rights *ret_rights)
{
	struct list l;
	bool narrowed = false;
	TRY(list_open(r, &l));
	int rc = 0;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		if (rights_surely(&gates[i], RIGHTS_ALL, 0, 1))
			continue;
		for (uint32_t k = 0; k < l.n && !narrowed; k++)
			l.e[k].perm &= 5;
		narrowed = true;
		rc = through_gate(&l, &gates[i]);
	}
	if (rc == 0 && narrowed)
		rc = list_encode(&l, p, ret_rights);
	else if (rc == 0) {
		struct rights same = *r;
		rc = acl_pool_set(p, &same, r->acl, r->acl_len);
		*ret_rights = same;
	}
	free(l.e);
	return rc;
}

struct rights rights_without_acl(const struct rights *r)
{
	struct rights bare = {.mode = r->mode & 07777, .uid = r->uid, .gid = r->gid};
	struct list l;
	if (!r->acl_len)
		return bare;
	bare.mode &= 07700;
	if (list_open(r, &l) < 0)
		return bare;
	bare.mode |= (sure_bits(&l, RIGHTS_GROUP, r->gid) << 3) | sure_bits(&l, RIGHTS_ALL, 0);
	free(l.e);
	return bare;
}
