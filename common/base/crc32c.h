/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli; RFC 3720, appendix B.4), by a processor instruction where there is one: the
 * checksum of data formats of other programs. Leat's data has the checksum of checksum.h. Pure
 * function.
 */
#ifndef LEAT_COMMON_BASE_CRC32C_H
#define LEAT_COMMON_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *data, size_t len);
/* Continues the sum crc (0: of no bytes) with len bytes. */
uint32_t crc32c_more(uint32_t crc, const void *data, size_t len);

/* Masks a CRC, as LevelDB, RocksDB and TFRecord do before they store it, because a CRC of data that
 * contains CRCs is weak. */
static inline uint32_t crc32c_mask(uint32_t crc)
{
	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
static inline uint32_t crc32c_unmask(uint32_t masked)
{
	uint32_t rot = masked - 0xa282ead8u;

	return rot >> 17 | rot << 15;
}

#endif
