/*
 * CRC-32C (Castagnoli; RFC 3720, appendix B.4), by the processor where it can: the checksum of
 * data formats that others have defined. Leat's own data is checked by checksum.h. Pure function.
 */
#ifndef LEAT_BASE_CRC32C_H
#define LEAT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(const void *data, size_t len);
/* Of what has the sum crc (0: nothing) and these bytes behind it. */
uint32_t crc32c_more(uint32_t crc, const void *data, size_t len);

/* As LevelDB, RocksDB and TFRecord store it, so that a CRC of data that has CRCs in it is none. */
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
