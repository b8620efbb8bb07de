/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/copy_counter.h"

#include <stdatomic.h>
#include <string.h>

static atomic_uint_fast64_t copied;

void copy_counted(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	atomic_fetch_add_explicit(&copied, len, memory_order_relaxed);
}

void move_counted(void *to, const void *from, size_t len)
{
	memmove(to, from, len);
	atomic_fetch_add_explicit(&copied, len, memory_order_relaxed);
}

uint64_t copy_counter_bytes(void)
{
	return atomic_load_explicit(&copied, memory_order_relaxed);
}
