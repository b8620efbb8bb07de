/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open data set: its sample index, the location of its files, and the loops that read them.
 * Immutable after dataset_open except for the bits of verified blocks, which any loop sets. Two
 * counts: uses (the caller's handle and loaders) keep loops and files open; references (uses and
 * batches) keep the memory.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_DATASET_H
#define LEAT_CLIENT_LOADER_SOURCE_DATASET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/dataset/error_detail.h"
#include "client/dataset/formats/index.h"
#include "client/dataset/io_context.h"
#include "client/dataset/manifest.h"
#include "client/include/leat/leat_loader.h"
#include "client/loader/source/reader.h"
#include "client/loader/source/sequence.h"
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
	struct vol *vol; /* volume of the files; NULL: a mixture */
	char root[4096];
	const char *source;
	struct sample_index *x;
	struct unpacked *unpacked; /* of the packed files; NULL: there are none */
	struct sequence_of of;
	uint64_t content;   /* differs if the files or their numbers differ */
	struct manifest *m; /* of a name or a staged copy; NULL: no checksums are available */
	struct peer_source *peers; /* copies on other nodes, for data that servers have; NULL: none
				    * are used */
	struct mend *mend;       /* NULL: without m */
	uint32_t *manifest_file; /* of each file of x */
	_Atomic uint64_t *verified; /* a bit per block of m, for a copy only */
	bool is_copy; /* a staged copy: verified blocks stay right; files of a name may change
		       * while they are read, so every read of them is compared */
	char id[MANIFEST_ID_SIZE];
	int lease_fd;

	/* For a mixture: its parts (a use of each), the number of each part's first file in x,
	 * and the part of each file. */
	struct leat_dataset *parts[MIX_PARTS_MAX];
	uint32_t part_file[MIX_PARTS_MAX];
	uint8_t *part_of_file;
	uint32_t n_parts;
};

/* Returns the data set that a file of the index belongs to, and the file's number there. */
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
/* True if the file is packed: the offsets of its members count in its unpacked bytes. */
static inline bool dataset_is_packed(const struct leat_dataset *ds, uint32_t file)
{
	return ds->x->files[file].packing != PACKED_NOT;
}
/* Returns the volume from which ds reads files of `from`: for a mixture, a volume on the loops
 * of ds. */
static inline struct vol *dataset_vol(const struct leat_dataset *ds,
				      const struct leat_dataset *from)
{
	if (from == ds)
		return ds->vol;
	return from->vol->origin == ORIGIN_SERVER ? ds->io.remote : ds->io.local;
}
/* True for a staged copy and for local files with a manifest: a disk cache would not be nearer. */
static inline bool dataset_is_near(const struct leat_dataset *ds)
{
	return ds->lease_fd >= 0 || (ds->m && ds->vol->origin != ORIGIN_SERVER);
}
/* True if reads come from servers, which send the checksums of the blocks to compare with m. */
static inline bool dataset_has_sums(const struct leat_dataset *ds)
{
	return ds->m && !ds->is_copy && ds->vol->origin == ORIGIN_SERVER;
}
/* Adds the counters of copies on other nodes and of repairs to the metrics. Any thread, while
 * the data set is used. */
void dataset_peer_metrics(const struct leat_dataset *ds, struct leat_loader_metrics *m);

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

/* A reference keeps the memory of ds. */
void dataset_ref(struct leat_dataset *ds);
void dataset_unref(struct leat_dataset *ds);
/* A use keeps loops and files open and includes a reference. The last dataset_unuse ends the
 * loops, so a loop's thread must not call it. */
void dataset_use(struct leat_dataset *ds);
void dataset_unuse(struct leat_dataset *ds);

/* Starts `threads` loops, unless the loop of a Leat file system reads, and makes a reader for
 * each loop. ds->io must be initialized. */
int dataset_start_readers(struct leat_dataset *ds, uint32_t threads) CHECK_RESULT;

#endif
