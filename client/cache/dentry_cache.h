/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dentry cache: for names in directories on which this client has a lease, the inode number, or
 * the fact that there is no such name. An entry is valid while the directory's lease is the one
 * that was held when the entry's request was sent. Replies may arrive out of order; the directory's
 * change counter orders them.
 *
 * A directory that this client has created is complete while the lease lasts: a name that is not
 * cached does not exist (inode.complete_us; 0: not complete). A Bloom filter has the names of a
 * complete directory that were evicted or are uncertain; the client queries the MDS only for names
 * that hit the filter. So creating files needs no queries even in a directory of a million names.
 *
 * Owned by the client's loop. No function yields. At most params.names_max entries, the least
 * recently used evicted first; and BLOOM_FILTER_BYTES of filters for each entry.
 */
#ifndef LEAT_CLIENT_CACHE_DENTRY_CACHE_H
#define LEAT_CLIENT_CACHE_DENTRY_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"

struct attr;
struct client;
struct inode;

#define BLOOM_FILTER_BYTES 16u

/* A name that a request of this client is changing now. */
struct name_change {
	struct list link;
	uint64_t hash;
};

/* The dentry cache of a client. */
struct names {
	struct list changing; /* struct name_change; a few */
	struct hmap map;
	struct list lru; /* oldest first */
	uint32_t n;
	size_t filter_space; /* bytes that filters may still use */
};

/* Returns the memory of the entries in bytes, without the bytes of the names. */
uint64_t dentry_cache_bytes(const struct names *ns);
/* Initialises the cache for names_max entries. */
void dentry_cache_init(struct names *ns, uint32_t names_max);
/* Frees all entries. */
void dentry_cache_fini(struct names *ns);
/* Looks a name up. Returns true if the cache has a valid answer; *ret_ino is 0 if there is no such
 * name. */
bool dentry_cache_find(struct client *c, const struct inode *dir, struct bytes name,
		       struct ino *ret_ino);
/* Records the result that a reply has for a name. dir: the directory's attributes in the reply; ino
 * 0: there is no such name; own: the reply to a change by this client; sent_us: when the request
 * was sent. */
void dentry_cache_update(struct client *c, const struct attr *dir, struct bytes name,
			 struct ino ino, bool own, uint64_t sent_us);
/* Records one entry of a directory listing. change: the directory's change counter in the reply;
 * sent_us: when the request was sent. */
void dentry_cache_update_listed(struct client *c, const struct inode *dir, uint64_t change,
				struct bytes name, struct ino ino, uint64_t sent_us);
/* Looks a name up without checking that the entry is valid. Returns true if there is an entry. */
bool dentry_cache_peek(const struct client *c, struct ino dir, struct bytes name,
		       struct ino *ret_ino);
/* Begins and ends a change of one name by this client. Until the end dentry_cache_find does not
 * answer for the name, because other clients may observe the change before its reply arrives. Other
 * names of the directory are not affected. The caller owns nc. */
void dentry_cache_change_begin(struct client *c, struct name_change *nc, struct ino dir,
			struct bytes name);
void dentry_cache_change_end(struct name_change *nc);
/* Called when the outcome of a change of names in the directory is unknown: listings from before
 * the next change are not recorded. */
void dentry_cache_mark_unknown(struct inode *dir);
/* Removes a name from the cache: its present value is unknown. */
void dentry_cache_forget(struct client *c, struct ino dir, struct bytes name);
/* Ends the complete state of a directory and frees its filter. Also called before the inode is
 * evicted. */
void dentry_cache_set_incomplete(struct client *c, struct inode *dir);

#endif
