/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of slot memory (struct slot_vec): slices, length, copies. Pure functions. */
#ifndef LEAT_CLIENT_LAYOUT_SLOT_VEC_H
#define LEAT_CLIENT_LAYOUT_SLOT_VEC_H

#include <stdint.h>

struct slot_vec;

/* Writes the slices that cover [at, at + len) of vec to ret_vec, without taking slot references.
 * Returns their number. The caller guarantees that max is enough. */
uint32_t vec_slice(const struct slot_vec *vec, uint32_t n, uint64_t at, uint64_t len,
		   struct slot_vec *ret_vec, uint32_t max);
/* Returns the sum of the lengths, in bytes. */
uint64_t vec_len(const struct slot_vec *vec, uint32_t n);
/* Copies all bytes of vec to `to`, in order. */
void vec_copy_out(const struct slot_vec *vec, uint32_t n, uint8_t *to);

#endif
