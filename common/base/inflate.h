/*
 * What others have packed: deflate (RFC 1951) and the CRC-32 that goes with it (ISO 3309), both by
 * zlib. Pure functions, from any thread. Leat's own data is packed by LZ4 and checked by
 * checksum.h.
 */
#ifndef LEAT_BASE_INFLATE_H
#define LEAT_BASE_INFLATE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/* Exactly raw_len bytes from exactly len: else -LE_CORRUPT. -LE_NOMEM */
int inflate_raw(const void *packed, uint64_t len, void *ret_raw, uint64_t raw_len) CHECK_RESULT;
uint32_t crc32_zip(const void *data, size_t len);

#endif
