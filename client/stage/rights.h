/*
 * Rights: who may read, write, search or run something, as its mode, owner, group and access list
 * say. How manifests keep them and copies get them. Pure functions; a pool of access lists belongs
 * to one owner (a scan, a manifest).
 */
#ifndef LEAT_STAGE_RIGHTS_H
#define LEAT_STAGE_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* The bytes of system.posix_acl_access, at most. */
#define RIGHTS_ACL_MAX 65536u

/* mode: the 07777 bits; those of the group are the mask where there is an access list. */
struct rights {
	uint32_t mode, uid, gid;
	const uint8_t *acl; /* a pool's, as linux/posix_acl_xattr.h has it; NULL: none */
	uint32_t acl_len;
};

/* Version, length, entries in the order of the kernel (posix_acl_valid), no bits but rwx. */
bool rights_acl_is_valid(const void *acl, size_t len);
/* All but the bytes of the mode that are no rights. */
bool rights_equal(const struct rights *a, const struct rights *b);

/* Access lists, each one once as long as few differ. Zeroed is empty. */
struct acl_pool {
	struct acl_blob **all;
	uint32_t n, cap;
};
void acl_pool_fini(struct acl_pool *p);
/* r->acl becomes a copy of it that lives as long as the pool; len 0: none. -LE_CORRUPT unless
 * rights_acl_is_valid. */
int acl_pool_set(struct acl_pool *p, struct rights *r, const void *acl, size_t len) CHECK_RESULT;
/* ---- questions ---- */
enum rights_who {
	RIGHTS_USER,  /* the user of this id, whatever groups he is in */
	RIGHTS_GROUP, /* each member of the group of this id, whoever he is */
	RIGHTS_ALL    /* each user; the id counts for nothing */
};
/* May they, by what is written there alone, do all of bits (4 read, 2 write, 1 search)? User 0 may.
 * Where it depends on groups that are not told, no. */
bool rights_surely(const struct rights *r, enum rights_who who, uint32_t id, uint32_t bits);

/* Who may see what tells of many files: those who surely may read each of them. */
struct audience {
	uint32_t uid, gid; /* the users and the group that are asked for */
	bool user, group, all;
};
static inline struct audience audience_of(uint32_t uid, uint32_t gid)
{
	return (struct audience){uid, gid, true, true, true};
}
/* They must be able to do this, too. */
void audience_add(struct audience *a, const struct rights *r, uint32_t bits);
/* Of something of `owner` that he may change, and they may do `bits` with, nobody else anything: 4
 * of a file, 5 of a folder. */
int audience_rights(const struct audience *a, uint32_t owner, uint32_t bits, struct acl_pool *p,
		    struct rights *ret_rights) CHECK_RESULT;

/* ---- narrower ones ---- */
/* Who may do something by *ret_rights is who may do it by *r and search all of the n gates. Where
 * no list can say that, fewer may; never more. Once something is narrowed nobody may write, and
 * there are no special bits. */
int rights_conjunction(const struct rights *r, const struct rights *gates, uint32_t n,
		       struct acl_pool *p, struct rights *ret_rights) CHECK_RESULT;
/* The same without an access list, for a place that has none: perhaps fewer may, never more. */
struct rights rights_without_acl(const struct rights *r);
/* Of a folder that stands for a file, such as an archive: who may read the one may read and search
 * the other, nobody may change it. */
int rights_of_folder(const struct rights *file, struct acl_pool *p,
		     struct rights *ret_rights) CHECK_RESULT;

#endif
