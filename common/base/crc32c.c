#include "common/base/crc32c.h"

#include <pthread.h>
#include <string.h>

#define CASTAGNOLI 0x82f63b78u /* reflected */

static uint32_t table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ CASTAGNOLI : c >> 1;
		table[i] = c;
	}
}

static uint32_t crc32c_table(const uint8_t *p, size_t len, uint32_t c)
{
	pthread_once(&once, make_table);
	while (len-- > 0)
		c = table[(c ^ *p++) & 255] ^ c >> 8;
	return c;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(const uint8_t *p, size_t len,
							       uint32_t c)
{
	uint64_t wide = c;

	for (; len >= 8; p += 8, len -= 8) {
		uint64_t word;

		memcpy(&word, p, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	c = (uint32_t)wide;
	while (len-- > 0)
		c = __builtin_ia32_crc32qi(c, *p++);
	return c;
}
#endif

uint32_t crc32c(const void *data, size_t len)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2"))
		return ~crc32c_sse(data, len, ~0u);
#endif
	return ~crc32c_table(data, len, ~0u);
}
