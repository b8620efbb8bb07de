/* SPDX-License-Identifier: Apache-2.0 */
/* 16 random bytes that name a cluster, a store, a target or a client; text form 8-4-4-4-12. */
#ifndef LEAT_COMMON_BASE_UUID_H
#define LEAT_COMMON_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/status.h"

struct uuid {
	uint8_t b[16];
};

#define UUID_TEXT_SIZE 37
void uuid_format(const struct uuid *u, char ret_text[UUID_TEXT_SIZE]);
int uuid_parse(const char *text, struct uuid *ret_uuid) CHECK_RESULT;

static inline bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

static inline bool uuid_is_zero(const struct uuid *a)
{
	static const struct uuid zero;
	return uuid_equal(a, &zero);
}

#endif
