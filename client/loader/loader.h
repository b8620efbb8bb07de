/*
 * The pipeline of one loader: a few slots, filled ahead in the order in which they will be wanted
 * by fibers of the data set's loops, handed out by leat_next, given back by leat_batch_unref.
 *
 * Slots go FREE -> (PLANNED) -> FILL -> READY or ERROR -> HELD -> FREE. Steps are claimed, and
 * their memory is reserved, in order: a later step never takes what an earlier one needs. PLANNED
 * is the one step that waits for memory. A jump (epoch, state, error) raises gen: what belongs to
 * an older one is freed when it comes back.
 *
 * `lock` guards everything but the contents of slots; user threads and loops take it briefly.
 */
#ifndef LEAT_LOADER_LOADER_H
#define LEAT_LOADER_LOADER_H

#include <pthread.h>

#include "client/loader/batch.h"

#define LOADER_MAGIC          0x4c4c4452u /* LLDR */
#define LOADER_DEPTH_MAX      64u
#define LOADER_DEPTH_AUTO     8u   /* at most, where the loader finds its depth */
#define LOADER_DELAYS         100u /* fills of which the slowest counts: their p99 */
#define LOADER_MEMORY_DEFAULT ((uint64_t)1 << 30)

/* The loader's fibers on one loop. */
struct filler {
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
	_Atomic uint32_t refs; /* of the user, and of each held batch */
	struct leat_dataset *ds;
	struct field_set set;
	struct order_deal deal;
	enum order_mode mode;
	uint32_t window, rank, world;
	uint32_t stride, phase; /* which steps of an epoch */
	uint64_t seed, steps, first_epoch, epochs;
	int on_error;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct leat_batch *slots;
	uint32_t n_slots;
	uint64_t gen, given_back;
	uint32_t ahead; /* batches that are filled or ready at once, of n_slots */
	bool auto_depth;
	uint64_t delays_us[LOADER_DELAYS]; /* of the last fills: what they waited for others */
	uint64_t n_delays;
	uint64_t step_us,
		busy_us; /* what the user does with a batch takes, about; since the last */
	uint64_t issue_epoch, issue_step; /* the next to be claimed */
	uint64_t want_epoch, want_step;   /* the next to be handed out */
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
	struct gds *gds;            /* NULL: nothing is read there directly */

	struct leat_loader_metrics m;
	uint64_t returned_us; /* leat_next, the last time; 0: never */
};

/* ---- loader_fill.c ---- */
int loader_start(struct leat_loader *ld) CHECK_RESULT;
void loader_stop(struct leat_loader *ld); /* waits for the fibers */
/* With the lock: there may be work. */
void loader_wake(struct leat_loader *ld);
/* With the lock: goes on with that step; what was read ahead is dropped. */
void loader_jump(struct leat_loader *ld, uint64_t epoch, uint64_t step);
/* With the lock: the slot that holds the wanted step, or NULL. */
struct leat_batch *loader_wanted(struct leat_loader *ld);
/* With the lock: the wanted step can never come while the user holds what he holds. */
bool loader_is_held(const struct leat_loader *ld);
/* With the lock: makes event_fd tell the truth. */
void loader_update_event(struct leat_loader *ld);
bool loader_at_end(const struct leat_loader *ld); /* with the lock: of all epochs asked for */
void loader_unref(struct leat_loader *ld);

#endif
