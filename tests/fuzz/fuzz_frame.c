/* SPDX-License-Identifier: Apache-2.0 */
/* Any 80 bytes as a header: what is accepted is within the limits and encodes to equal bytes. */
#include <stdbool.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/proto/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[FRAME_HEADER_SIZE];
	struct frame_hdr h;

	if (size < FRAME_HEADER_SIZE || frame_decode(data, &h) < 0)
		return 0;
	ASSERT(h.body_len <= FRAME_BODY_MAX && h.bulk_len <= FRAME_BULK_MAX &&
	       h.n_desc <= FRAME_DESCS_MAX);
	size_t left = size - FRAME_HEADER_SIZE, descs = h.n_desc * FRAME_DESC_SIZE;
	if (left < descs + h.body_len)
		return 0;
	const uint8_t *body = data + FRAME_HEADER_SIZE + descs;
	bool good = frame_check(data, &h, data + FRAME_HEADER_SIZE, body) == 0;
	frame_encode(&h, data + FRAME_HEADER_SIZE, body, again);
	ASSERT(memcmp(again, data, FRAME_HEADER_SIZE - 8) == 0);
	ASSERT(good == (memcmp(again, data, FRAME_HEADER_SIZE) == 0));
	return 0;
}
