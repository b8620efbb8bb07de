/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that code does not yield where a header promises it. Only builds with a sanitizer check
 * it: there a fiber that yields in such a scope ends the program, in the function that yields.
 *
 *   NO_YIELD();   to the end of the enclosing block, however the block is left
 */
#ifndef LEAT_COMMON_RT_NO_YIELD_H
#define LEAT_COMMON_RT_NO_YIELD_H

#include <stdint.h>

#include "common/base/assert.h"

#if defined(__SANITIZE_ADDRESS__)
#define RT_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define RT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RT_ASAN 1
#elif __has_feature(thread_sanitizer)
#define RT_TSAN 1
#endif
#endif

#if defined(RT_ASAN) || defined(RT_TSAN)
/* The scopes that the running fiber is in: no other fiber of the thread runs meanwhile. */
extern _Thread_local uint32_t no_yield_depth;

static inline void no_yield_end(const uint32_t *depth)
{
	ASSERT(no_yield_depth == *depth);
	no_yield_depth--;
}
#define NO_YIELD() \
	__attribute__((cleanup(no_yield_end), unused)) const uint32_t no_yield_here = \
		++no_yield_depth
#define NO_YIELD_CHECK() ASSERT(no_yield_depth == 0)
#else
#define NO_YIELD() _Static_assert(1, "checked by builds with a sanitizer")
#define NO_YIELD_CHECK() ((void)0)
#endif

#endif
