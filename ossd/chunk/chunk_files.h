/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on many chunks: those of a file, or of a chain. Changes are durable when the function
 * returns. Where a parameter is called file, it is any chunk of the file on the chain that is
 * meant. edits: how changes are made; NULL: the store's default.
 *
 * Owned by the store's loop. All yield.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_FILES_H
#define LEAT_OSSD_CHUNK_CHUNK_FILES_H

#include "common/proto/ranges.h"
#include "ossd/chunk/chunk_tx.h"

#define CHUNK_EDITS_MAX 64u /* changes that join before each wait */

/* How changes of many chunks are made, where the default does not do (replicated chains). */
struct chunk_edits {
	void *arg;
	/* Used with the default, where begin is NULL: checks, right before each change, that it is
	 * still permitted. */
	int (*may)(void *arg);
	/* Like chunk_tx_begin; if whole (nothing of the chunk is to remain), like
	 * chunk_tx_begin_over. Returns 1 if the chunk is changed already. */
	int (*begin)(void *arg, const struct chunk_key *id, bool whole, struct chunk_tx *tx);
	/* Takes over the content of *tx, which may be copied, even on failure. */
	int (*join)(void *arg, struct chunk_tx *tx);
	/* Waits until all joined changes have ended. */
	int (*wait)(void *arg);
};

/* Truncates the file to size. *ret_n: number of chunks that changed, even on failure. */
int chunk_trim_file(struct chunk_store *s, const struct chunk_edits *edits,
		    const struct chunk_key *file, uint32_t chunk_size, uint64_t size,
		    uint64_t *ret_n) CHECK_RESULT;

/* Makes [off, off + len) of the file read as zeros. */
struct chunk_punch {
	struct chunk_key file;
	uint32_t chunk_size;
	uint64_t off, len;
};

int chunk_punch_file(struct chunk_store *s, const struct chunk_edits *edits,
		     const struct chunk_punch *p, uint64_t *ret_n) CHECK_RESULT;
/* Removes one file; like chunk_remove_files. */
int chunk_remove_file(struct chunk_store *s, const struct chunk_edits *edits,
		      const struct chunk_key *file, uint64_t *ret_n) CHECK_RESULT;
/* Removes files of one chain, in the order of their keys, each at most once, with idx 0. Stops at
 * the first failure: then chunks of any of them may remain. */
int chunk_remove_files(struct chunk_store *s, const struct chunk_edits *edits,
		       const struct chunk_key *files, uint32_t n, uint64_t *ret_n) CHECK_RESULT;

struct chunk_stat {
	uint64_t size, used, n_chunks;
	uint64_t covered; /* stored bytes of the preallocated ranges, before compression */
	int64_t mtime_ns;
	struct chunk_key damaged; /* with -LE_CORRUPT: a chunk with an unreadable record */
	/* With -LE_CORRUPT: any chunk of the file may be lost. Another member may still have it: a
	 * read of the chunk, or a scrub, copies it here. */
	bool uncertain;
};

/* Returns size, space and mtime of the file. prepared: preallocated ranges, or NULL.
 * -LE_CORRUPT: a chunk is damaged or lost, see *ret_stat. -LE_NOT_READY: a chunk is lost, and a
 * member that is not SYNC may have it. */
int chunk_stat(struct chunk_store *s, const struct chunk_key *file, uint32_t chunk_size,
	       const struct ranges *preallocated, struct chunk_stat *ret_stat) CHECK_RESULT;
/* Lists at most max (not 0) chunks of the chain, starting at *from. A chunk with a lost row is
 * included: with version 0, like one with a damaged record. Yields. */
int chunk_list(struct chunk_store *s, const struct chunk_key *from, uint32_t max,
	       int (*each)(void *arg, const struct chunk_summary *c), void *arg,
	       bool *ret_more) CHECK_RESULT;

#endif
