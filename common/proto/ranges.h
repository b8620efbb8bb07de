/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of a file that fallocate(2) has preallocated: few, in order, with gaps between them. The
 * object servers reserve nothing for them, because data is never written in place. The parts that
 * are not written yet count in blocks and quotas. Plain values, owned by the caller.
 */
#ifndef LEAT_COMMON_PROTO_RANGES_H
#define LEAT_COMMON_PROTO_RANGES_H

#include "common/proto/wire.h"

#define RANGES_MAX  64u
#define RANGES_SIZE (RANGES_MAX * 16u) /* when encoded: u64 off, u64 end of each */

struct range {
	uint64_t off, end;
};
struct ranges {
	uint32_t n;
	struct range r[RANGES_MAX];
};

/* Decodes bytes of ranges_put. Returns 0 or -LE_BAD_MESSAGE. */
int ranges_get(struct bytes b, struct ranges *ret) CHECK_RESULT;
/* Encodes the ranges into buf, of RANGES_SIZE bytes, and returns the encoded bytes in buf. */
struct bytes ranges_put(const struct ranges *rs, uint8_t *buf);
uint64_t ranges_bytes(const struct ranges *rs);
/* Returns how many bytes of [off, end) the ranges cover. */
uint64_t ranges_within(const struct ranges *rs, uint64_t off, uint64_t end);
/* Adds [off, end). If there would be too many ranges, drops the shortest one. */
void ranges_add(struct ranges *rs, uint64_t off, uint64_t end);
void ranges_remove(struct ranges *rs, uint64_t off, uint64_t end);

#endif
