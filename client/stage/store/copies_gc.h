/* SPDX-License-Identifier: Apache-2.0 */
/* Removing copies to free space: see leat_stage_gc. In fibers; yields. */
#ifndef LEAT_CLIENT_STAGE_STORE_COPIES_GC_H
#define LEAT_CLIENT_STAGE_STORE_COPIES_GC_H

#include "client/stage/store/copies.h"

struct gc_options {
	const char *const *more_dirs; /* directories beside `to`, NULL at the end; or NULL */
	uint64_t bytes_missing;       /* space to be freed */
	uint64_t capacity;            /* limit for all copies together; 0: none */
	/* Not 0: only copies with files in these directories count; bit 0 is `to`, bit k
	 * more_dirs[k - 1]. */
	uint32_t lack;
	const char *keep; /* the id of a copy that must stay; or NULL */
	bool dry_run;     /* remove nothing, count what would be removed */
	void (*each)(void *arg, const struct leat_stage_copy *c); /* for each copy that is
								   * removed; or NULL */
	void *arg;
	uint64_t bytes_removed; /* results */
	uint32_t n_removed;
};
/* Removes copies in the order of copies_gc.c until there is enough space. Returns 0 also if
 * there is still too little: see g->bytes_removed. -LE_FOREIGN if there is too little and a
 * foreign mount or file in a copy prevents its removal. */
int copies_gc(struct stage_io *io, const char *to, struct gc_options *g) CHECK_RESULT;
/* Returns the disk space of a copy that copies_list has found in `to`. An incomplete copy still
 * holds the space that was reserved for all of it. Yields. */
uint64_t copies_gc_bytes(struct stage_io *io, const char *to, const struct leat_stage_copy *c);

#endif
