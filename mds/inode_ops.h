/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that critical sections share: getting an inode for a purpose, noting that it has
 * changed, making and removing one. Owned by the loop. Nothing here yields. Functions with
 * CHECK_RESULT may return -LE_MISS, as all that reads the store in a section. After a function
 * marked "Writes" the section must not return -LE_MISS or -LE_LEASED.
 */
#ifndef LEAT_MDS_INODE_OPS_H
#define LEAT_MDS_INODE_OPS_H

#include "mds/op.h"

/* Checks a new name: 0, -LE_NAMETOOLONG, -LE_INVAL, -LE_EXIST for "." and "..". */
int name_check(struct bytes name) CHECK_RESULT;
/* The directory in which a name is looked up, in the given view: -LE_NOENT if it has been
 * removed, -LE_NOTDIR. */
int parent_get(struct op *op, struct ino ino, enum view view, struct inode **ret_dir,
	       const struct inode_rec **ret_rec) CHECK_RESULT;
/* The newest record of a directory that still has a name: -LE_NOTDIR, -LE_NOENT. */
int dir_get(struct op *op, struct ino ino, struct inode **ret_dir,
	    const struct inode_rec **ret_rec) CHECK_RESULT;
/* Like dir_get, and checks that c may make and remove names in the directory: also -LE_ACCES and
 * the errors of cred_check. */
int dir_get_for_change(struct op *op, const struct cred *c, struct ino ino, struct inode **ret_dir,
		       const struct inode_rec **ret_rec) CHECK_RESULT;
/* An inode whose number the client has from a previous reply: -LE_STALE if it has been removed. */
int file_get(struct op *op, struct ino ino, enum view view, struct inode **ret_i,
	     const struct inode_rec **ret_rec) CHECK_RESULT;

/* ---- changes; the caller has called inode_edit ---- */

/* Sets ctime and advances the change counter. Asserts that no other session has a lease. */
void inode_changed(struct op *op, struct inode_rec *rec);
/* Like inode_changed, and sets mtime: the data changes now. Writers that report earlier writes
 * later do not move mtime back. */
void inode_data_changed(struct op *op, struct inode_rec *rec);
/* Like inode_changed, for data that was written until at_ns (0: none was) and is reported now.
 * Raises ctime to at_ns, and sets mtime to it unless mtime accounts for that write already:
 * clients may have returned that time to programs. */
void inode_written(struct op *op, struct inode_rec *rec, int64_t at_ns);
/* Counts an entry more or less (delta) and a subdirectory more or less (links) in the directory.
 * *ret_attr: its new attributes. */
void dir_changed(struct op *op, struct inode *dir, int delta, int links, struct attr *ret_attr);
/* Advances the counter of truncations: a client that reads a hole, or beyond the end, compares
 * it to detect that data was removed there. */
static inline void inode_was_truncated(struct inode_rec *rec)
{
	rec->attr.n_truncations++;
}
/* The size is final: drops append reservations that were not written. */
static inline void inode_drop_append_reservations(struct inode_rec *rec)
{
	if (rec->append_end > rec->attr.size)
		inode_was_truncated(rec);
	rec->append_end = 0;
}
/* mtime accounts for all that the chains wrote until at_ns. */
static inline void inode_accounts_for(struct inode_rec *rec, int64_t at_ns)
{
	if (rec->attr.chains_ns < at_ns)
		rec->attr.chains_ns = at_ns;
}

/* ---- making and removing ---- */

/* Checks that the store has space, and that the quota of the directory allows a new inode of
 * that mode: 0, -LE_NOSPC, -LE_DQUOT. */
int inode_quota(struct op *op, const struct inode_rec *dir, uint32_t mode) CHECK_RESULT;
/* Makes an inode in the directory, owned by c. mode: type and permissions as the caller asked for;
 * the umask or the directory's default access list apply. Writes. */
struct inode *inode_make(struct op *op, const struct cred *c, const struct inode_rec *dir,
			 uint32_t mode, struct inode_rec **ret_rec);
/* Removes an inode that has no name and is not open: record, data, leases, and the quota that it
 * is the root of. Writes. */
void inode_remove(struct op *op, struct inode *i);
/* Queues the data of a generation for removal (file/space_reclaim.h). Writes. */
void data_remove(struct op *op, const struct attr *a);

/* ---- queries ---- */

/* True if the inode has no data anywhere, and no writer that may add some. */
bool inode_has_no_data(const struct inode_rec *rec);
/* True if op->session has the inode open for writing with the right to do so. */
bool op_writes(const struct op *op, struct ino ino);
/* True if no session has the inode open, and none could still reclaim an open. */
bool inode_not_open(struct op *op, struct ino ino);

#endif
