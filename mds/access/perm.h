/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Permission checks: POSIX mode bits and access lists with supplementary groups, the sticky bit and
 * the rules for setgid. With CRED_CHECKED in the credentials a trusted kernel has checked already.
 * Pure functions: each returns 0 or the status that its comment names. None yields.
 */
#ifndef LEAT_MDS_ACCESS_PERM_H
#define LEAT_MDS_ACCESS_PERM_H

#include "common/proto/cred.h"
#include "mds/store/records.h"

/* Checks that c may access the inode as mask (PERM_R, PERM_W, PERM_X) says. -LE_ACCES; -LE_PERM
 * to write to an immutable inode. */
int perm_access(const struct cred *c, const struct inode_rec *rec, uint32_t mask) CHECK_RESULT;
/* Checks that the inode is neither immutable nor append-only, which binds root too: -LE_PERM.
 * (perm_access with PERM_W checks for immutable inodes, perm_remove and perm_setattr for both.) */
int perm_fixed(const struct attr *a) CHECK_RESULT;
/* Checks that c may remove or rename victim in dir. The caller has checked that c may write to
 * dir. -LE_PERM. */
int perm_remove(const struct cred *c, const struct attr *dir,
		const struct attr *victim) CHECK_RESULT;
/* Checks that c may change the data of the file. writes: the session has the file open for
 * writing, so one of its users was permitted to write; then the owner always is. -LE_ACCES,
 * -LE_PERM. */
int perm_write(const struct cred *c, const struct inode_rec *rec, bool writes) CHECK_RESULT;
/* Checks that c may set the attributes that mask (enum attr_mask) names to the values in `new`.
 * writes: as in perm_write. -LE_PERM, -LE_ACCES. */
int perm_setattr(const struct cred *c, const struct inode_rec *rec, uint32_t mask,
		 const struct attr *new, bool writes) CHECK_RESULT;
/* Checks that c may remove or rename a name of the file. For a sealed file only root may.
 * -LE_PERM. */
int perm_sealed_name(const struct cred *c, const struct attr *a) CHECK_RESULT;
/* Checks that c is the owner or root. -LE_PERM. */
int perm_owner(const struct cred *c, const struct attr *a) CHECK_RESULT;
/* Sets mode and group of an inode that c makes in dir. *mode: with the type; in and out. */
void perm_new(const struct cred *c, const struct attr *dir, uint32_t *mode, uint32_t *ret_gid);
/* Returns mode without S_ISUID and S_ISGID, as after a write or a chown. */
uint32_t perm_kill_suid(uint32_t mode);

#endif
