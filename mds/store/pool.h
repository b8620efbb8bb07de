/*
 * Objects of one size from slabs, reused for ever: get never fails once reserve has succeeded, so
 * that a critical section need not think of memory. Owned by one loop.
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
};

void pool_init(struct pool *p, size_t size);
void pool_fini(struct pool *p); /* frees all objects, returned or not */
/* At least n gets will succeed. -LE_NOMEM */
int pool_reserve(struct pool *p, uint32_t n) CHECK_RESULT;
void *pool_get(struct pool *p); /* zeroed; asserts that the reserve was large enough */
void pool_put(struct pool *p, void *object);

#endif
