/*
 * The inside of a client: one mount or one library instance. All of it is owned by the loop that
 * made it; the other headers of this folder are parts of it. Nobody outside of client/ includes
 * this.
 */
#ifndef LEAT_CLIENT_CLIENT_H
#define LEAT_CLIENT_CLIENT_H

#include "client/cluster_map.h"
#include "client/hedge.h"
#include "client/inode.h"
#include "client/lease.h"
#include "client/ll.h"
#include "client/names.h"
#include "client/readahead.h"
#include "client/seq_table.h"
#include "client/writeback.h"
#include "common/rt/env.h"

#define CLIENT_MAGIC         0x434c4e54u /* CLNT */
#define CLIENT_IN_FLIGHT_MAX 512u
#define CLIENT_NAME_SIZE     64u
#define SMALL_SLOT_SIZE      (64u << 10)
/* Mutations at the MDS at once. */
#define MDS_SLOTS     128u
#define READDIR_CACHE 16u

/* The rest of a readdir reply, kept for the call that goes on behind it. */
struct dir_batch {
	struct ino ino;
	uint64_t cookie; /* the next call's; the entries behind it start at pos */
	uint32_t pos, uid;
	bool plus, eof, used;
	bool coming; /* it is being fetched (used too); those who want it wait in dirs_q */
	uint64_t at_us;
	struct mds_readdir_rep rep;
	struct rpc_call call;
};

/* Somebody who was given the names of a directory alone now looks at them one by one. */
struct dir_look {
	struct ino dir;
	bool running;
	uint32_t n_looked;
	uint64_t looked_us;
};

struct client {
	uint32_t magic;
	struct loop *loop;
	struct env *env;
	struct transport *transport;
	struct rpc_key key;
	struct client_params params;
	char name[CLIENT_NAME_SIZE];
	char host[CLIENT_NAME_SIZE]; /* as the targets of this machine call it */
	uint64_t spread;             /* makes its choices among members its own */
	void (*invalidate)(void *arg, struct ino ino, bool data);
	int (*owner_changed)(void *arg, struct ino ino);
	void *arg;
	enum ll_atime atime;
	bool stopping;

	/* session.c */
	struct rpc_client *mds;
	struct uuid id;
	uint64_t session;     /* 0: none yet */
	uint32_t session_gen; /* counts sessions: capabilities of former ones are void */
	uint64_t incarnation; /* of the MDS */
	bool judged;          /* it judges users' rights itself: see mds_session_open_rep */
	uint32_t ttl_ms;
	int setup_status; /* of the last attempt to get a session */
	struct fmutex session_lock;
	struct seq_table mds_seqs;
	uint32_t setup_slot;
	struct fiber *keepalive;

	struct cluster_map map;
	struct slot_pool *slots, *small;
	uint32_t n_copies;     /* of slots: callers' bytes that are being written */
	struct waitq copies_q; /* one less */
	struct slot_pool *seals; /* writes with compressed blocks, on their way: writeback.c */
	uint8_t *block;          /* for what is done to one block without a yield */
	struct inode_table inodes;
	struct client_leases leases;
	struct names names;
	uint64_t kernel_until_us; /* the latest of all inodes, */
	uint64_t kernel_lost_us;  /* and of those that are not known (any more) */
	uint64_t former_us;       /* when a former process ended at the latest; 0: none did */
	struct writeback wb;
	uint64_t n_chunk_leases;
	uint64_t leases_gone; /* those with lower numbers have ended: a former process had them */
	uint64_t n_retracted; /* writes that were accepted and have to be repeated: a counter */
	/* reclaim.c: struct promise of the changes under way; counts processes of targets. */
	struct list promises;
	struct waitq promise_q;
	uint64_t lives;
	struct readahead ra;
	struct latencies latencies;      /* of reads from the member asked first */
	struct latencies many_latencies; /* the same, of many at once */
	struct dir_batch dirs[READDIR_CACHE];
	struct waitq dirs_q;
	uint32_t n_dirs_coming;
	struct dir_look look;

	/* Fibers in the background, which destroy waits for. */
	struct latch bg;
	uint32_t n_mends;     /* of them: set right what the MDS has of our locks */
	struct waitq company; /* closes that wait for a request to go with */
	struct timer tick;
	struct list free_files, free_groups; /* the second: of read_many.c */
	uint32_t n_free_groups;

	/* kept.c */
	struct ll_kept *kept;
	uint64_t seq_base;
	struct idata *reopening_lost; /* what a new session was refused is tried again; or NULL */
	bool taking_over;       /* the MDS still counts what a former process had open */
	bool reopening;         /* files are not open yet in a session that is new */
	bool resuming;          /* what has become of the data of a former process is not noted */
	bool resumes_other;     /* the session is another one than it had */
	bool telling;           /* it has not been told yet what of that is still open */
	uint64_t settled_at_us; /* when what that had begun is over; 0: it is */
	struct list requests; /* struct ll_request */
	uint32_t n_held, next_mark;
	struct turnq held_turn;

	uint32_t n_files, n_free_files;
	struct ll_stats stats;
};

/* A fiber that client_destroy waits for; fn calls client_bg_end last. 0 or why there is none. */
int client_bg_spawn(struct client *c, const char *name, void (*fn)(void *arg),
		    void *arg) CHECK_RESULT;
void client_bg_end(struct client *c);
/* A fiber's own deadline or the client's for one operation, whichever comes first. */
uint64_t client_deadline(const struct client *c);

#endif
