/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write requests in flight to the object servers. A wreq writes a part of one chunk. It runs in a
 * separate fiber, after all older ones of the inode that touch one of its blocks. Small writes are
 * coalesced first, in one slot per inode. A write is in the background only if the target's space
 * grant covers it; otherwise the writer waits and gets the status. The error of a background write
 * is kept with the inode, and each open file reports it once.
 *
 * sent → accepted (visible to every reader of the server) → durable
 *
 * close(2) and reads wait for accepted; fsync, and writes that must be ordered, wait for durable.
 * Until then the wreq keeps its data (compressed once, if the layout enables compression). When the
 * connection breaks, it repeats the request with the same slot and sequence; its state is then sent
 * again.
 *
 * Limits: params.writes_in_flight per chain (its slot table), params.dirty_max bytes, the slot
 * pool. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_WRITE_REQUEST_H
#define LEAT_CLIENT_DATA_WRITE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ll.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/slot.h"

struct inode_io;
struct rpc_call;
struct stripe_part;
struct target;

/* The maximum length of a write request, and its number of pieces with the smallest blocks. */
#define WREQ_LEN_MAX    LL_IO_MAX
#define WREQ_PIECES_MAX (WREQ_LEN_MAX / LEAT_BLOCK_SIZE_MIN + 2)
/* Compressed data is assembled in a slot, which has space for one more block at its end. */
#define SEAL_SLOT_SIZE (WREQ_LEN_MAX + LEAT_BLOCK_SIZE_MAX)

/* A write request. Its phase is `done` and `call`; the other bools are fixed when it is submitted,
 * but for lazy, which a fiber that waits clears. */
struct wreq {
	struct list link; /* in inode_io.writes; or in writeback.free */
	struct inode_io *d;
	uint64_t seq; /* among the inode's writes */
	/* number of the chunk; offset and length in it */
	uint64_t idx;
	uint32_t off, len;
	/* blocks of the chunk that it touches */
	uint32_t block_first, block_last;
	uint64_t deadline_us;
	uint32_t session_gen;
	struct target *target; /* its grant covers the write; NULL: none */
	/* bytes of the target's grant */
	uint64_t reserved;
	int64_t mtime_ns; /* The time of a background write, as reported to programs; 0: the server
			   * sets it. */
	bool behind;      /* no waiter: the inode keeps the error */
	bool pages;       /* WB_PAGES */
	bool reservation;      /* WB_RESERVED */
	bool done;
	int status;
	const struct rpc_call *call; /* while the request is in flight */
	/* lazy: no fiber waits for durability; sent_lazy: it was when the request was sent. */
	bool lazy, sent_lazy;
	uint32_t n_vec, n_pieces;
	struct slot_vec vec[LL_VECS_MAX];
	uint8_t pieces[WREQ_PIECES_MAX * PIECE_WIRE_SIZE];
};

/* The write-back state of a client. */
struct writeback {
	struct list coalescing; /* struct coalesce, oldest first */
	uint32_t n_coalescing;
	uint64_t dirty; /* bytes accepted from programs and not confirmed */
	struct waitq q; /* waiters for a smaller dirty */
	struct list free;
	uint32_t n_free;
};

/* Initialises, and frees the unused requests. Neither yields. */
void wb_init(struct writeback *wb);
void wb_fini(struct writeback *wb);

/* How a range is written. */
enum wb_how {
	WB_BEHIND = 1, /* in the background, if the grant covers it */
	WB_PAGES = 2,  /* accepted even while other clients cache older pages */
	WB_RESERVED = 4, /* in an append reservation: -LE_SESSION_GONE in another session */
};

/*
 * Starts writing a part of a chunk; takes its own references to the slots. how: of enum wb_how.
 * With WB_BEHIND, if the grant covers it, *ret_wait is NULL and the bytes count as dirty. Otherwise
 * the caller must call wb_wait for *ret_wait. Returns 0, -LE_INVAL or -LE_NOMEM. Does not yield.
 */
int wb_submit(struct inode_io *d, const struct stripe_part *part, const struct slot_vec *vec,
	      uint32_t n, unsigned how, struct wreq **ret_wait) CHECK_RESULT;
/* Waits until the write is accepted or has ended. Returns 0 or its status; -LE_INTR. Does not free
 * it. Yields. */
int wb_await_visible(const struct wreq *w) CHECK_RESULT;
/* Waits for the end of the write and frees it. Returns its status. -LE_INTR: the write continues in
 * the background. Yields. */
int wb_wait(struct wreq *w) CHECK_RESULT;
/* Writes a part of a chunk in the caller's fiber, and returns the status. Yields. */
int wb_write_now(struct inode_io *d, const struct stripe_part *part, const struct slot_vec *vec,
		 uint32_t n, unsigned how) CHECK_RESULT;

/* Expedites durability of everything written so far: a fiber waits for it. Does not yield. */
void wb_expedite(struct inode_io *d);

/* Starts a background write of coalesced bytes, with their grant reservation. Takes over the slot.
 * Does not yield. */
void wb_submit_coalesced(struct inode_io *d, uint64_t idx, uint32_t off, struct slot_vec vec,
			struct target *t, uint64_t reserved);

/* Returns true if a write in flight overlaps [off, off + len) of the file. visible_too: accepted
 * writes count too. Does not yield. */
bool wreq_overlaps(const struct inode_io *d, uint64_t off, uint64_t len, bool visible_too);

#endif
