/*
 * Which bytes somebody has read or written since the server's start, and who: for sessions that
 * come late with what they lost with the process before (grace.h). A table of fixed size, of cells
 * that stand for places by their hash: what it does not know for certain it takes for touched, so a
 * late session may hear too often that others were there, never too seldom.
 *
 * Owned by the target's loop; nothing here yields.
 */
#ifndef LEAT_OSSD_TOUCHED_H
#define LEAT_OSSD_TOUCHED_H

#include "ossd/chunk/rows.h"

struct touched {
	uint32_t *cells; /* NULL: nothing is noted */
};

enum touched_how { TOUCHED_READ, TOUCHED_WRITTEN };

/* What of a file is told to others, or changed, as a whole. */
enum touched_whole {
	TOUCHED_CUT,  /* any byte may be gone: it was cut, punched or removed */
	TOUCHED_SUMS, /* its checksums were told */
	TOUCHED_SIZE, /* and where it ends */
};

/* Without memory nothing is noted. */
void touched_begin(struct touched *t);
void touched_end(struct touched *t);
struct touched_bytes {
	const struct chunk_key *chunk;
	uint32_t off, len;
};
void touched_note(struct touched *t, const struct touched_bytes *b, enum touched_how how,
		  uint64_t session);
/* k: any chunk of the file on this chain. */
void touched_note_whole(struct touched *t, const struct chunk_key *k, enum touched_whole what,
			uint64_t session);
/* Perhaps by another session; true where nothing was noted. */
bool touched_by_others(const struct touched *t, const struct touched_bytes *b, enum touched_how how,
		       uint64_t session);
bool touched_whole_by_others(const struct touched *t, const struct chunk_key *k,
			     enum touched_whole what, uint64_t session);

#endif
