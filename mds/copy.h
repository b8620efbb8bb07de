/*
 * One chunk of a file becomes one of another data generation, or of another file, without passing
 * through here: the head of its chain writes it to the head of the other (oss_copy). Shared by
 * convert.c and ops/copy.c. Fibers of the server's loop.
 */
#ifndef LEAT_MDS_COPY_H
#define LEAT_MDS_COPY_H

#include "mds/mds.h"

/* How long a write that an object server sends for a copy may still be under way after its end was
 * not seen. */
#define COPY_LINGER_MS 6000u

struct chunk_copy {
	struct ino ino, to_ino;
	const struct layout *from, *to;
	uint32_t at;  /* position in the stripe of `from`: which chain is asked */
	uint64_t idx; /* COPY_NONE: only ask for the first one */
	uint64_t to_idx;
};

/* Asks once, when there is a connection to the head of the chain. -LE_BUSY and what status_retry
 * does not call final: may be asked again. -LE_TARGET_DOWN: nobody could be asked. Yields. */
int chunk_copy(struct mds *m, const struct chunk_copy *cc, struct oss_copy_rep *rep) CHECK_RESULT;

#endif
