/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives a copy the rights of its source. The users who may read the source may read the copy, or
 * fewer, where this process or the file system cannot express that: a user who is not root cannot
 * give files away, and some file systems have no access lists. No user may write, except that a
 * maker who is not root may write to the folders he has made.
 *
 *   in flight  only the maker has access to part/, and to what is made below .leat (beneath.h)
 *   folders    of data/ have their rights before anything is in them; data/ has those of the
 *              source through all folders above it (rights_conjunction)
 *   files      have them before they get their names
 *   the rest   manifest, sums, samples, bitmap, state: for the users who surely may read all files
 *
 * Blocks for as long as a local file system takes. Owned by the loop of the store.
 */
#ifndef LEAT_CLIENT_STAGE_STORE_GRANT_H
#define LEAT_CLIENT_STAGE_STORE_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/dataset/rights.h"
#include "client/stage/store/local_store.h"

/* Gives the file fd the rights r, as far as possible. *ret_narrowed: fewer users than r says
 * have access. */
int grant_fd(int fd, const struct rights *r, bool *ret_narrowed) CHECK_RESULT;

struct rows;

/* What a copy grants: to files and folders what the manifest's rows say, and these two. */
struct grants {
	struct rights top;  /* of data/ */
	struct rights meta; /* of manifest, sums and the like; their owner stays the maker */
	uint32_t n_narrowed;
	uint32_t n_wrong; /* files that differ from the manifest, and got no rights */
	const int *stop;  /* not 0: reading stops; may be NULL */
	/* m's rows as they were granted last; NULL: no such record. */
	const struct rows *had;
	bool coming; /* a job makes the copy meanwhile: files keep their bits */
};
/* Computes what a copy of m grants. above: the rights of the n folders above the source; NULL: the
 * source is missing, and m's rows say which user has access. Access lists are added to m's pool. */
int grants_make(struct manifest *m, const struct rights *above, uint32_t n,
		struct grants *ret_grants) CHECK_RESULT;
/* Gives all files of the copy that are there, and all its folders, in each directory, their rights.
 * What is to be narrowed comes before anything is widened. A file gets other rights only if its
 * content is what the manifest says; with the bitmap loaded, for fetching, it loses its bits
 * instead, so that the fetch verifies it. Notes the inodes of the folders in s->folders. Yields. */
int grant_tree(struct local_store *s, const struct manifest *m, struct grants *g) CHECK_RESULT;
/* Renames a finished file, which lies at `from`, to its name, in the very folder that grant_tree
 * has found or made. -LE_FOREIGN: that folder is no longer in its place. */
int grant_name(struct local_store *s, const struct manifest *m, uint32_t file,
	       const char *from) CHECK_RESULT;
/* Gives manifest, sums and the like their rights, after they were written. Yields. */
int grant_meta(struct local_store *s, struct grants *g) CHECK_RESULT;
/* The rights of a manifest's rows at some time. The access lists stay in the manifest's pool. */
struct rows {
	struct rights *files, *dirs;
};
/* Copies the rights of m's rows. -LE_NOMEM */
int rows_take(const struct manifest *m, struct rows *ret_rows) CHECK_RESULT;
void rows_fini(struct rows *r);

/* Returns a checksum of all rights that the copy grants, and of the source's inodes that have
 * them. */
uint64_t grant_sum(const struct manifest *m, const struct grants *g);
/* Returns whether the note `granted` says that the copy grants exactly g. Yields. */
bool grant_is_so(struct local_store *s, const struct manifest *m, const struct grants *g);
/* Returns when the note was written; 0: there is none, or the rights are being changed. Yields. */
int64_t grant_note_ns(struct local_store *s);
/* Write the note, after everything was granted; remove it, before anything is changed. Both
 * yield. */
int grant_note(struct local_store *s, const struct manifest *m,
	       const struct grants *g) CHECK_RESULT;
int grant_note_drop(struct local_store *s) CHECK_RESULT;

/*
 * Brings a copy that the caller has locked in line (grant_tree), stores m as its manifest, and
 * writes the note. If the process is killed at any step, the copy grants what it did before, or
 * what it is to grant, or less, and there is no note, so the next process checks all of it.
 * -LE_STALE: a file differs from the manifest. Yields.
 */
struct regrant {
	struct local_store *s;
	const struct manifest *m;
	const struct rows *had; /* m's rows as they were granted last; NULL: no such record */
	const struct manifest *origin; /* stored as from/manifest; NULL: that stays */
	bool coming;                   /* it is being made */
};
int grant_again(const struct regrant *o, struct grants *g) CHECK_RESULT;

#endif
