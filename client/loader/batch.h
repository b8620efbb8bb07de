/*
 * A batch and the slot it lies in. The plan says which bytes of which files land where; filling
 * reads and verifies them. A slot's memory is a shared mapping of a memfd, grown when a larger
 * batch comes, reused for ever.
 *
 *   batch_plan (any thread, under the owner's lock) -> memory -> batch_fill (a fiber of a reader's
 * loop)
 */
#ifndef LEAT_LOADER_BATCH_H
#define LEAT_LOADER_BATCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "client/loader/cache.h"
#include "client/loader/dataset.h"
#include "client/loader/reader.h"

#define BATCH_MAGIC       0x4c424154u /* LBAT */
#define BATCH_SAMPLES_MAX (1u << 20)
#define BATCH_ROWS        64u
#define BATCH_CELLS_MAX   ((uint64_t)1 << 27) /* rows times samples */
#define BATCH_BYTES_MAX   ((uint64_t)1 << 46) /* a process has no more addresses */
#define PIECE_MAX         (4u << 20)          /* a multiple of every block size */

/* Which fields a batch carries: shared by the batches of a loader. */
struct field_set {
	uint32_t n;
	int32_t *place; /* of each field of the index in this set, or -1; NULL: all, in order */
};
/* names NULL: all. -LE_NOENT for an unknown one, which is named in leat_last_error. */
int field_set_init(struct field_set *s, const struct leat_dataset *ds,
		   const char *const *names) CHECK_RESULT;
void field_set_fini(struct field_set *s);
static inline int32_t field_place(const struct field_set *s, uint32_t field)
{
	return s->place ? s->place[field] : (int32_t)field;
}

/* Bytes of a file that are read at once. */
struct piece_io {
	uint32_t file;
	uint32_t len;
	uint64_t off, dst;
	uint32_t sample; /* in the batch; with a cache, the only one that it is read for */
	uint32_t run;
	uint32_t got; /* bytes that are there, and were looked at */
};

/* Pieces that follow each other in the file and in the slot, and what is to be done with their
 * members when the last of them is there: the jobs up to the next run's first. */
struct batch_run {
	uint32_t left; /* pieces */
	uint32_t first_job;
	uint32_t next_sum; /* the first job whose member's sum is not complete yet */
};

/* A member that is unpacked, or checked against what its format says. */
struct member_job {
	struct leat_batch *b;
	const struct index_member *m;
	uint64_t src;         /* in the slot, as read */
	uint32_t sample, row; /* in the batch */
	uint32_t sum;           /* CRC-32C of its first `summed` bytes */
	uint64_t summed;
};

/* What a decoder makes of a field of a sample. */
struct decode_job {
	uint64_t dst;             /* in the slot */
	uint32_t sample, decoder; /* in the batch; in the loader's table */
};

/* Bytes of the slot that are not what they should be. */
struct bad_range {
	uint64_t dst, len;
};

struct block_sums;
struct cuda_slot;
struct lent_memory;
struct transport;

enum batch_state {
	BATCH_FREE,
	BATCH_PLANNED,
	BATCH_FILL,
	BATCH_READY,
	BATCH_ERROR,
	BATCH_HELD
};
enum batch_phase {
	PHASE_OPEN,
	PHASE_READ,
	PHASE_PEER, /* as PHASE_READ, from another node */
	PHASE_VERIFY,
	PHASE_DECODE
};

struct leat_batch {
	uint32_t magic;
	_Atomic uint32_t refs;
	struct leat_dataset *ds; /* a reference while held */
	struct leat_loader *ld;  /* NULL: made by leat_dataset_read */
	struct cache *cache;     /* NULL: none */
	const struct field_set *set;
	struct field_set own_set;

	/* Guarded by the loader's lock. */
	enum batch_state state;
	uint64_t gen, epoch, step;
	uint64_t time;       /* of its first sample (sequence.h) */
	uint64_t starved_at; /* PLANNED, but for want of memory when so many batches had been given
				back */

	/* Of whoever plans and fills; read-only while held. */
	uint32_t n, cap;     /* samples */
	uint64_t *ids;       /* cap */
	int64_t *labels;     /* cap */
	/* Rows of cap: of each sample where its bytes of a field are. Row 0 is of all fields that
	 * no sample has. With BATCH_ROWS fields and fewer each has a row, in their order; of more,
	 * those have that a sample has. */
	uint64_t *off, *len;
	uint32_t n_rows, cap_rows;
	uint32_t *row_of;   /* of each place in the set; 0: none */
	uint32_t *place_of; /* of each row */
	bool *decoded;      /* of each row */
	struct piece_io *pieces;
	uint32_t n_pieces, cap_pieces, next_piece;
	struct batch_run *runs; /* and one more, which says where the jobs end */
	uint32_t n_runs, cap_runs;
	struct member_job *jobs;
	uint32_t n_jobs, cap_jobs;
	struct decoders *decoders;  /* NULL: none */
	struct decode_job *decodes; /* as many as cap samples may have */
	uint8_t *lost;              /* cap: samples that are not to be had, whatever is bad */
	uint32_t n_decodes;
	uint64_t need;         /* bytes of the slot */
	struct bad_range *bad; /* of those that could not be read, with skip_bad */
	uint32_t n_bad, cap_bad;
	struct reader *reader; /* while it is filled */
	_Atomic int phase;     /* enum batch_phase, for metrics */
	bool verified, skip_bad;
	bool direct;       /* its bytes are on the device only */
	bool timed;        /* how long it takes to get there is wanted */
	uint64_t began_us; /* ... from here */
	uint32_t n_skipped;
	uint64_t bytes_local, bytes_server, bytes_peer, bytes_direct, bytes_verified;
	uint64_t bytes_mended; /* that were wrong where they were read, and came from elsewhere */
	uint64_t blocks_stale; /* of a name, that have changed at its source */
	uint64_t at_hand_us;   /* of filling: what was in memory took that long */
	int rc;
	struct detail d; /* of the failure */

	int fd;
	uint8_t *base;
	uint64_t mapped;
	/* Cards receive into it: registered where they need that. */
	struct transport *lent_by;
	struct lent_memory *lent;
	bool not_lent;          /* that failed */
	struct cuda_slot *cuda; /* NULL: nothing of it has to do with a GPU */
};

static inline size_t batch_at(const struct leat_batch *b, uint32_t row, uint32_t sample)
{
	return (size_t)row * b->cap + sample;
}
/* Arrays for cap samples; no slot memory yet. */
int batch_init(struct leat_batch *b, struct leat_dataset *ds, const struct field_set *set,
	       uint32_t cap) CHECK_RESULT;
void batch_fini(struct leat_batch *b);

/* For the b->n samples in b->ids: pieces, offsets, lengths, labels, need. -LE_NOMEM, -LE_2BIG; says
 * so in b->d. (batch_plan.c) */
int batch_plan(struct leat_batch *b) CHECK_RESULT;
/* How much memory a batch of `need` bytes takes. */
uint64_t batch_memory_for(uint64_t need);
/* So that what servers and nodes send lands there, also over a card; if that cannot be, it is
 * copied. In a fiber; yields. */
void batch_lend(struct leat_batch *b, struct transport *t);
/* Before the transport goes. Nothing may be under way. */
void batch_take_back(struct leat_batch *b);
/* At least that much; what it had is gone. 0 gives it all back. Not while anybody reads it. */
int batch_set_memory(struct leat_batch *b, uint64_t bytes) CHECK_RESULT;
/* Reads and verifies all pieces on the reader's loop, in parallel; leaves out bad samples if
 * skip_bad. Sets b->rc and b->d on failure. Yields. */
void batch_fill(struct leat_batch *b, struct reader *r);
/* Some of these bytes of the slot could not be had. */
bool batch_is_bad(const struct leat_batch *b, uint64_t off, uint64_t len);

/* ---- batch_check.c ---- */

/* Bytes of the slot that could not be had. */
void batch_add_bad(struct leat_batch *b, uint64_t dst, uint64_t len);

/* Bytes [off, off + len) of the piece's file cannot be had: the first failure of a batch is told,
 * by this sentence. */
void batch_fail(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off, uint64_t len,
		const char *what);
/* The same, by a sentence about rc. */
void batch_fail_read(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off,
		     uint64_t len);
/* Bytes of a file for a piece, or several that follow each other. */
struct batch_bytes {
	const struct piece_io *p; /* the first one */
	uint64_t end;             /* of the last one, in the file */
	uint8_t *mem;
	uint64_t base; /* of the file: what mem[0] is */
};
/* The blocks that end in [from, to) of the file and begin behind base are compared with the
 * manifest; wrong ones are replaced. False: not all could be, which is told. Yields. */
bool batch_check(struct leat_batch *b, const struct batch_bytes *c, uint64_t from, uint64_t to);
/* Right bytes from elsewhere. Yields. */
bool batch_mend(struct leat_batch *b, const struct piece_io *p, uint64_t off, uint64_t len,
		uint8_t *to);
/* What the manifest says of the piece's file, where there is one. */
const struct manifest_file *batch_manifest_file(const struct leat_batch *b,
						const struct piece_io *p);
/* Is what was read of that block of the piece's file known to be what the manifest says? */
bool batch_sum_is_right(const struct leat_batch *b, const struct piece_io *p,
			const struct block_sums *sums, uint64_t block);
/* The same of all blocks that the piece touches. */
bool batch_sums_are_right(const struct leat_batch *b, const struct piece_io *p,
			  const struct block_sums *sums);

#endif
