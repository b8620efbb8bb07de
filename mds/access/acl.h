/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSIX access control lists: conversion between the form of programs and the kernel (the extended
 * attributes system.posix_acl_access and system.posix_acl_default, linux/posix_acl_xattr.h) and the
 * form of store/acl.h; modes that follow from a list; what new files inherit. Pure functions, none
 * yields.
 */
#ifndef LEAT_MDS_ACCESS_ACL_H
#define LEAT_MDS_ACCESS_ACL_H

#include "mds/store/acl.h"
#include "mds/store/records.h"

enum acl_which {
	ACL_NONE = 0, /* not the name of a list */
	ACL_ACCESS,
	ACL_DEFAULT
};
/* Which list an extended attribute of that name is. */
enum acl_which acl_which(struct bytes xattr_name);

#define ACL_XATTR_MAX (4u + (ACL_NAMED_MAX + 4u) * 8u)

/* Converts the value of an attribute: buf gets the list for the store (*ret_len 0: the value has no
 * entries, so the list is removed), *ret_base the base entries. Returns 0, -LE_INVAL, -LE_2BIG, or
 * -LE_NOTSUP for an unknown version. */
int acl_from_xattr(struct bytes value, uint8_t buf[ACL_LEN_MAX], uint32_t *ret_len,
		   struct acl_base *ret_base) CHECK_RESULT;
/* Converts a list into the value of an attribute in buf, which has ACL_XATTR_MAX bytes. mode: of
 * the file, for its access list; not used for ACL_DEFAULT. Returns the length. */
uint32_t acl_to_xattr(struct bytes acl, enum acl_which which, uint32_t mode, uint8_t *buf);
/* True if a list has no entries beyond those that the mode expresses. */
static inline bool acl_is_mode(const struct acl_base *base, uint32_t len)
{
	return !base->has_mask && len == ACL_HEAD_LEN;
}
/* Returns mode with the permissions of an access list. The bits of the group are the mask, if the
 * list has one. */
uint32_t acl_mode(const struct acl_base *base, uint32_t mode);
/* Returns the mode of an inode that is made, with the requested mode, in a directory with that
 * default list. *ret_same: its access list is the default list of the directory; otherwise it has
 * none. */
uint32_t acl_inherit(struct bytes dir_default, uint32_t mode, bool *ret_same);

#endif
