/* SPDX-License-Identifier: Apache-2.0 */
#include "client/layout/stripe.h"


uint32_t stripe_cut(uint32_t chunk_size, uint64_t off, uint64_t len, struct stripe_part *ret_parts,
		    uint32_t max, uint64_t *ret_len)
{
	uint64_t at = 0;
	uint32_t n = 0;

	while (at < len && n < max) {
		ret_parts[n] = stripe_first(chunk_size, off + at, len - at);
		ret_parts[n].at = at;
		at += ret_parts[n++].len;
	}
	*ret_len = at;
	return n;
}
