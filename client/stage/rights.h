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
/* Of a folder that stands for a file, such as an archive: who may read the one may read and search
 * the other, nobody may change it. */
int rights_of_folder(const struct rights *file, struct acl_pool *p,
		     struct rights *ret_rights) CHECK_RESULT;

#endif
