/* SPDX-License-Identifier: Apache-2.0 */
#include "client/layout/slot_vec.h"

#include "common/base/assert.h"
#include "common/base/copy_counter.h"
#include "common/rt/slot.h"

uint32_t vec_slice(const struct slot_vec *vec, uint32_t n, uint64_t at, uint64_t len,
		   struct slot_vec *ret_vec, uint32_t max)
{
	uint32_t n_ret = 0;

	for (uint32_t i = 0; i < n && len > 0; i++) {
		uint32_t take;

		if (at >= vec[i].len) {
			at -= vec[i].len;
			continue;
		}
		ASSERT(n_ret < max);
		take = vec[i].len - (uint32_t)at;
		if (take > len)
			take = (uint32_t)len;
		ret_vec[n_ret++] = (struct slot_vec){vec[i].slot, vec[i].off + (uint32_t)at, take};
		len -= take;
		at = 0;
	}
	return n_ret;
}

uint64_t vec_len(const struct slot_vec *vec, uint32_t n)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < n; i++)
		len += vec[i].len;
	return len;
}

void vec_copy_out(const struct slot_vec *vec, uint32_t n, uint8_t *to)
{
	for (uint32_t i = 0; i < n; i++) {
		ASSERT(vec[i].off <= vec[i].slot->size &&
		       vec[i].len <= vec[i].slot->size - vec[i].off);
		copy_counted(to, vec[i].slot->data + vec[i].off, vec[i].len);
		to += vec[i].len;
	}
}
