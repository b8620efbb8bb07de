/*
 * What comes out of packed files, each as a whole, in memory: a stream of bytes has no places, so a
 * sample of a packed shard is to be had only with all that lies before it. Up to a limit of bytes
 * are kept, those that were read last; who needs more waits for room, and unpacks again what went.
 * So orders that keep to few shards at a time are quick, others are right and slow.
 *
 * The packed bytes are those of the manifest where there is one (checked.h), and what comes out
 * must be as long as the sample index says. One per data set, shared by its loops: guarded by a
 * lock that is held briefly; who waits for another loop looks again every millisecond.
 */
#ifndef LEAT_LOADER_UNPACKED_H
#define LEAT_LOADER_UNPACKED_H

#include "client/loader/dataset.h"

#define UNPACK_BYTES_DEFAULT ((uint64_t)1 << 30)

struct unpacked;

/* limit 0: UNPACK_BYTES_DEFAULT. NULL where no file of the index is packed. -LE_FBIG, said in d:
 * more than limit comes out of one. -LE_NOMEM */
int unpacked_create(const struct sample_index *x, uint64_t limit, struct unpacked **ret_unpacked,
		    struct detail *d) CHECK_RESULT;
void unpacked_destroy(struct unpacked *u); /* NULL is fine; nobody reads */

/* Bytes of what comes out of a file, within what the index says. */
struct unpacked_range {
	uint32_t file; /* of from->x */
	uint64_t off, len;
};
/* from: the data set that the file is of; via: the one that reads, from or a mixture. On failure d
 * says why. Yields. */
int unpacked_read(struct leat_dataset *from, const struct leat_dataset *via,
		  const struct unpacked_range *r, uint8_t *to, struct detail *d) CHECK_RESULT;

#endif
