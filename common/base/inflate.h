/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacks data of other programs: deflate (RFC 1951), with the CRC-32 of zip (ISO 3309), both by
 * zlib. Pure functions, any thread. Leat's data is packed by LZ4 and has the checksum of
 * checksum.h.
 */
#ifndef LEAT_COMMON_BASE_INFLATE_H
#define LEAT_COMMON_BASE_INFLATE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* the most that one call passes to zlib, which counts in 32 bits */
#define ZLIB_STEP_MAX (1u << 30)

/* Unpacks exactly raw_len bytes from exactly len, else returns -LE_CORRUPT. -LE_NOMEM */
int inflate_raw(const void *packed, uint64_t len, void *ret_raw, uint64_t raw_len) CHECK_RESULT;
uint32_t crc32_zip(const void *data, size_t len);

#endif
