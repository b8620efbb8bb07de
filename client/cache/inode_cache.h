/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inode cache. Each inode has the attributes of the last reply. An inode in use (open, being
 * closed, or with data in flight) also has a struct inode_io: capabilities, own size, data in
 * flight, prefetched data. Owned by the client's loop. No function yields.
 *
 * While the client has a lease on an inode (lease.h), the attributes are valid; otherwise the
 * client requests them each time. Inodes without references stay cached for their attributes and
 * leases, at most params.inodes_max of them.
 */
#ifndef LEAT_CLIENT_CACHE_INODE_CACHE_H
#define LEAT_CLIENT_CACHE_INODE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/file_locks.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"

struct attr;
struct cap;
struct client;
struct mds_append_req;
struct bloom_filter;
struct slot;
struct target;

/* A cached inode. */
struct inode {
	struct hmap_node node; /* by ino */
	struct list lru;       /* in inode_table.lru while refs is 0 */
	struct ino ino;
	uint32_t refs;
	bool opened;      /* ever opened: open_change is meaningful */
	struct attr attr; /* At settled_us the size, mtime_ns and chains_ns have the values that the
	                   * chains reported, where these are larger. */
	/* When the attributes were received; 0: they must be requested. */
	uint64_t attr_us;
	/* When this client last changed it without new attributes: replies to older requests are
	 * ignored. */
	uint64_t outdated_us;
	/* When the request was sent that got the lease; 0: no lease. */
	uint64_t lease_us;
	/* When the request was sent that got the shared lease; 0: none. A shared lease does not
	 * cover attributes that writers change. */
	uint64_t shared_us;
	/* With a shared lease: the record's size, a lower bound of the file's size. */
	uint64_t shared_size;
	/* When the lease was last recalled. */
	uint64_t recalled_us;
	/* A directory: until when the kernel may cache names of it. Includes names that the kernel
	 * got before an eviction, or from the previous process. */
	uint64_t kernel_until_us;
	/* Until when the kernel may cache its attributes. */
	uint64_t kernel_attr_us;
	uint64_t names_lost; /* A directory: this client's changes of names up to this change
	                      * counter may be missing in the dentry cache. */
	/* A directory: since when it is complete (dentry_cache.h); 0: it is not. */
	uint64_t complete_us;
	struct bloom_filter *names_gone; /* of a complete directory: names not in the dentry
	                                  * cache */
	uint64_t settled_us; /* When the chains were last queried; 0: not since the file has
			      * writers. */
	/* The change counter that cached data belongs to. */
	uint64_t open_change;
	uint32_t n_truncations; /* number of truncations by this client */
	/* Changes by this client in flight: the present state is unknown. */
	uint32_t n_changing;
	/* For a directory: how many of n_changing change one name only (dentry_cache.h). */
	uint32_t n_names_changing;
	struct cap cap;     /* read capability: ops/delegated_open.h */
	uint32_t cap_gen;   /* client.session_gen of cap; 0: no cap */
	uint32_t n_held;    /* references by ll_hold: open directories */
	struct inode_io *data; /* NULL: not in use */
};

/* Small writes of one inode that are collected into a large one (data/write_coalesce.h). */
struct coalesce {
	struct list link;  /* in writeback.coalescing, oldest first */
	struct slot *slot; /* NULL: nothing collected */
	uint64_t idx;      /* number of the chunk */
	uint32_t base;     /* chunk offset of the slot's first byte */
	uint32_t lo, hi;   /* range of the slot that has data */
	uint64_t reserved; /* bytes of the target's grant */
	struct target *target;
	/* when the collection began */
	uint64_t since_us;
};

/* The state of an inode in use. */
struct inode_io {
	struct inode *inode;
	struct client *c;
	struct list open_link; /* in inode_table.open */

	/* Opens as the MDS counts them, including those being closed. */
	uint32_t n_read, n_write, n_append, n_closing; /* n_append of n_write are O_APPEND */
	bool read_buffered;                            /* read through a file without O_DIRECT */
	/* Reopening (servers/open_count.h). reopened_gen: the session in which the MDS has recorded
	 * all opens. Until that is the present one, reopened counts the opens recorded in session
	 * reopened.gen. */
	uint32_t reopened_gen;
	struct {
		uint32_t gen, n_read, n_write, n_append;
	} reopened;
	uint32_t lost_gen;    /* a session in which the MDS refused some opens */
	uint32_t n_delegated; /* Delegated opens (ops/delegated_open.h): opens for reading that the
			       * MDS does not count. */
	bool delegated_reported;  /* the MDS counts one for all of them, in n_read */
	uint32_t n_lazy, n_close_waiters; /* closes that may wait; fibers that wait for closes */
	uint32_t n_late;                  /* closes in flight beyond their time limit */
	struct waitq closing_q;
	struct list closes; /* struct ll_file with a close in flight */
	/* Capabilities: [0] to read, [1] to write. Valid if cap_gens equals client.session_gen. */
	struct cap caps[2];
	uint32_t cap_gens[2];
	struct fmutex cap_lock;
	uint32_t renew_uid, renew_gid;

	/* The size is unverified: it must be read from the chains before use. Set after a takeover,
	 * a lost session, a failed write, or a write concurrent with a truncation. */
	bool size_unverified;

	/* Shared lease: data/size.c, cache/lease_grant.c. */
	bool reasking;   /* a query whether it is still shared is in flight */
	bool was_shared; /* had a shared lease; the MDS may still record one */

	/* Own writes. */
	uint64_t size;          /* largest end written here or reported, in bytes */
	uint64_t durable_end;   /* Largest end that a server has confirmed since the first write
				 * open, the start of the session, or a truncation. */
	int64_t mtime_ns;       /* of the newest confirmed write; 0: none */
	int64_t mtime_guess_ns; /* Of the newest unconfirmed write; 0: none. Object servers store
	                         * this time. */
	bool was_truncated;           /* Truncated while open for writing, or perhaps while a
	                               * session was lost: a close does not report the size. */
	/* A write failed after it was reported: a close makes the MDS query the chains. */
	bool size_suspect;
	bool sparse;         /* used space may differ from the size (holes) */
	uint64_t quota_left; /* bytes that may be added under a quota */
	bool packed;         /* Used space may become less than the size (compression). */
	struct list writes;  /* struct wreq, oldest first */
	uint64_t write_seq;
	struct waitq write_q; /* waiters for the end of a write */
	struct coalesce coalesce;
	struct fmutex append_lock; /* serialises appends and other writes that move the end */
	/* Files opened with O_APPEND that have written elsewhere too, and so are not in n_append
	 * (ll_file.counted). */
	uint32_t n_append_cleared;
	/* An append at an end that was found without the MDS is in progress: append_find_end. */
	bool appending;
	struct mds_append_req *append_req; /* while that request is in flight */
	/* Change counter of the append reservation in use; 0: none. */
	uint64_t reservation;
	uint32_t reservation_gen; /* client.session_gen of the reservation */
	bool reservation_written;   /* some bytes of it may be written */
	/* Append reservations with this change counter or an older one are recalled. */
	uint64_t reservation_void;
	/* This client has written in the background under a write lease since flush_visible last
	 * left nothing unflushed. */
	bool wrote_under_lease;
	/* Writes of mapped pages without a lease; and how many of them are visible on all mounts,
	 * because no mount caches older pages. */
	uint64_t n_pages, n_pages_seen;
	struct waitq append_q;       /* waiters for the end of appending or of reservation */
	bool no_mapped;              /* no page is mapped that may have changed unnoticed */
	int err;                     /* newest error for open files to report
	                              * (data/write_error.h) */
	uint32_t mark;               /* index + 1 in ll_restart_state.marks; 0: no mark */
	uint32_t err_gen;            /* counts errors; each open file reports one once */
	uint32_t n_files, n_unreported; /* open files here; those that have not reported err yet */

	/* File locks of this mount's programs, and their waiters: ops/file_lock.c. */
	struct file_locks locks;
	struct waitq lock_q;
	uint32_t n_unlocked; /* incremented when a waiter should try again */
	struct waitq lock_turn;
	uint32_t n_lock_calls; /* lock requests in flight */
	uint32_t n_repairs;    /* repairs that wait for their turn */
	bool resyncing;          /* a repair of the MDS's state is in progress */

	/* Prefetched data: cache/prefetch_cache.h, data/readahead.c. */
	struct list units;
	uint32_t n_units;
	uint64_t ra_window;

	/* Reads that met a hole or a chunk's end: data/read.c. */
	uint64_t n_holes;
};

/* All cached inodes of a client. */
struct inode_table {
	struct hmap map;
	/* Unused inodes, oldest first; [1] those that were ever opened. When there are too many,
	 * the list with more than half of them is shortened. So neither created files nor a long
	 * listing evict all of the other kind, above all not the directories in use. */
	struct list lru[2];
	uint32_t n_unused[2];
	struct list open; /* struct inode_io */
	struct list free, free_data, deferred;
	uint32_t n_free, n_free_data;
	/* Called before an inode is evicted or freed. Must not yield. */
	void (*on_evict)(struct client *c, struct inode *i);
};

/* Initialises the cache. on_evict: see inode_table. */
void inode_table_init(struct client *c, void (*on_evict)(struct client *c, struct inode *i));
/* Frees all inodes; calls on_evict for each. */
void inode_table_fini(struct client *c);

/* Returns the inode with a reference, from the cache or new. NULL: no memory. May evict others. */
struct inode *inode_get(struct client *c, struct ino ino);
/* Returns the cached inode with a reference, or NULL if it is not cached. */
struct inode *inode_peek(struct client *c, struct ino ino);

/* Adds a reference. */
static inline void inode_ref(struct inode *i)
{
	i->refs++;
}

/* Drops a reference. The inode may be evicted later, once it has none. */
void inode_put(struct client *c, struct inode *i);
/* Drops a reference during a walk over inode_table.open. If it is the last one, it is dropped by
 * inode_put_deferred, which the caller calls after the walk. */
void inode_put_later(struct client *c, struct inode *i);
void inode_put_deferred(struct client *c);
/* Returns the inode's inode_io in *ret_data; creates it if there is none. The caller has a
 * reference to the inode. Returns 0 or -LE_NOMEM. */
int inode_data(struct client *c, struct inode *i, struct inode_io **ret_data) CHECK_RESULT;
/* Frees the inode_io if the inode is not open and has no data in flight. */
void inode_data_trim(struct client *c, struct inode *i);

/* Returns true if the file has writers and this client's size is unverified
 * (inode_io.size_unverified). */
static inline bool inode_size_is_unverified(const struct inode *i)
{
	return (i->attr.flags & ATTR_UNSETTLED) != 0 && i->data != NULL && i->data->size_unverified;
}

/* Returns true if the file is sealed: its data never changes. */
static inline bool inode_is_fixed(const struct inode *i)
{
	return (i->attr.flags & ATTR_SEALED) != 0;
}

#endif
