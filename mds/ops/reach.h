/*
 * Inode numbers from clients whose users' rights are judged here (exports.h): a client may send any
 * number, and numbers are easy to guess. So before an operation it is asked whether the user may
 * search all directories above each inode that the request names.
 *
 * Up from a directory lead the parents in the records. A file's record says which name it was given
 * last; where that name is gone, or leads through directories that the user may not search, another
 * name counts under which this session has found the file: of those a session notes a few hundred,
 * and a name counts only if it still is the file's. (After a restart a client finds such a file
 * again when it looks the name up.) What the session has open it may use wherever it is now.
 */
#ifndef LEAT_MDS_OPS_REACH_H
#define LEAT_MDS_OPS_REACH_H

#include "mds/op.h"

/* Before the operation that op->desc says, with its request: 0, or -LE_ACCES. Yields. */
int reach_check(struct op *op, const void *in) CHECK_RESULT;
/* The file was found under the name at this place of a directory that its user may search. */
void reach_note(struct op *op, const struct inode_rec *rec, struct ino dir, uint64_t place);
/* What such a client does without naming a user, with that inode: only if the session may use it
 * by now, as it has it open or leased. */
bool reach_knows(const struct op *op, struct ino ino);

#endif
