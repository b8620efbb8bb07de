/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights: which users may read, write, search or run a file, by its mode, owner, group and access
 * list. Manifests store them and copies get them. Pure functions; a pool of access lists belongs to
 * one owner (a scan, a manifest).
 */
#ifndef LEAT_CLIENT_DATASET_RIGHTS_H
#define LEAT_CLIENT_DATASET_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Limit for the bytes of system.posix_acl_access. */
#define RIGHTS_ACL_MAX 65536u

/* mode: the 07777 bits. With an access list the bits of the group are its mask. */
struct rights {
	uint32_t mode, uid, gid;
	const uint8_t *acl; /* owned by a pool, in the form of linux/posix_acl_xattr.h; NULL:
			     * none */
	uint32_t acl_len;
};

/* True if the kernel accepts the access list: version, length, order of the entries
 * (posix_acl_valid), no bits but rwx. */
bool rights_acl_is_valid(const void *acl, size_t len);
/* True if mode, owner, group and list are equal. Ignores mode bits that are no rights. */
bool rights_equal(const struct rights *a, const struct rights *b);

/* Access lists. Equal lists are stored once, if few differ. A zeroed pool is empty. */
struct acl_pool {
	struct acl_blob **all;
	uint32_t n, cap;
};
void acl_pool_fini(struct acl_pool *p);
/* Sets r->acl to a copy of the list that lives as long as the pool; len 0: to none. -LE_CORRUPT
 * unless rights_acl_is_valid; -LE_NOMEM. */
int acl_pool_set(struct acl_pool *p, struct rights *r, const void *acl, size_t len) CHECK_RESULT;
/* ---- queries ---- */
enum rights_who {
	RIGHTS_USER,  /* the user with this id, in any groups */
	RIGHTS_GROUP, /* each member of the group with this id */
	RIGHTS_ALL    /* each user; the id is ignored */
};
/* True if they may do all of `bits` (4 read, 2 write, 1 search) by these rights alone. User 0
 * may. False if that depends on further groups of a user. */
bool rights_surely(const struct rights *r, enum rights_who who, uint32_t id, uint32_t bits);

/* The users that may certainly read each of many files, and therefore their manifest. */
struct audience {
	uint32_t uid, gid; /* the user and the group to consider */
	bool user, group, all;
};
static inline struct audience audience_of(uint32_t uid, uint32_t gid)
{
	return (struct audience){uid, gid, true, true, true};
}
/* Removes the users that may not do `bits` with r. */
void audience_add(struct audience *a, const struct rights *r, uint32_t bits);
/* Returns the rights of a file or folder that `owner` may change, that the audience may use by
 * `bits` (4: file, 5: folder), and that no other user may use. -LE_NOMEM */
int audience_rights(const struct audience *a, uint32_t owner, uint32_t bits, struct acl_pool *p,
		    struct rights *ret_rights) CHECK_RESULT;

/* ---- narrowing ---- */
/* Returns rights for the users that have *r and may search all of the n gates. If no access list
 * can express that, fewer users get them, never more. If anything is narrowed, no user may
 * write, and there are no special bits. -LE_NOMEM */
int rights_conjunction(const struct rights *r, const struct rights *gates, uint32_t n,
		       struct acl_pool *p, struct rights *ret_rights) CHECK_RESULT;
/* Returns rights without an access list, for a file system that has none: perhaps for fewer
 * users, never for more. */
struct rights rights_without_acl(const struct rights *r);
/* Returns the rights of a folder made from a file, such as an archive: users that may read the
 * file may read and search the folder; no user may change it. -LE_NOMEM */
int rights_of_folder(const struct rights *file, struct acl_pool *p,
		     struct rights *ret_rights) CHECK_RESULT;

#endif
