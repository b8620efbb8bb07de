/* What reads are told of the checksums of blocks (client/block_sums.h), beside the model. */
#ifndef LEAT_SIM_SUMS_H
#define LEAT_SIM_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ll.h"

#define SUMS_PARTS_MAX 48u
#define SUMS_FILE_MAX  (260u << 10)

/* What a file has. */
struct sums_model {
	const uint8_t *data;
	uint64_t size;
};
/* Reads all parts, at most SUMS_PARTS_MAX, at once. Bytes read, or the first failure;
 * -LE_BAD_MESSAGE: a checksum that a block was said to have is of other bytes than these. Yields.
 */
int64_t sums_read(struct client *c, const struct sums_model *m, struct ll_part *parts, uint32_t n);

#endif
