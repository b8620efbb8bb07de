#include "common/base/payload.h"

#include <stdatomic.h>
#include <string.h>

static atomic_uint_fast64_t copied;

void payload_copy(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	atomic_fetch_add_explicit(&copied, len, memory_order_relaxed);
}

void payload_move(void *to, const void *from, size_t len)
{
	memmove(to, from, len);
	atomic_fetch_add_explicit(&copied, len, memory_order_relaxed);
}

uint64_t payload_copied(void)
{
	return atomic_load_explicit(&copied, memory_order_relaxed);
}
