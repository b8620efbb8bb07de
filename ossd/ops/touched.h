/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records which bytes were read or written since the server's start, and by which session. Needed
 * for late sessions that repeat changes lost by the previous process (grace.h). A table of fixed
 * size, with cells selected by a hash. Uncertain cells count as touched, so a late session may be
 * refused too often, never too seldom.
 *
 * Owned by the target's loop. Nothing here yields.
 */
#ifndef LEAT_OSSD_OPS_TOUCHED_H
#define LEAT_OSSD_OPS_TOUCHED_H

#include "ossd/chunk/keys.h"

struct touched {
	uint32_t *cells; /* NULL: nothing is recorded */
};

enum touched_how { TOUCHED_READ, TOUCHED_WRITTEN };

/* Reads and changes of a file as a whole. */
enum touched_whole {
	TOUCHED_CUT,  /* any byte may be missing: truncated, punched or removed */
	TOUCHED_SUMS, /* its checksums were returned */
	TOUCHED_SIZE, /* its size was returned */
};

/* Allocates the table. Without memory nothing is recorded. */
void touched_begin(struct touched *t);
void touched_end(struct touched *t);
struct touched_bytes {
	const struct chunk_key *chunk;
	uint32_t off, len;
};
/* Records that the session has read or written the bytes. */
void touched_note(struct touched *t, const struct touched_bytes *b, enum touched_how how,
		  uint64_t session);
/* k: any chunk of the file on this chain. */
void touched_note_whole(struct touched *t, const struct chunk_key *k, enum touched_whole what,
			uint64_t session);
/* True if another session may have touched the bytes; also if nothing is recorded. */
bool touched_by_others(const struct touched *t, const struct touched_bytes *b, enum touched_how how,
		       uint64_t session);
bool touched_whole_by_others(const struct touched *t, const struct chunk_key *k,
			     enum touched_whole what, uint64_t session);

#endif
