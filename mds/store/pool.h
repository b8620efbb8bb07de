/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of one size from slabs, which are reused and never shrink. After pool_reserve, pool_get
 * cannot fail, so a critical section needs no code for lack of memory. Owned by one loop.
 */
#ifndef LEAT_MDS_STORE_POOL_H
#define LEAT_MDS_STORE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct pool {
	size_t size;
	uint32_t n_free;
	void *free;  /* objects, linked by their first word */
	void *slabs; /* linked by their first word */
	uint64_t bytes; /* of all slabs */
};

void pool_init(struct pool *p, size_t size);
void pool_fini(struct pool *p); /* frees all objects, returned or not */
/* Makes sure that the next n calls of pool_get succeed. Returns 0 or -LE_NOMEM. */
int pool_reserve(struct pool *p, uint32_t n) CHECK_RESULT;
void *pool_get(struct pool *p); /* zeroed; asserts that the reserve was large enough */
void pool_put(struct pool *p, void *object);

#endif
