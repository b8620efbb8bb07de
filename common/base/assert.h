/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions for programmer errors only; always compiled in. An error of a peer, a disk or the
 * allocator is a status, never an assertion.
 */
#ifndef LEAT_COMMON_BASE_ASSERT_H
#define LEAT_COMMON_BASE_ASSERT_H

#include <stddef.h>

/* Prints place and message with a backtrace to stderr, then aborts. */
_Noreturn void assert_failed(const char *file, int line, const char *func, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#define ASSERT(cond) \
	do { \
		if (__builtin_expect(!(cond), 0)) \
			assert_failed(__FILE__, __LINE__, __func__, "%s", #cond); \
	} while (0)
#define PANIC(...) assert_failed(__FILE__, __LINE__, __func__, __VA_ARGS__)

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Checks the type of a struct that was passed through void *: its first member is uint32_t
 * magic. */
#define CAST_OBJ(ptr, type, magic_value) \
	({ \
		type *cast_obj_ = (type *)(ptr); \
		ASSERT(cast_obj_ != NULL && cast_obj_->magic == (magic_value)); \
		cast_obj_; \
	})

#endif
