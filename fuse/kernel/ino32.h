/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that fit programs with 32-bit types (option ino32): inode numbers, and the places in a
 * directory that telldir(3) returns.
 *
 * A place is the upper half of the cookie of an entry (docs/decisions/0001), so nothing is stored
 * for it, and it is valid in every open directory. Entries with equal upper halves share a place
 * (one pair is to be expected in a directory of 65,000 entries). A listing that continues where it
 * stopped is not affected. A seek to that place continues after the first of them; if that one was
 * removed meanwhile, after the second, which is missed then.
 */
#ifndef LEAT_FUSE_KERNEL_INO32_H
#define LEAT_FUSE_KERNEL_INO32_H

#include <stdbool.h>
#include <stdint.h>

/* The places of the first entries; 0 is the beginning, 1 and 2 are those of "." and "..". */
#define INO32_PLACE_MIN 3u

/* Folds an inode number into 32 bits: the number itself where it fits. Never 0. */
uint64_t ino32_fold(uint64_t ino);
/* The place of a cookie: INO32_PLACE_MIN to INT32_MAX, in the order of the cookies. */
uint64_t ino32_place(uint64_t cookie);
/* A cookie that is smaller than those of all entries with that place. */
uint64_t ino32_before(uint64_t place);

#endif
