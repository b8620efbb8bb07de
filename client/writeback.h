/*
 * Writes on their way to the object servers. A wreq is one write of a part of one chunk; it runs in
 * a fiber of its own, after all older ones of the same inode that touch one of its blocks. Small
 * writes are gathered first (one slot per inode). Written behind is only what a target's space
 * grant covers; the rest has a waiter, who gets the status. What is written behind and fails is
 * kept as the inode's error, which each open file reports once.
 *
 *   sent → accepted (every reader of the server sees it) → durable
 *
 * close(2) and reads wait for accepted, fsync and all that must be ordered for durable. Until then
 * the wreq keeps its data (compressed once, if the layout asks for it), and repeats the request,
 * with the same slot and sequence, when the connection breaks: it is back to sent then.
 *
 * Bounds: params.writes_in_flight per target (its slot table), params.dirty_max bytes, the slot
 * pool. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_WRITEBACK_H
#define LEAT_CLIENT_WRITEBACK_H

#include "client/ll.h"
#include "client/stripe.h"

struct client;
struct idata;
struct target;

/* The most that one ll_write or one write request carries, and the smallest block: so many pieces
 * at most. */
#define WREQ_LEN_MAX    LL_IO_MAX
#define WREQ_PIECES_MAX (WREQ_LEN_MAX / LEAT_BLOCK_SIZE_MIN + 2)
/* What is compressed is put together in a slot, with room behind it for one block. */
#define SEAL_SLOT_SIZE (WREQ_LEN_MAX + LEAT_BLOCK_SIZE_MAX)
/* At least this much is sent at once and not gathered. */
#define GATHER_BELOW (128u << 10)

struct wreq {
	struct list link; /* of idata.writes; of writeback.free */
	struct idata *d;
	uint64_t seq; /* of the inode's writes */
	uint64_t idx;
	uint32_t off, len;
	uint32_t block_first, block_last;
	uint64_t deadline_us;
	uint32_t session_gen;
	struct target *target; /* whose grant it uses; NULL: none */
	uint64_t reserved;
	int64_t mtime_ns; /* when it was written behind, as was told; 0: the server tells */
	bool behind; /* nobody waits: errors go to the inode */
	bool pages;  /* as WB_PAGES says */
	bool placed; /* as WB_PLACED says */
	bool done;
	int status;
	const struct rpc_call *call; /* while it is with the server */
	bool lazy, sent_lazy;        /* nobody waits until it is durable; when it was sent */
	uint32_t n_vec, n_pieces;
	struct slot_vec vec[LL_VECS_MAX];
	uint8_t pieces[WREQ_PIECES_MAX * PIECE_WIRE_SIZE];
};

struct writeback {
	struct list gathers; /* struct gather, oldest first */
	uint32_t n_gathers;
	uint64_t dirty; /* bytes accepted and not confirmed */
	struct waitq q; /* dirty went down */
	struct list free;
	uint32_t n_free;
};

void wb_init(struct writeback *wb);
void wb_fini(struct writeback *wb);

enum wb_how {
	WB_BEHIND = 1, /* nobody waits, if the grant covers it */
	WB_PAGES = 2,  /* accepted also while others show what was there before */
	WB_PLACED = 4, /* where an append was placed: -LE_SESSION_GONE in another session */
};

/*
 * Starts writing part of a chunk; takes references of its own to the slots. how: of enum wb_how.
 * With WB_BEHIND, and when the grant covers it, *ret_wait is NULL and the bytes count as dirty.
 * Else *ret_wait has to be waited for with wb_wait. Does not yield.
 */
int wb_submit(struct idata *d, const struct stripe_part *part, const struct slot_vec *vec,
	      uint32_t n, unsigned how, struct wreq **ret_wait) CHECK_RESULT;
/* Until everybody sees it, or it has ended: its status then. Does not free it. -LE_INTR. Yields. */
int wb_await_shown(const struct wreq *w) CHECK_RESULT;
/* The status of the write; frees it. -LE_INTR: the write goes on behind. Yields. */
int wb_wait(struct wreq *w) CHECK_RESULT;
/* The same as wb_submit without WB_BEHIND and wb_wait, in the caller's fiber. */
int wb_write_now(struct idata *d, const struct stripe_part *part, const struct slot_vec *vec,
		 uint32_t n, unsigned how) CHECK_RESULT;

/* Sends what is gathered and waits until everything written so far is durable or has failed. Errors
 * are left with the inode. -LE_INTR. Yields. */
int wb_flush(struct idata *d) CHECK_RESULT;
/* The same without haste: nobody waits for who waits here. */
int wb_drain(struct idata *d) CHECK_RESULT;
/* Somebody waits until what was written so far is durable. Does not yield. */
void wb_hurry(struct idata *d);
/* The same as wb_flush, but waits only until every client sees it: a server has accepted it. */
int wb_show(struct idata *d) CHECK_RESULT;
/* Is anything written that a server has not accepted? */
bool wb_is_hidden(const struct idata *d);
/* The same for what touches [off, off + len) of the file. */
int wb_show_range(struct idata *d, uint64_t off, uint64_t len) CHECK_RESULT;
/* Is something of [off, off + len) of the file gathered or under way? */
bool wb_pending(const struct idata *d, uint64_t off, uint64_t len);
/* Holds a writer back while too much is dirty, or its own writes hold too much of the pool that its
 * bytes are in. Yields. */
int wb_throttle(struct idata *d, const struct slot_pool *pool) CHECK_RESULT;
/* The session is gone: gathered data is dropped with an error, and what servers confirmed, and the
 * size, is no longer known to be there. Does not yield. */
void wb_session_gone(struct idata *d);
void wb_set_error(struct idata *d, int status);

/* ---- gather.c ---- */
/* Copies len bytes at part of a chunk to what is gathered. *ret_taken: false when there is no grant
 * or memory for it, or the session has ended meanwhile; then it has to be written through. May send
 * what was there. Yields. */
int gather_write(struct idata *d, const struct stripe_part *part, const struct slot_vec *vec,
		 uint32_t n, bool *ret_taken) CHECK_RESULT;
/* Sends what is gathered; nothing if there is nothing. Does not yield. */
void gather_submit(struct idata *d);
void gather_submit_all(struct client *c, uint64_t since_before_us);
/* Its bytes are gone: the session's end. Returns whether there were any. */
bool gather_drop(struct idata *d);
bool gather_overlaps(const struct idata *d, uint64_t off, uint64_t len);
/* The gathered bytes with their reservation, for gather_submit: written behind. Takes the slot
 * over. */
void wb_submit_gathered(struct idata *d, uint64_t idx, uint32_t off, struct slot_vec vec,
			struct target *t, uint64_t reserved);

/* ---- space grants ---- */
bool grant_reserve(struct target *t, uint64_t len);
void grant_release(struct target *t, uint64_t len);
/* What a write of len bytes at off may need: whole blocks. */
uint64_t grant_need(uint32_t block_size, uint64_t off, uint64_t len);
uint64_t grant_want(const struct client *c);
/* Asks the targets of a file in the background when there is little left. Does not yield. */
void grant_ask(struct idata *d);
/* At the end: what this client does not need any more is others' at once, not when the servers
 * have missed it for a while. Waits for servers that are there, briefly. Yields. */
void grant_return_all(struct client *c);

#endif
