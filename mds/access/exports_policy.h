/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the table of exports (access/exports.h) to requests: the rule of the network from
 * which the connection comes. Owned by the loop. Nothing here yields.
 */
#ifndef LEAT_MDS_ACCESS_EXPORTS_POLICY_H
#define LEAT_MDS_ACCESS_EXPORTS_POLICY_H

#include "mds/op.h"

/* Applies the rule to a request before it is executed: takes rights out of the credentials in `in`,
 * which is changed. Returns 0, -LE_ROFS or -LE_PERM if the network must not do this, or -LE_INVAL
 * for groups that cannot be decoded. */
int export_gate(struct op *op, const struct op_desc *d, void *in) CHECK_RESULT;
/* The rule of the request's peer. All rights if the request has no peer. */
struct export_row export_rule_of(const struct op *op);
/* True if the peer's network is read-only. */
bool export_read_only(const struct op *op);
/* True if the rule replaces the user ids of some or all users of the peer's network. */
bool export_squashes(const struct op *op);
/* True if the client may cache the inode with attributes a. A squashed network may cache only
 * what all users may read, because a client's cache does not check which user reads it. */
bool export_may_lease(const struct op *op, const struct attr *a);
/* True if the session, which comes over the request's connection, has files open for writing and
 * the network is read-only. */
bool export_must_end(const struct op *op, const struct session *se);

#endif
