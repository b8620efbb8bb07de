/*
 * Who may do what to an inode: POSIX mode bits and access lists with supplementary groups, sticky
 * and setgid rules.
 * With CRED_CHECKED a trusted kernel has checked already; ownership of new files follows the same
 * rules. Pure functions.
 */
#ifndef LEAT_MDS_PERM_H
#define LEAT_MDS_PERM_H

#include "common/proto/cred.h"
#include "mds/store/records.h"

/* -LE_ACCES */
int perm_access(const struct cred *c, const struct inode_rec *rec, uint32_t mask) CHECK_RESULT;
/* Flags of chattr(1) hold for everybody: -LE_PERM. Of perm_access, what has PERM_W knows of
 * immutable inodes, perm_remove and perm_setattr of all. perm_fixed: neither immutable nor
 * append-only, for changes that those must not see. */
int perm_fixed(const struct attr *a) CHECK_RESULT;
/* May remove or rename victim in dir, whose write bit has been checked: -LE_PERM. */
int perm_remove(const struct cred *c, const struct attr *dir,
		const struct attr *victim) CHECK_RESULT;
/* May change the data. writes: the caller's session has it open for writing, which somebody there
 * was allowed to; the owner may always allow it himself. */
int perm_write(const struct cred *c, const struct inode_rec *rec, bool writes) CHECK_RESULT;
/* May change what mask (enum attr_mask) says to the values of new: -LE_PERM, -LE_ACCES. writes: as
 * in perm_write. */
int perm_setattr(const struct cred *c, const struct inode_rec *rec, uint32_t mask,
		 const struct attr *new, bool writes) CHECK_RESULT;
/* A sealed file's names are taken away or moved by root only: -LE_PERM. */
int perm_sealed_name(const struct cred *c, const struct attr *a) CHECK_RESULT;
/* Owner or root: -LE_PERM. */
int perm_owner(const struct cred *c, const struct attr *a) CHECK_RESULT;
/* Mode and group of what c makes in dir; mode has the type. */
void perm_new(const struct cred *c, const struct attr *dir, uint32_t *mode, uint32_t *ret_gid);
/* mode after a write, or a change of owner (chown): S_ISUID and S_ISGID go. */
uint32_t perm_kill_suid(uint32_t mode);

#endif
