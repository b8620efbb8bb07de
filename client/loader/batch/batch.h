/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch and its slot. The plan says which bytes of which files are placed where in the slot;
 * filling reads and verifies them. The slot's memory is a shared mapping of a memfd, which grows
 * for a larger batch and is reused until the loader ends.
 *
 *   batch_plan   any thread, under the owner's lock
 *   batch_fill   a fiber of a reader's loop, when the slot has memory
 */
#ifndef LEAT_CLIENT_LOADER_BATCH_BATCH_H
#define LEAT_CLIENT_LOADER_BATCH_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "client/loader/source/cache.h"
#include "client/loader/source/dataset.h"
#include "client/loader/source/reader.h"

#define BATCH_MAGIC       0x4c424154u /* LBAT */
#define BATCH_SAMPLES_MAX (1u << 20)
#define BATCH_ROWS        64u
#define BATCH_CELLS_MAX   ((uint64_t)1 << 27) /* rows times samples */
#define BATCH_BYTES_MAX   ((uint64_t)1 << 46) /* within the address space of a process */
#define PIECE_MAX         (4u << 20)          /* a multiple of every block size */

/* Which fields a batch carries: shared by the batches of a loader. */
struct field_set {
	uint32_t n;
	int32_t *place; /* for each field of the index, its place in this set, or -1; NULL: all
			 * fields, in order */
};
/* Makes a set of the named fields of ds; names NULL: all fields. -LE_NOENT: ds lacks one of
 * them, which leat_last_error names. */
int field_set_init(struct field_set *s, const struct leat_dataset *ds,
		   const char *const *names) CHECK_RESULT;
void field_set_fini(struct field_set *s);
static inline int32_t field_place(const struct field_set *s, uint32_t field)
{
	return s->place ? s->place[field] : (int32_t)field;
}

/* Bytes of a file that one read fetches. */
struct piece_io {
	uint32_t file;
	uint32_t len;
	uint64_t off, dst;
	uint32_t sample; /* number in the batch; with a cache, the only sample that uses the
			  * piece */
	uint32_t run;
	uint32_t got; /* bytes that were read and compared */
};

/* Pieces that follow each other in the file and in the slot. When the last of them is complete,
 * the jobs from first_job to the next run's first_job are executed. */
struct batch_run {
	uint32_t left; /* pieces that are not complete */
	uint32_t first_job;
	uint32_t next_sum; /* the first job with an incomplete checksum */
};

/* A member to be unpacked, or to be compared with the checksum in its file. */
struct member_job {
	struct leat_batch *b;
	const struct index_member *m;
	uint64_t src;         /* in the slot, as read */
	uint32_t sample, row; /* in the batch */
	uint32_t sum;           /* CRC-32C of its first `summed` bytes */
	uint64_t summed;
};

/* One call of a decoder: one field of one sample. */
struct decode_job {
	uint64_t dst;             /* of the result, in the slot */
	uint32_t sample, decoder; /* index in the batch; index in the loader's table */
};

/* Bytes of the slot that are wrong or missing. */
struct bad_range {
	uint64_t dst, len;
};

struct block_sums;
struct cuda_slot;
struct user_memory;
struct transport;

enum batch_state {
	BATCH_FREE,
	BATCH_PLANNED,
	BATCH_FILL,
	BATCH_READY,
	BATCH_ERROR,
	BATCH_HELD,
	N_BATCH_STATES
};
enum batch_phase {
	PHASE_OPEN,
	PHASE_READ,
	PHASE_PEER, /* like PHASE_READ, but from another node */
	PHASE_VERIFY,
	PHASE_DECODE
};

/* `state` has the phases of the slot. The bools are independent of it and of each other: what the
 * bytes are (verified, direct) and how they are to be handled (skip_bad, timed, not_registered). */
struct leat_batch {
	uint32_t magic;
	_Atomic uint32_t refs;
	struct leat_dataset *ds; /* borrowed; a reference while held */
	struct leat_loader *ld;  /* NULL: leat_dataset_read made the batch */
	struct cache *cache;     /* NULL: none */
	const struct field_set *set;
	struct field_set own_set;

	/* Guarded by the loader's lock. */
	enum batch_state state;
	uint64_t gen, epoch, step;
	uint64_t time;       /* time of its first sample (sequence.h) */
	uint64_t starved_at; /* PLANNED: loader.given_back when memory last did not suffice */

	/* Owned by the fiber that plans and fills; read-only while held. */
	uint32_t n, cap;     /* samples */
	uint64_t *ids;       /* cap */
	int64_t *labels;     /* cap */
	/* Rows of `cap` cells: offset and length of a field's bytes for each sample. Row 0
	 * stands for all fields that no sample has. With up to BATCH_ROWS fields each field has
	 * a row, in order; with more, only fields that a sample has. */
	uint64_t *off, *len;
	uint32_t n_rows, cap_rows;
	uint32_t *row_of;   /* for each place in the set; 0: none */
	uint32_t *place_of; /* for each row */
	bool *decoded;      /* for each row: a decoder has written it */
	struct piece_io *pieces;
	uint32_t n_pieces, cap_pieces, next_piece;
	struct batch_run *runs; /* one more than n_runs: the last one ends the jobs */
	uint32_t n_runs, cap_runs;
	struct member_job *jobs;
	uint32_t n_jobs, cap_jobs;
	struct decoders *decoders;  /* NULL: none */
	struct decode_job *decodes; /* enough for cap samples */
	uint8_t *lost;              /* cap: samples that cannot be delivered, for any reason */
	uint32_t n_decodes;
	uint64_t need;         /* bytes needed in the slot */
	struct bad_range *bad; /* bad ranges of the slot, with skip_bad */
	uint32_t n_bad, cap_bad;
	struct reader *reader; /* while it is filled */
	_Atomic int phase;     /* enum batch_phase, for metrics */
	bool verified, skip_bad;
	bool direct;       /* the bytes are only on the device */
	bool timed;        /* the time to reach the device is to be measured */
	uint64_t began_us; /* start of that measurement */
	uint32_t n_skipped;
	uint64_t bytes_local, bytes_server, bytes_peer, bytes_direct, bytes_verified;
	uint64_t bytes_mended; /* were wrong at the source and replaced */
	uint64_t blocks_stale; /* of a name: differ from the manifest at the source */
	uint64_t at_hand_us;   /* part of the time to fill that copied bytes from memory */
	int rc;
	struct detail d; /* of the first failure */

	int fd;
	uint8_t *base;
	uint64_t mapped;
	/* Registration of the memory with network cards, which receive into it. */
	struct transport *registered_with;
	struct user_memory *user_memory;
	bool not_registered;          /* the registration failed */
	struct cuda_slot *cuda; /* NULL: the loader has no GPU */
};

static inline size_t batch_at(const struct leat_batch *b, uint32_t row, uint32_t sample)
{
	return (size_t)row * b->cap + sample;
}
/* Allocates the arrays of a batch of up to cap samples. batch_set_memory allocates slot memory.
 * -LE_NOMEM */
int batch_init(struct leat_batch *b, struct leat_dataset *ds, const struct field_set *set,
	       uint32_t cap) CHECK_RESULT;
void batch_fini(struct leat_batch *b);
/* Moves the slot to another state. With the owner's lock. Does not yield. */
void batch_move(struct leat_batch *b, enum batch_state to);

/* Returns the slot memory that a batch of `need` bytes occupies. */
uint64_t batch_memory_for(uint64_t need);
/* Registers the slot memory with t's network cards, so that they receive data from servers and
 * nodes into it. If that fails, data is copied. Yields. */
void batch_register(struct leat_batch *b, struct transport *t);
/* Undoes batch_register, before the transport is destroyed. No read may be in flight. */
void batch_unregister(struct leat_batch *b);
/* Sets the size of the slot memory to at least that many bytes; its contents are lost. 0 frees
 * all. No reader may be using it. */
int batch_set_memory(struct leat_batch *b, uint64_t bytes) CHECK_RESULT;
/* Reads and verifies all pieces of a planned batch, concurrently, in a fiber of the reader's
 * loop. With skip_bad, removes samples that cannot be read. Sets b->rc, and b->d on failure.
 * Yields. */
void batch_fill(struct leat_batch *b, struct reader *r);

#endif
