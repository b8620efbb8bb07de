/*
 * POSIX access control lists as inode records keep them. A list of bytes:
 *
 *   u8 flags (ACL_MASK: it has a mask)   u16 base permissions, as in a mode, and the mask above
 * them then for each named user and group:  u8 kind << 3 | permissions, u32 id
 *
 * Of a file's access list the owner's, others' and the mask's permissions are those of its mode
 * (the group bits are the mask), so that chmod need not touch the list: only the owning group's and
 * the named ones are taken from here. A list that says no more than a mode is not kept at all. A
 * file made below a default list therefore shares the bytes of its directory's.
 *
 * In memory each list is there once, counted, and never changed. Owned by the store's loop.
 */
#ifndef LEAT_MDS_STORE_ACL_H
#define LEAT_MDS_STORE_ACL_H

#include <stdbool.h>

#include "common/proto/types.h"

/* What an extended attribute of a page holds: the four base entries and 507 named ones. */
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
/* The base entries; group is the owning group's. */
struct acl_base {
	bool has_mask;
	uint32_t user, group, mask, other;
};

struct store;

/* Of bytes that acl_check has passed. */
static inline uint32_t acl_n_named(struct bytes acl)
{
	return acl.len < ACL_HEAD_LEN ? 0 : (acl.len - ACL_HEAD_LEN) / ACL_ENTRY_LEN;
}
struct acl_entry acl_named(struct bytes acl, uint32_t i);
struct acl_base acl_base(struct bytes acl);
/* buf of ACL_LEN_MAX bytes: begins one, adds to it; *len tells how long it is. */
void acl_begin(uint8_t *buf, const struct acl_base *base, uint32_t *ret_len);
void acl_add(uint8_t *buf, const struct acl_entry *e, uint32_t *len);
/* Is it well-formed (or empty: none)? -LE_CORRUPT_STORE */
int acl_check(struct bytes acl) CHECK_RESULT;

/* The one copy in memory, with a reference; data NULL without memory. Empty stays empty. */
struct bytes acl_intern(struct store *s, struct bytes acl);
/* Of interned ones; nothing for empty ones. */
void acl_ref(struct bytes acl);
void acl_unref(struct store *s, struct bytes acl);
/* The store closes: whoever still has references has them no more. */
struct hmap_node;
void acl_forget(struct store *s, struct hmap_node *n);
/* A record's list becomes another, interned one. */
void acl_replace(struct store *s, struct bytes *of, struct bytes acl);

#endif
