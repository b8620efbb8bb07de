/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX permission rules; see perm.h. */
#include "mds/access/perm.h"

#include <sys/stat.h>

#include "mds/store/acl.h"

static bool trusted(const struct cred *c)
{
	return c->uid == 0 || (c->flags & CRED_CHECKED) != 0;
}

/*
 * The rules of acl(5): the owner's entry, else the caller's own one, else those of any of the
 * caller's groups that grants all, else the others'; all but the first and the last are limited by
 * the mask, which is the mode's group bits.
 */
static int access_by_list(const struct cred *c, const struct inode_rec *rec, uint32_t want)
{
	uint32_t n = acl_n_named(rec->acl), mode = rec->attr.mode, mask = mode >> 3 & 7;
	bool in_group = cred_in_group(c, rec->attr.gid);
	bool granted = in_group && (acl_base(rec->acl).group & want) == want;

	if (c->uid == rec->attr.uid)
		return (mode >> 6 & want) == want ? 0 : -LE_ACCES;
	for (uint32_t i = 0; i < n; i++) {
		struct acl_entry e = acl_named(rec->acl, i);

		if (e.kind == ACL_USER && e.id == c->uid)
			return (e.perm & mask & want) == want ? 0 : -LE_ACCES;
		if (e.kind == ACL_GROUP && cred_in_group(c, e.id)) {
			in_group = true;
			granted |= (e.perm & want) == want;
		}
	}
	if (in_group)
		return granted && (mask & want) == want ? 0 : -LE_ACCES;
	return (mode & want) == want ? 0 : -LE_ACCES;
}

int perm_access(const struct cred *c, const struct inode_rec *rec, uint32_t mask)
{
	const struct attr *a = &rec->attr;

	if ((mask & PERM_W) != 0 && (a->flags & ATTR_IMMUTABLE) != 0)
		return -LE_PERM;
	if ((c->flags & CRED_CHECKED) != 0)
		return 0;
	if (c->uid == 0) {
		/* even root may execute a file only if its mode has an execute bit */
		if ((mask & PERM_X) != 0 && !S_ISDIR(a->mode) && (a->mode & 0111) == 0)
			return -LE_ACCES;
		return 0;
	}
	/* Like Linux, ignore a list whose mask is empty. */
	if (rec->acl.len > 0 && (a->mode & 0070) != 0)
		return access_by_list(c, rec, mask);
	return cred_mode_allows(c, a, mask) ? 0 : -LE_ACCES;
}

int perm_fixed(const struct attr *a)
{
	return (a->flags & (ATTR_IMMUTABLE | ATTR_APPEND)) != 0 ? -LE_PERM : 0;
}

int perm_remove(const struct cred *c, const struct attr *dir, const struct attr *victim)
{
	TRY(perm_fixed(dir));
	TRY(perm_fixed(victim));
	if ((dir->mode & S_ISVTX) == 0 || trusted(c))
		return 0;
	return c->uid == dir->uid || c->uid == victim->uid ? 0 : -LE_PERM;
}

int perm_sealed_name(const struct cred *c, const struct attr *a)
{
	return (a->flags & ATTR_SEALED) != 0 && c->uid != 0 ? -LE_PERM : 0;
}

int perm_owner(const struct cred *c, const struct attr *a)
{
	return trusted(c) || c->uid == a->uid ? 0 : -LE_PERM;
}

int perm_write(const struct cred *c, const struct inode_rec *rec, bool writes)
{
	if (writes && c->uid == rec->attr.uid && (rec->attr.flags & ATTR_IMMUTABLE) == 0)
		return 0;
	return perm_access(c, rec, PERM_W);
}

int perm_setattr(const struct cred *c, const struct inode_rec *rec, uint32_t mask,
		 const struct attr *new, bool writes)
{
	const struct attr *a = &rec->attr;
	uint32_t flags = (mask & SET_FLAGS) != 0 ? a->flags ^ new->flags : 0;

	if ((mask &
	     (SET_MODE | SET_UID | SET_GID | SET_ATIME | SET_MTIME | SET_SIZE | SET_SEALED)) != 0)
		TRY(perm_fixed(a));
	if ((mask & (SET_ATIME_NOW | SET_MTIME_NOW)) != 0 && (a->flags & ATTR_IMMUTABLE) != 0)
		return -LE_PERM;
	/* While an inode stays immutable, its other flags cannot change. */
	if ((flags & ATTR_SETTABLE) != 0 && (a->flags & new->flags & ATTR_IMMUTABLE) != 0)
		return -LE_PERM;
	if (trusted(c))
		return 0;
	if ((mask & SET_FLAGS) != 0 &&
	    (c->uid != a->uid || (flags & (ATTR_IMMUTABLE | ATTR_APPEND)) != 0))
		return -LE_PERM;
	if ((mask & SET_UID) != 0 && new->uid != a->uid)
		return -LE_PERM;
	if ((mask & SET_UID) != 0 && c->uid != a->uid)
		return -LE_PERM;
	if ((mask & SET_GID) != 0 &&
	    (c->uid != a->uid || (new->gid != a->gid && !cred_in_group(c, new->gid))))
		return -LE_PERM;
	if ((mask & (SET_MODE | SET_ATIME | SET_MTIME | SET_CTIME | SET_SEALED)) != 0 &&
	    c->uid != a->uid)
		return -LE_PERM;
	/* Removing setuid or capabilities, as a write does, or setting nothing, which is a
	 * change all the same, needs permission to write. */
	if ((mask & ~(uint32_t)(SET_KILL_SUID | SET_KILL_CAPS)) == 0 && c->uid != a->uid && !writes)
		TRY(perm_access(c, rec, PERM_W));
	/* Permission to write is enough to set a time to "now". */
	if ((mask & (SET_ATIME_NOW | SET_MTIME_NOW)) != 0 && c->uid != a->uid)
		TRY(perm_access(c, rec, PERM_W));
	if ((mask & SET_SIZE) != 0)
		TRY(perm_write(c, rec, writes));
	return 0;
}

void perm_new(const struct cred *c, const struct attr *dir, uint32_t *mode, uint32_t *ret_gid)
{
	*ret_gid = c->gid;
	if ((dir->mode & S_ISGID) != 0) {
		*ret_gid = dir->gid;
		if (S_ISDIR(*mode))
			*mode |= S_ISGID;
		else if ((*mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && !trusted(c) &&
			 !cred_in_group(c, dir->gid))
			*mode &= ~(uint32_t)S_ISGID;
	}
}

uint32_t perm_kill_suid(uint32_t mode)
{
	mode &= ~(uint32_t)S_ISUID;
	if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		mode &= ~(uint32_t)S_ISGID;
	return mode;
}
