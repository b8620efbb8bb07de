/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/kernel/ino32.h"

#define HALF_BITS 32

uint64_t ino32_fold(uint64_t ino)
{
	uint64_t folded = (ino ^ ino >> HALF_BITS) & UINT32_MAX;

	return folded != 0 ? folded : 1;
}

uint64_t ino32_place(uint64_t cookie)
{
	uint64_t place = (cookie >> HALF_BITS) + INO32_PLACE_MIN;

	return place < INT32_MAX ? place : INT32_MAX;
}

uint64_t ino32_before(uint64_t place)
{
	uint64_t half = place - INO32_PLACE_MIN;

	return half != 0 ? (half << HALF_BITS) - 1 : 0;
}
