/*
 * POSIX access control lists: the form that programs and the kernel know (the extended attributes
 * system.posix_acl_access and system.posix_acl_default, linux/posix_acl_xattr.h) and the one of
 * store/acl.h; who may do what by them, and what new files inherit. Pure functions.
 */
#ifndef LEAT_MDS_ACL_H
#define LEAT_MDS_ACL_H

#include "mds/store/acl.h"
#include "mds/store/records.h"

enum acl_which {
	ACL_NONE = 0, /* not the name of a list */
	ACL_ACCESS,
	ACL_DEFAULT
};
enum acl_which acl_which(struct bytes xattr_name);

#define ACL_XATTR_MAX (4u + (ACL_NAMED_MAX + 4u) * 8u)

/* What an attribute's value says: buf gets the list for the store (*ret_len 0: the value says
 * nothing or has no entries, so the list goes), *ret_base the base entries. -LE_INVAL, -LE_2BIG,
 * -LE_NOTSUP (version). */
int acl_from_xattr(struct bytes value, uint8_t buf[ACL_LEN_MAX], uint32_t *ret_len,
		   struct acl_base *ret_base) CHECK_RESULT;
/* The other way; mode: of the file, for its access list (ACL_DEFAULT: not looked at). buf of
 * ACL_XATTR_MAX bytes: returns the length. */
uint32_t acl_to_xattr(struct bytes acl, enum acl_which which, uint32_t mode, uint8_t *buf);
/* The base entries say all that there is to say. */
static inline bool acl_is_mode(const struct acl_base *base, uint32_t len)
{
	return !base->has_mask && len == ACL_HEAD_LEN;
}
/* mode with the permissions of an access list: the group's bits are the mask, if there is one. */
uint32_t acl_mode(const struct acl_base *base, uint32_t mode);
/* The mode of what is made with the requested mode in a directory with that default list;
 * *ret_same: the new file's access list is the directory's default one, else it has none. */
uint32_t acl_inherit(struct bytes dir_default, uint32_t mode, bool *ret_same);

#endif
