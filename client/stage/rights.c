#include "client/stage/rights.h"

#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_BACK 64u /* lists of a pool that a new one is compared with */
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

/* Tags ascend; only those with an id come several times, in any order of the ids. */
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

/* Bits that read become bits that read and search. */
static uint32_t as_folder(uint32_t mode)
{
	return (mode & 0444) | (mode & 0444) >> 2;
}

int rights_of_folder(const struct rights *file, struct acl_pool *p, struct rights *ret_rights)
{
	*ret_rights = (struct rights){
		.mode = as_folder(file->mode), .uid = file->uid, .gid = file->gid};
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
