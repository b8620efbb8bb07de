/*
 * Gives what lies below a stage directory the rights of its source. Who may read the copy is who
 * may read the source, or fewer where this process or the file system cannot say that: a user who
 * is not root gives nothing away, and some file systems have no access lists. Nobody may write;
 * only the maker who is not root keeps that for his own folders.
 *
 *   in flight  part/ is the maker's alone, and what is made below .leat (beneath.h)
 *   folders    of data/ have their rights before anything is in them; data/ itself those of the
 *              source through all folders above it (rights_conjunction)
 *   files      have them before they get their names
 *   the rest   manifest, sums, samples, bitmap, state: for those who surely may read all of it
 *
 * Blocks for as long as a local file system takes. Owned by the loop of the store.
 */
#ifndef LEAT_STAGE_GRANT_H
#define LEAT_STAGE_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stage/local_store.h"
#include "client/stage/rights.h"

/* What is open as fd gets r, as far as can be. ret_narrowed: fewer may than r says. */
int grant_fd(int fd, const struct rights *r, bool *ret_narrowed) CHECK_RESULT;

struct rows;

/* What a copy grants: files and folders as the manifest says now, and these two. */
struct grants {
	struct rights top;  /* of data/ */
	struct rights meta; /* of what tells of all of it; its owner stays the maker */
	uint32_t n_narrowed;
	uint32_t n_wrong; /* files that are not what the manifest says, and got nothing */
	const int *stop;  /* not 0: no more is read; NULL: nobody stops it */
	/* m's rows as they were granted last; NULL: not known. */
	const struct rows *had;
	bool coming; /* files get their names meanwhile, and keep their bits */
};
/* above: the rights of the n folders above the source; NULL: it is not to be found any more, and
 * m's rows say who keeps the copy. Lists go to m's pool. */
int grants_make(struct manifest *m, const struct rights *above, uint32_t n,
		struct grants *ret_grants) CHECK_RESULT;
/* All that is there of the copy, and all its folders, empty ones too, in each directory. What is to
 * be narrowed is, before anything is widened. A file gets other rights only if its content is what
 * the manifest says; with the bitmap loaded, to be fetched, it loses its bits instead, so that
 * fetching looks at it. Notes which folders these are. Yields. */
int grant_tree(struct local_store *s, const struct manifest *m, struct grants *g) CHECK_RESULT;
/* The finished file, which lies at `from`, gets its name, in the very folder that grant_tree has
 * found or made: -LE_FOREIGN if that has gone from its place. */
int grant_name(struct local_store *s, const struct manifest *m, uint32_t file,
	       const char *from) CHECK_RESULT;
/* Manifest and so on, which may have been written since. Yields. */
int grant_meta(struct local_store *s, struct grants *g) CHECK_RESULT;
/* The rights of a manifest's rows at some time. Their access lists are the manifest's. */
struct rows {
	struct rights *files, *dirs;
};
int rows_take(const struct manifest *m, struct rows *ret_rows) CHECK_RESULT;
void rows_fini(struct rows *r);

/* Of all that it grants, of which things of which source. */
uint64_t grant_sum(const struct manifest *m, const struct grants *g);
/* Is what the copy grants just this, as far as has been noted? Yields. */
bool grant_is_so(struct local_store *s, const struct manifest *m, const struct grants *g);
/* When that was noted; 0: never, or it is being changed. Yields. */
int64_t grant_note_ns(struct local_store *s);
/* It is, all of it; before any of it is changed: it is not. Yield. */
int grant_note(struct local_store *s, const struct manifest *m,
	       const struct grants *g) CHECK_RESULT;
int grant_note_drop(struct local_store *s) CHECK_RESULT;

/*
 * What there is of a copy, locked by the caller, is brought in line (grant_tree), its manifest
 * becomes m, and that is noted. Killed at any step, the copy grants what it did before or what it
 * is to grant, or less, and nothing is noted: the next one looks at all of it. -LE_STALE: not all
 * of it is what the manifest says. Yields.
 */
struct regrant {
	struct local_store *s;
	const struct manifest *m;
	const struct rows *had; /* m's rows as they were granted last; NULL: not known */
	const struct manifest *origin; /* becomes from/manifest; NULL: that stays */
	bool coming;                   /* it is being made */
};
int grant_again(const struct regrant *o, struct grants *g) CHECK_RESULT;

#endif
