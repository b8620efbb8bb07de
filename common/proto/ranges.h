/*
 * Ranges of a file that fallocate(2) has prepared: few, in order, apart from each other. The object
 * servers reserve nothing for them (data is never written in place); they are counted where they
 * are not written yet. Plain values, owned by whoever has them.
 */
#ifndef LEAT_PROTO_RANGES_H
#define LEAT_PROTO_RANGES_H

#include "common/proto/wire.h"

#define RANGES_MAX  64u
#define RANGES_SIZE (RANGES_MAX * 16u) /* of their bytes: u64 off, u64 end of each */

struct range {
	uint64_t off, end;
};
struct ranges {
	uint32_t n;
	struct range r[RANGES_MAX];
};

/* Of bytes that ranges_put has made, else -LE_BAD_MESSAGE. */
int ranges_get(struct bytes b, struct ranges *ret) CHECK_RESULT;
/* buf of RANGES_SIZE bytes. */
struct bytes ranges_put(const struct ranges *rs, uint8_t *buf);
uint64_t ranges_bytes(const struct ranges *rs);
/* How much of [off, end) they are. */
uint64_t ranges_within(const struct ranges *rs, uint64_t off, uint64_t end);
/* Where there would be too many the shortest one is forgotten. */
void ranges_add(struct ranges *rs, uint64_t off, uint64_t end);
void ranges_remove(struct ranges *rs, uint64_t off, uint64_t end);

#endif
