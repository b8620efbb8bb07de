/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Releases an inode's lease and cached names when the inode cache evicts it. Owned by the client's
 * loop. No function yields.
 */
#ifndef LEAT_CLIENT_CACHE_EVICT_H
#define LEAT_CLIENT_CACHE_EVICT_H

struct client;
struct inode;

/* The hook inode_table.on_evict: queues the lease for return, and ends a directory's complete
 * state. */
void inode_on_evict(struct client *c, struct inode *i);

#endif
