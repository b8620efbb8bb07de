/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a client: one mount, or one instance of the library. Owned by the loop that created
 * it. The structs of the folders of client/ are part of it. Only client/ includes this file, which
 * declares no function.
 */
#ifndef LEAT_CLIENT_CLIENT_H
#define LEAT_CLIENT_CLIENT_H

#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/cache/prefetch_cache.h"
#include "client/data/write_request.h"
#include "client/ll.h"
#include "client/params.h"
#include "client/servers/cluster_map.h"
#include "client/servers/hedge.h"
#include "client/servers/request_slots.h"
#include "common/base/list.h"
#include "common/base/uuid.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rpc/mds_clock.h"
#include "common/rpc/rpc.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define CLIENT_MAGIC         0x434c4e54u /* CLNT */
#define CLIENT_IN_FLIGHT_MAX 512u
#define CLIENT_NAME_SIZE     64u
#define SMALL_SLOT_SIZE      (64u << 10)
/* Request slots of the session: at most so many mutations are in flight at the MDS. */
#define MDS_SLOTS     128u
#define READDIR_CACHE 16u

/* The kernel drops a name by itself after KERNEL_NAMES_US. A recall waits for that, so the time is
 * short. The kernel counts from when the calling program continues, which may be later than the
 * reply; KERNEL_LATE_US allows for that. */
#define KERNEL_NAMES_US 100000u
#define KERNEL_LATE_US  20000u

/* The rest of a readdir reply, cached for the call that continues there. */
struct dir_batch {
	struct ino ino;
	uint64_t cookie; /* of the call that it serves */
	/* pos: where the entries of that call start in rep.entries. uid: the user for whom the
	 * reply was requested. */
	uint32_t pos, uid;
	bool plus, eof, used;
	/* The fetch is in flight, and waiters are in client.dirs_q. Then `used` is set too. */
	bool coming;
	uint64_t at_us; /* when the request was sent */
	struct mds_readdir_rep rep;
	struct rpc_call call;
};

/* The prefetch of attributes for a caller that has listed a directory without attributes and now
 * requests those of its entries one by one (ll_prefetch_attrs). */
struct attr_prefetch {
	struct ino dir;
	bool running;
	uint32_t n_requested;  /* entries requested so far */
	uint64_t requested_us; /* time of the last request */
};

/* One client. Its bools are independent: those of a takeover overlap, for the session, the files
 * and their data are taken over at their own pace. */
struct client {
	uint32_t magic;
	struct loop *loop;
	struct env *env;
	struct transport *transport;
	struct rpc_key key;
	struct client_params params;
	char name[CLIENT_NAME_SIZE];
	char host[CLIENT_NAME_SIZE]; /* the host name that the targets of this machine report */
	uint64_t replica_hash_seed;  /* seed of this client's choices among equal members */
	/* From client_options: */
	void (*invalidate)(void *arg, struct ino ino, bool data);
	int (*owner_changed)(void *arg, struct ino ino);
	void *arg;
	enum ll_atime atime;
	bool stopping;

	/* servers/session.c */
	struct rpc_client *mds;
	const struct session_ops *session_ops;
	struct uuid id;
	uint64_t session;       /* 0: none yet */
	uint32_t session_gen;   /* counts sessions; capabilities of earlier ones are void */
	uint64_t incarnation;   /* of the MDS process */
	bool mds_checks_access; /* The MDS checks users' rights (mds_session_open_rep). */
	uint32_t ttl_ms;        /* how long the MDS keeps a silent session */
	int setup_status;       /* result of the last attempt to open a session */
	struct mds_clock clock;
	struct fmutex session_lock;
	struct request_slots mds_seqs;
	uint32_t setup_slot; /* the request slot that is reserved for opening a session */
	struct fiber *keepalive;

	struct cluster_map map;
	/* Pools of slots of LL_SLOT_SIZE and of SMALL_SLOT_SIZE bytes. */
	struct slot_pool *slots, *small;
	uint32_t n_copies;       /* slots with copies of callers' bytes that are being written */
	struct waitq copies_q;   /* waiters for a smaller n_copies */
	struct slot_pool *seals; /* for writes in flight with compressed blocks (data/seal.c) */
	uint8_t *block;          /* scratch memory for one block; not used across a yield */
	struct inode_table inodes;
	struct client_leases leases;
	struct names names;
	uint64_t kernel_until_us; /* until when the kernel may cache names, in any directory */
	uint64_t kernel_lost_us;  /* the same, in directories that have left the inode cache */
	uint64_t previous_us;     /* The previous process had ended by then. 0: there was none. */
	struct writeback wb;
	uint64_t n_chunk_leases; /* counts chunk leases; the newest is number seq_base + this */
	uint64_t leases_gone;    /* Chunk leases with lower numbers belonged to the previous process
				  * and have ended. */
	uint64_t expired_logged_us; /* when the client last logged that a server refuses new
				     * capabilities as expired */
	uint64_t n_retracted;       /* counts accepted writes that had to be repeated */

	/* servers/crash_replay.c */
	struct list unstable_writes; /* of struct unstable_write */
	struct waitq unstable_q;     /* waiters for their progress */
	uint64_t server_generations; /* counts the server processes that this client has met */

	struct readahead ra;
	struct latencies latencies;      /* of reads, from the first member */
	struct latencies many_latencies; /* of batched reads (data/read_batch.c) */
	struct dir_batch dirs[READDIR_CACHE];
	struct waitq dirs_q;    /* waiters for a batch that is `coming` */
	uint32_t n_dirs_coming; /* such batches */
	struct attr_prefetch look;

	/* Background fibers, for which client_destroy waits. */
	struct latch bg;
	uint32_t n_mends;         /* those of bg that repair file locks at the MDS */
	struct waitq piggyback_q; /* asynchronous closes, which wait for the next MDS request in
				   * order to be sent with it */
	struct timer tick;
	struct list free_files, free_groups; /* free_groups: of data/read_batch.c */
	uint32_t n_free_groups;

	/* servers/restart_log.c */
	struct ll_restart_state *restart;
	uint64_t seq_base; /* This process uses higher sequence numbers. 0: no restart memory. */
	/* The file whose reopening was refused and is tried once more. NULL: none. */
	struct inode_io *reopening_lost;
	bool taking_over;   /* The MDS still counts the previous process's opens. */
	bool reopening;     /* In a new session: some files are not open again yet. */
	bool resuming;      /* The state of the previous process's data is not determined yet. */
	bool resumes_other; /* The session is not the one of the previous process. */
	bool reporting;     /* After a takeover: the open files are not reported to the MDS yet, so
			     * recalls are answered with -LE_NOT_READY. */
	uint64_t settled_at_us; /* When to finish what is left of the previous process's work. 0:
				 * nothing is left. */
	struct list requests;   /* struct ll_request in progress */
	/* n_held: request slots that kernel requests hold. next_mark: where the search for a free
	 * mark starts. */
	uint32_t n_held, next_mark;
	struct turnq held_turn;

	uint32_t n_files, n_free_files;
	struct ll_stats stats;
};

#endif
