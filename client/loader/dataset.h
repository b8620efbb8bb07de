/*
 * An open data set: its sample index, where its files are, and the loops that read them. Immutable
 * after dataset_open except for the bits of verified blocks, which any loop sets. Two counts: its
 * users (the caller's handle and loaders) keep loops and files, references (users and batches) keep
 * its memory.
 */
#ifndef LEAT_LOADER_DATASET_H
#define LEAT_LOADER_DATASET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/include/leat/leat_loader.h"
#include "client/loader/index.h"
#include "client/loader/reader.h"
#include "client/loader/sequence.h"
#include "client/stage/detail.h"
#include "client/stage/io.h"
#include "client/stage/manifest.h"
#include "common/base/uuid.h"

struct mend;
struct peer_source;
struct unpacked;

#define DATASET_MAGIC       0x4c445354u /* LDST */
#define DATASET_THREADS_MAX 16u

struct leat_dataset {
	uint32_t magic;
	_Atomic uint32_t refs, users;
	pid_t pid;
	struct stage_io io;
	struct loop *extra[DATASET_THREADS_MAX]; /* threads beyond the first */
	uint32_t n_extra;
	struct reader readers[DATASET_THREADS_MAX + 1]; /* one per loop */
	uint32_t n_readers;
	struct vol *vol; /* where the files are; NULL: a mixture */
	char root[4096];
	const char *source;
	struct sample_index *x;
	struct unpacked *unpacked; /* of its packed files; NULL: there are none */
	struct sequence_of of;
	uint64_t content;   /* another word when the files are others, or are numbered otherwise */
	struct manifest *m; /* of a name or a staged copy; NULL: nothing to compare with */
	struct peer_source
		*peers;          /* copies on other nodes, of what servers have; NULL: not asked */
	struct mend *mend;       /* NULL: without m */
	uint32_t *manifest_file; /* of each file of x */
	_Atomic uint64_t *verified; /* a bit per block of m, for a copy only */
	bool is_copy; /* a staged one: what was verified of it stays so; what a name means may
			 change while it is read, so that each read of it is compared */
	char id[MANIFEST_ID_SIZE];
	int lease_fd;

	/* Of a mixture: uses of its parts, where each one's files begin in x, and whose each is. */
	struct leat_dataset *parts[MIX_PARTS_MAX];
	uint32_t part_file[MIX_PARTS_MAX];
	uint8_t *part_of_file;
	uint32_t n_parts;
};

/* The data set that a file of the index comes from, and its number there. */
static inline struct leat_dataset *dataset_of_file(struct leat_dataset *ds, uint32_t file,
						   uint32_t *ret_file)
{
	*ret_file = file;
	if (ds->n_parts == 0)
		return ds;
	uint32_t part = ds->part_of_file[file];
	*ret_file = file - ds->part_file[part];
	return ds->parts[part];
}
/* Members of the file are of what comes out of it. */
static inline bool dataset_is_packed(const struct leat_dataset *ds, uint32_t file)
{
	return ds->x->files[file].packing != PACKED_NOT;
}
/* Where its files are read from: of a mixture, the volumes of its own loops. */
static inline struct vol *dataset_vol(const struct leat_dataset *ds,
				      const struct leat_dataset *from)
{
	if (from == ds)
		return ds->vol;
	return from->vol->origin == ORIGIN_SERVER ? ds->io.remote : ds->io.local;
}
/* Every byte that is delivered was checked against the checksum made when it was written. */
bool dataset_is_verified(const struct leat_dataset *ds);
/* A staged copy, or local files that are compared like one: as near as a cache would be. */
static inline bool dataset_is_near(const struct leat_dataset *ds)
{
	return ds->lease_fd >= 0 || (ds->m && ds->vol->origin != ORIGIN_SERVER);
}
/* What is read of it from servers they have the blocks' checksums of, to be compared with m. */
static inline bool dataset_has_sums(const struct leat_dataset *ds)
{
	return ds->m && !ds->is_copy && ds->vol->origin == ORIGIN_SERVER;
}
/* Adds what is known of copies on other nodes. Any thread, while it is used. */
void dataset_tell_peers(const struct leat_dataset *ds, struct leat_loader_metrics *m);
/* Where its files are; zero: on this machine. */
struct uuid dataset_cluster(const struct leat_dataset *ds);
/* Some of it comes from servers. */
bool dataset_is_remote(const struct leat_dataset *ds);

static inline uint32_t dataset_n_loops(const struct leat_dataset *ds)
{
	return 1 + ds->n_extra;
}
static inline struct loop *dataset_loop(const struct leat_dataset *ds, uint32_t i)
{
	return i == 0 ? ds->io.loop : ds->extra[i - 1];
}
static inline bool dataset_block_verified(const struct leat_dataset *ds, uint64_t block)
{
	return ds->is_copy &&
	       (atomic_load_explicit(&ds->verified[block / 64], memory_order_relaxed) >>
			(block % 64) &
		1);
}
static inline void dataset_set_verified(struct leat_dataset *ds, uint64_t block)
{
	if (ds->is_copy)
		atomic_fetch_or_explicit(&ds->verified[block / 64], (uint64_t)1 << (block % 64),
					 memory_order_relaxed);
}

void dataset_ref(struct leat_dataset *ds);
void dataset_unref(struct leat_dataset *ds);
/* A use holds a reference too. The last one ends loops and files: not from a loop's thread. */
void dataset_use(struct leat_dataset *ds);
void dataset_unuse(struct leat_dataset *ds);
/* 0, or fails with a word in leat_last_error when this is a forked child. */
int dataset_check_pid(const struct leat_dataset *ds) CHECK_RESULT;

/* ---- leat_last_error: of the calling thread. Both return rc ---- */
int error_set(int rc, const struct detail *d);
int error_say(int rc, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* With a number of threads: the loops and readers of a data set whose io is there. */
int dataset_start_readers(struct leat_dataset *ds, uint32_t threads) CHECK_RESULT;

/* In fibers of io.loop: finds and opens what. Part of leat_dataset_open. */
int dataset_resolve(struct leat_dataset *ds, const char *what, const struct leat_dataset_options *o,
		    struct detail *d) CHECK_RESULT;

#endif
