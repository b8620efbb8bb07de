/* What the files fetch*.c share. Owned by the loop of the fetch. */
#ifndef LEAT_STAGE_FETCH_IMPL_H
#define LEAT_STAGE_FETCH_IMPL_H

#include "client/stage/fetch.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define FETCH_WIDTH 16u /* chunks at once */
/*
 * Where other nodes are asked, an answer may have to come down a tree of them, so that many have to
 * be under way; but on a slow link each then takes so long that nodes would pass for dead. So there
 * are at first FETCH_WIDTH_FIRST, more while they take less than QUICK_US, fewer when one takes
 * longer than SLOW_US.
 */
#define FETCH_WIDTH_PEERS 32u
#define FETCH_WIDTH_FIRST 4u
#define QUICK_US          500000u
#define SLOW_US           1000000u
#define FILES_WIDTH       8u /* files looked at at once */
#define BUFFERS           16u
#define OPEN_MAX          256u /* part files that wait for a checkpoint */

/* A file that is being worked on: part/N is open. */
struct part {
	struct list link; /* in fetch.parts */
	struct fetch *fetch;
	uint32_t index, refs;
	const struct manifest_file *f;
	struct env_file *file;
	/* The same file, past the page cache: NULL where other nodes read what was just written, or
	 * where it cannot be. */
	struct env_file *direct;
	struct vol_file *source; /* opened with the first missing chunk */
	struct fmutex lock;      /* of opening either */
	bool complete;           /* every chunk verified: gets its name at the next checkpoint */
	bool ended;              /* goes with its last reference */
	uint8_t *fresh,
		*syncing; /* bits of chunks written since the last checkpoint, and under sync */
	int rc;
};

/* What is known of a file, open or not. */
struct work {
	struct part *part; /* NULL: not open */
	uint32_t missing;  /* chunks without verified content */
	bool existed;      /* there was something of it before: may hold good chunks */
	bool opened;       /* by this run, once */
	bool left_out;     /* not of this node's share */
};

struct fetch {
	struct fetch_options o;
	struct slot_pool *pool;
	bool own_pool;
	struct fetch_report report;
	struct detail *d;
	int code;
	int rc; /* the first failure: all stop */
	bool prepared, over;
	uint32_t next_file;
	uint64_t next, n_plan;    /* of the plan */
	uint32_t width, n_active; /* chunks that may be, and are, under way */
	uint64_t narrowed_us;
	struct work *work; /* one per file */
	uint8_t *claimed, *done, *in_window;
	uint64_t window_left;
	struct list parts;
	uint32_t n_parts;
	uint64_t fresh_bytes, checkpoint_us;
	bool named;         /* the folders of the copy are durable */
	uint32_t new_parts; /* bit k: directory k has part files whose names are not durable */
	struct fmutex checkpoint_lock;
	struct waitq arrived; /* a chunk is done, or something has failed */
	uint32_t n_givers;
	char last_dir[STORE_PATH_SIZE]; /* made already */
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

/* ---- failures (fetch.c) ---- */
void fetch_fail(struct fetch *ft, int rc, int code, const char *path, uint64_t off,
		const char *what);
void fetch_fail_local(struct fetch *ft, int rc, const char *path, const char *what);
bool fetch_stopped(struct fetch *ft);
void fetch_tell(struct fetch *ft);

/* ---- fetch_part.c: part files and checkpoints ---- */
/* Looks at what there is of a file; what is complete but has not got its name is given to the next
 * checkpoint. Yields. */
void part_settle(struct fetch *ft, uint32_t file);
/* Opened. NULL: failed, and told. Yields. */
struct part *part_get(struct fetch *ft, uint32_t file);
void part_put(struct part *p);
/* Bytes of a chunk, from a slot. Yields. */
int part_write(struct part *p, const void *buf, uint32_t len, uint64_t off) CHECK_RESULT;
/* Syncs what is fresh, sets its bits, gives finished files their names. Yields. */
void checkpoint_if_due(struct fetch *ft);
void checkpoint_rest(struct fetch *ft);
/* The directories' names, once all files have theirs. Yields. */
int parts_sync_dirs(struct fetch *ft) CHECK_RESULT;

#endif
