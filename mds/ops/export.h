/* What exports mean for requests; see mds/exports.h. */
#ifndef LEAT_MDS_OPS_EXPORT_H
#define LEAT_MDS_OPS_EXPORT_H

#include "mds/op.h"

/* Before a request is executed: refuses what the peer's network must not do (-LE_ROFS, -LE_PERM),
 * and takes rights out of the credentials in it. in is changed. */
int export_gate(struct op *op, const struct op_desc *d, void *in) CHECK_RESULT;
/* The peer's network is read-only. */
bool export_read_only(const struct op *op);
/* Some or all users of the peer's network are somebody else here. */
bool export_squashes(const struct op *op);
/* May the client's cache answer for this? Of a squashed network only what everybody may read: the
 * cache does not know who asks it. */
bool export_may_lease(const struct op *op, const struct attr *a);
/* A session that comes (back) over the request's connection has files open for writing and must not
 * have. */
bool export_must_end(const struct op *op, const struct session *se);
/* Ends such a session: -LE_SESSION_GONE. Not under the sessions' lock. Yields. */
int export_end(struct mds *m, struct session *se) CHECK_RESULT;

#endif
