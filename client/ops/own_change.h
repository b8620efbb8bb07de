/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A change of names or attributes by this client. Until the reply arrives the cache does not answer
 * for the inodes concerned, because other clients may observe the change before that. Owned by the
 * client's loop.
 */
#ifndef LEAT_CLIENT_OPS_OWN_CHANGE_H
#define LEAT_CLIENT_OPS_OWN_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cache/dentry_cache.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"

struct client;
struct inode;

/*
 * One change in flight. On the stack of its fiber.
 */
struct pending_change {
	struct client *c;
	bool blind; /* the change may hit any inode */
	uint32_t n, n_names;
	struct inode *inodes[4], *dirs[2];
	struct name_change names[2]; /* names in dirs */
};

/* pending_change_begin starts a change of an inode; pending_change_also adds another one to it,
 * four at most. Neither yields. */
void pending_change_begin(struct client *c, struct pending_change *ch, struct ino ino);
void pending_change_also(struct pending_change *ch, struct ino ino);
/* Adds a name to the change of a directory that was added before, so that only this name is
 * affected. If the dentry cache has the name, adds the inode of the name too, and returns its
 * number; otherwise returns 0. ch must not move until pending_change_end. Does not yield. */
struct ino pending_change_name(struct pending_change *ch, struct ino dir, struct bytes name);
/* Called before a change that can remove the data or the last name of ino, one of the inodes
 * added (0: unknown inode). If this client has it open by delegation (delegated_open.h), reports
 * that to the MDS. *ret_reported is for the field `reported_ino` of the request. Returns 0 or an
 * error. Yields. */
int pending_change_report(struct pending_change *ch, struct ino ino,
			  struct ino *ret_reported) CHECK_RESULT;
/* Ends the change. rc: its result; < 0: not executed, or unknown. Does not yield. */
void pending_change_end(struct pending_change *ch, int rc);

#endif
