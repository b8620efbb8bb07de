/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline of one loader. Fibers of the data set's loops fill a few slots ahead, in the order
 * in which they will be needed; leat_next hands them out and leat_batch_unref returns them.
 *
 * Slots go FREE -> (PLANNED) -> FILL -> READY or ERROR -> HELD -> FREE. Steps are claimed, and
 * their memory is reserved, in order, so a later step never uses memory that an earlier step needs.
 * PLANNED is the one step that waits for memory. A jump (epoch, state, error) increments gen; a
 * batch with an older gen is freed when it is filled.
 *
 * `lock` guards everything but the contents of slots; user threads and loops hold it briefly.
 */
#ifndef LEAT_CLIENT_LOADER_BATCH_LOADER_H
#define LEAT_CLIENT_LOADER_BATCH_LOADER_H

#include <pthread.h>

#include "client/loader/batch/batch.h"

#define LOADER_MAGIC          0x4c4c4452u /* LLDR */
#define FILLER_MAGIC          0x4c464c52u /* LFLR */
#define LOADER_DEPTH_MAX      64u
#define LOADER_DEPTH_AUTO     8u   /* limit of the depth that the loader chooses itself */
#define LOADER_DELAYS         100u /* recent fills, of which the slowest counts (about p99) */
#define LOADER_MEMORY_DEFAULT ((uint64_t)1 << 30)

/* The loader's fibers on one loop. */
struct filler {
	uint32_t magic;
	struct leat_loader *ld;
	struct reader *reader;
	struct waitq idle;
	struct latch running;
	struct mail mail;
	_Atomic bool posted;
	bool started;
	int rc;
};

struct leat_loader {
	uint32_t magic;
	_Atomic uint32_t refs; /* the user's, and one for each held batch */
	struct leat_dataset *ds;
	struct field_set set;
	struct order_deal deal;
	enum order_mode mode;
	uint32_t window, rank, world;
	uint32_t stride, phase; /* which steps of an epoch are this loader's */
	uint64_t seed, steps, first_epoch, epochs;
	int on_error;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct leat_batch *slots;
	uint32_t n_slots;
	uint64_t gen, given_back;
	uint32_t ahead; /* limit for batches in FILL or READY, at most n_slots */
	bool auto_depth;
	uint64_t delays_us[LOADER_DELAYS]; /* of the last fills: time in waits for I/O and
					    * decoders */
	uint64_t n_delays;
	uint64_t step_us, busy_us; /* average time of the user's work on a batch; that time since
				    * the last batch */
	uint64_t issue_epoch, issue_step; /* the next step to be claimed */
	uint64_t want_epoch, want_step;   /* the next step to be handed out */
	struct sequence order;
	struct cache *cache;       /* NULL: none */
	struct decoders *decoders; /* NULL: none */
	uint64_t memory, memory_limit;
	_Atomic bool stopping;
	int event_fd;
	bool event_set;
	struct filler fillers[DATASET_THREADS_MAX + 1];
	uint32_t n_fillers;
	struct cuda_device *device; /* NULL: no GPU */
	struct gds *gds;            /* NULL: no direct reads */

	struct leat_loader_metrics m;
	uint64_t returned_us; /* time of the last return of leat_next; 0: none */
};

#endif
