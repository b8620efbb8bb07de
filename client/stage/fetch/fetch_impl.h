/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a fetch, which the files fetch*.c share, and how it fails. Owned by the loop of the
 * fetch. */
#ifndef LEAT_CLIENT_STAGE_FETCH_FETCH_IMPL_H
#define LEAT_CLIENT_STAGE_FETCH_FETCH_IMPL_H

#include "client/stage/fetch/fetch.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define FETCH_WIDTH 16u /* chunks in flight */
/*
 * With other nodes, an answer may have to come down a tree of them, so many chunks must be in
 * flight. On a slow link each would then take so long that nodes seem dead. So the number begins
 * with FETCH_WIDTH_FIRST, grows while chunks take less than QUICK_US, and shrinks when one takes
 * longer than SLOW_US.
 */
#define FETCH_WIDTH_PEERS 32u
#define FETCH_WIDTH_FIRST 4u
#define QUICK_US          500000u
#define SLOW_US           1000000u
#define FILES_WIDTH       8u /* files examined concurrently */
#define BUFFERS           16u
#define OPEN_MAX          256u /* part files that wait for a checkpoint */

/* A file in progress: part/N is open. */
struct part {
	struct list link; /* in fetch.parts */
	struct fetch *fetch;
	uint32_t index, refs;
	const struct manifest_file *f;
	struct env_file *file;
	/* The same file, opened with O_DIRECT. NULL: other nodes read what was just written, or
	 * the file system cannot do it. */
	struct env_file *direct;
	struct vol_file *source; /* opened with the first missing chunk */
	struct fmutex lock;      /* of opening either */
	bool complete;           /* every chunk verified: gets its name at the next checkpoint */
	bool ended;              /* freed with its last reference */
	uint8_t *fresh,
		*syncing; /* bits of chunks written since the last checkpoint, and of those that
			   * a checkpoint is syncing */
	int rc;
};

/* The state of a file, open or not. */
struct work {
	struct part *part; /* NULL: not open */
	uint32_t missing;  /* chunks without verified content */
	bool existed;      /* a file existed before this run and may hold good chunks */
	bool opened;       /* by this run, once */
	bool left_out;     /* does not belong to this node's share */
};

struct fetch {
	struct fetch_options o;
	struct slot_pool *pool;
	bool own_pool;
	struct fetch_report report;
	struct detail *d;
	int code;
	int rc; /* the first failure, which stops all fibers */
	bool preallocated, over;
	uint32_t next_file;
	uint64_t next, n_plan;    /* of the plan */
	uint32_t width, n_active; /* chunks that may be, and are, in flight */
	uint64_t narrowed_us;
	struct work *work; /* one per file */
	uint8_t *claimed, *done, *in_window;
	uint64_t window_left;
	struct list parts;
	uint32_t n_parts;
	uint64_t fresh_bytes, checkpoint_us;
	bool named;         /* the folders of the copy are durable */
	uint32_t new_parts; /* bit k: directory k has new part files, and their names are not
			     * durable */
	struct fmutex checkpoint_lock;
	struct waitq arrived; /* a chunk is done, or something has failed */
	uint32_t n_givers;
	char last_dir[STORE_PATH_SIZE]; /* the folder that was made last */
	uint64_t n_bad;
};

static inline bool bit_get(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}
static inline void bit_set(uint8_t *bits, uint64_t i)
{
	bits[i / 8] |= (uint8_t)(1u << i % 8);
}

/* Ends the run with rc and code (enum leat_stage_code), unless it has failed before. All fibers
 * stop after their present chunk. Does not yield. */
void fetch_fail(struct fetch *ft, int rc, int code, const char *path, uint64_t off,
		const char *what);
/* fetch_fail with the code that stands for a status of the local disk. */
void fetch_fail_local(struct fetch *ft, int rc, const char *path, const char *what);
/* fetch_fail with the code that stands for a status of reading the source. */
void fetch_fail_source(struct fetch *ft, int rc, const struct manifest_file *f, uint64_t off,
		       const char *what);
/* Returns whether the run has failed or was cancelled. */
bool fetch_stopped(struct fetch *ft);
/* Reports progress to the caller. Does not yield. */
void fetch_tell(struct fetch *ft);
/* Runs fn (its argument: struct fetch **) in `width` fibers, at most FETCH_WIDTH_PEERS, and waits
 * for them. Yields. */
void fetch_run_wide(struct fetch *ft, const char *name, void (*fn)(void *arg), uint32_t width);

#endif
