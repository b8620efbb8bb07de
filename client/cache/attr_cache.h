/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cached attributes of an inode: how a reply of the metadata server updates them, and whether
 * they are still valid. Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_CACHE_ATTR_CACHE_H
#define LEAT_CLIENT_CACHE_ATTR_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/proto/types.h"

struct attr;
struct client;
struct inode;

/* Merges attributes from a reply of the MDS, and the lease that they may carry. Ignores a reply
 * that is older than the cached attributes. own: the reply to a change that this client made, so
 * one step of the change counter comes from this client. sent_us: when the request was sent. */
void inode_update(struct client *c, struct inode *i, const struct attr *attr, bool own,
		  uint64_t sent_us);
/* Called after an open, with flags of open(2). For a write open, replies to requests sent before
 * now no longer grant a lease: they predate this writer. */
void inode_opened(struct inode *i, uint32_t flags);
/* Like inode_update, for an inode number: looks the inode up or creates it. For replies about
 * names. */
void inode_saw(struct client *c, const struct attr *attr, bool own, uint64_t sent_us);
/* Marks the cached attributes as outdated after a change by this client, if the reply had no
 * attributes of the inode. Does nothing if the inode is not cached. */
void inode_outdated(struct client *c, struct ino ino);
/* Like inode_outdated, for an inode that the caller has a reference to. */
void inode_changed_here(struct inode *i);
/* Called after this client changed a name in directory ino. attr: the directory's attributes from
 * the reply; if the reply has none (attr->ino 0), the cached ones become outdated. */
void inode_dir_changed(struct client *c, struct ino ino, const struct attr *attr, uint64_t sent_us);
/* Returns the cached attributes, combined with the size and times of this client's writes.
 * ATTR_LEASED is set if they are valid without a request. */
void inode_attr(const struct client *c, const struct inode *i, struct attr *ret_attr);
/* Returns true if the cached attributes are valid without a request to the MDS. The size of a file
 * with writers may still have to be read from the chains. */
bool inode_attr_fresh(const struct client *c, const struct inode *i);
/* Returns true if all attributes are valid without any request, the size included. */
bool inode_size_fresh(const struct client *c, const struct inode *i);

#endif
