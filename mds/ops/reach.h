/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of inode numbers from squashed networks (access/exports.h). Their clients are not trusted:
 * a client may send any number, and numbers are easy to guess. Before an operation the server
 * checks that the user may search all directories above each inode that the request names.
 *
 * The record of a directory names its parent. The record of a file has the name that the file was
 * last given. If that name was removed, or leads through a directory that the user may not search,
 * another name counts under which the session has found the file. A session notes NAMES of these,
 * and a noted name counts only while it is a name of the file. (After a restart a client finds such
 * a file again when it looks the name up.) A session may use what it has open, wherever that is.
 */
#ifndef LEAT_MDS_OPS_REACH_H
#define LEAT_MDS_OPS_REACH_H

#include "mds/op.h"

/* Called before the operation op->desc with its request `in`. Returns 0, -LE_ACCES, or the error of
 * op_read. Yields. */
int reach_check(struct op *op, const void *in) CHECK_RESULT;
/* Notes that the session has found the file under this entry (place: its cookie) of a directory
 * that its user may search. Does not yield. */
void reach_note(struct op *op, const struct inode_rec *rec, struct ino dir, uint64_t place);
/* True if the session has the inode open or leased. For requests without a credential. Does not
 * yield. */
bool reach_knows(const struct op *op, struct ino ino);

#endif
