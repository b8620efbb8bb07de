/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recall of append reservations. An append reserves an offset in the file before it writes.
 * Before the file is truncated, the server calls the clients that have reservations back
 * (cb_append_recall), until they write to none of them. Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_APPEND_RECALL_H
#define LEAT_MDS_FILE_APPEND_RECALL_H

#include "mds/op.h"

/* Called before a trim, while appends get no reservation (f->truncating). Returns 0 when no
 * client writes, now or later, to an older reservation. Evicts sessions that are silent or do
 * not answer, as a recall does, and after a restart those that have not returned. Returns
 * -LE_SHUTDOWN or the error of session_end otherwise. The caller has a reference to f. Yields. */
int append_recall_all(struct op *op, struct open_file *f) CHECK_RESULT;

#endif
