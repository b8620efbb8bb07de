/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSIX access control lists as inode records store them. A list is a string of bytes:
 *
 *   u8 flags (1: it has a mask)   u16 permissions: the base ones as in a mode, the mask above them
 *   then for each named user and group:   u8 kind << 3 | permissions, u32 id
 *
 * In a file's access list the permissions of the owner, of others and of the mask are those of the
 * file's mode (the group bits are the mask), so chmod need not change the list. Only those of the
 * owning group and the named entries are taken from the list. A list that is equivalent to a mode
 * is not stored. So a file created below a default list shares the bytes of the list of its
 * directory.
 *
 * In memory each list exists once, with a reference count, and is never changed. Owned by the
 * store's loop.
 */
#ifndef LEAT_MDS_STORE_ACL_H
#define LEAT_MDS_STORE_ACL_H

#include <stdbool.h>

#include "common/proto/types.h"

/* Limited by an extended attribute of one page: it holds the four base entries and 507 named
 * ones. */
#define ACL_NAMED_MAX 507u
#define ACL_HEAD_LEN  3u
#define ACL_ENTRY_LEN 5u
#define ACL_LEN_MAX   (ACL_HEAD_LEN + ACL_NAMED_MAX * ACL_ENTRY_LEN)

enum acl_kind {
	ACL_USER = 1,
	ACL_GROUP = 2
};
struct acl_entry {
	enum acl_kind kind;
	uint32_t perm, id;
};
/* The base entries; group is that of the owning group. */
struct acl_base {
	bool has_mask;
	uint32_t user, group, mask, other;
};

struct store;

/* Returns a little-endian number of n bytes. */
uint32_t acl_get_le(const uint8_t *p, int n);
/* These three need bytes that acl_check has accepted. */
static inline uint32_t acl_n_named(struct bytes acl)
{
	return acl.len < ACL_HEAD_LEN ? 0 : (acl.len - ACL_HEAD_LEN) / ACL_ENTRY_LEN;
}
struct acl_entry acl_named(struct bytes acl, uint32_t i);
struct acl_base acl_base(struct bytes acl);
/* Build a list in buf, which has ACL_LEN_MAX bytes: acl_begin writes the base entries, acl_add
 * appends a named one. *len is the length so far. */
void acl_begin(uint8_t *buf, const struct acl_base *base, uint32_t *ret_len);
void acl_add(uint8_t *buf, const struct acl_entry *e, uint32_t *len);
/* Returns 0 if the list is well-formed or empty (no list), else -LE_CORRUPT_STORE. */
int acl_check(struct bytes acl) CHECK_RESULT;

/* Returns the one copy in memory of these bytes, with a reference. Without memory its data is NULL.
 * Empty stays empty. Also used for other shared bytes of a record (inode_rec.prepared). */
struct bytes acl_intern(struct store *s, struct bytes acl);
/* For interned bytes; no effect on empty ones. */
void acl_ref(struct bytes acl);
void acl_unref(struct store *s, struct bytes acl);
/* Frees an interned copy whatever references it has. For store_close. */
struct hmap_node;
void acl_forget(struct store *s, struct hmap_node *n);
/* Replaces a record's bytes *of by other interned ones and moves the references. */
void acl_replace(struct store *s, struct bytes *of, struct bytes acl);

#endif
