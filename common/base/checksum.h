/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one checksum of Leat: XXH3 64 bit (libxxhash). Only checksum.c includes xxhash.h.
 */
#ifndef LEAT_COMMON_BASE_CHECKSUM_H
#define LEAT_COMMON_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

uint64_t checksum64(const void *data, size_t len);
uint64_t checksum64_seed(const void *data, size_t len, uint64_t seed);
/* Computes the checksum of a gather list: that of its bytes in a row. */
uint64_t checksum64_iov(const struct iovec *iov, int n_iov);

#endif
