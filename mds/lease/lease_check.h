/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lease checks of critical sections (leases.h has the table): what must be recalled before a
 * section changes or reads an inode, and whether a client gets a lease at the end of a request.
 * Owned by the loop. Nothing here yields.
 */
#ifndef LEAT_MDS_LEASE_LEASE_CHECK_H
#define LEAT_MDS_LEASE_LEASE_CHECK_H

#include "mds/op.h"

/* Called in a critical section before its first write, with all inodes that it will change. Returns
 * 0 if no other session has a lease on them, or -LE_LEASED: op_recall recalls the leases and the
 * section is run again. */
int op_changes_all(struct op *op, const struct ino *inos, uint32_t n) CHECK_RESULT;
#define op_changes(op, ...)                                                                        \
	op_changes_all(op, (const struct ino[]){__VA_ARGS__},                                      \
		       sizeof((const struct ino[]){__VA_ARGS__}) / sizeof(struct ino))
/* Called by a section that reads the attributes a: as op_changes, but only write leases of other
 * sessions matter, and only if the file is unsettled. */
int op_looks(struct op *op, const struct attr *a) CHECK_RESULT;
/* Called by a section whose result depends on whether the inode is open. Returns -LE_LEASED, as
 * op_changes, if op->session has a lease under which it may have opened the inode without a
 * request; 0 otherwise. reported_ino: the inode whose opens the client has reported with this
 * request; REPORTED_ALL: it has reported all opens. */
int op_asks_own(struct op *op, struct ino ino, struct ino reported_ino) CHECK_RESULT;

/*
 * Called at the end of an operation, with attributes of its reply: gives op->session a lease on the
 * inode if the attributes are the present ones and no operation is about to change them, and sets
 * ATTR_LEASED in them. On an inode with writers that is a write lease if only this session has the
 * file open. Other sessions that have it open get a read lease which leaves out what writers change
 * (ATTR_SHARED).
 */
void op_lease(struct op *op, struct attr *a);

/* How long after the last contact of a client the server assumes that the client uses its
 * leases. Longer than client_lease_ms, because clocks differ. */
uint64_t lease_term_us(const struct mds *m);
/* After a restart: true when all sessions have returned, or all leases from before have expired. */
bool leases_known(const struct mds *m);
/* The session that op recalls no lease from. NULL: op recalls the leases of all sessions. */
const struct session *lease_spared(const struct op *op);
/* After a restart: whether a session that has not returned may have a lease on the inode with one
 * of op->recall_modes. Any caching lease may be hidden until leases_known. Later a write lease may
 * be: that of an unsettled file that no session has open for writing, and so data that no object
 * server has received. LEASE_APPEND may be hidden while the file is unsettled, unless it was
 * settled when its present writers opened it. Returns 1, 0, or -LE_MISS. */
int lease_is_hidden(const struct op *op, struct ino ino);

#endif
