/* SPDX-License-Identifier: Apache-2.0 */
/* Free lists over slabs. */
#include "mds/store/pool.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

#define SLAB_SIZE (64u << 10)
#define SLAB_HEAD 16u

void pool_init(struct pool *p, size_t size)
{
	*p = (struct pool){.size = (size + 15) & ~(size_t)15};
}

void pool_fini(struct pool *p)
{
	while (p->slabs != NULL) {
		void *slab = p->slabs;

		p->slabs = *(void **)slab;
		free(slab);
	}
	*p = (struct pool){.size = p->size};
}

int pool_reserve(struct pool *p, uint32_t n)
{
	while (p->n_free < n) {
		char *slab = malloc(SLAB_SIZE);

		if (slab == NULL)
			return -LE_NOMEM;
		*(void **)slab = p->slabs;
		p->slabs = slab;
		p->bytes += SLAB_SIZE;
		for (size_t at = SLAB_HEAD; at + p->size <= SLAB_SIZE; at += p->size)
			pool_put(p, slab + at);
	}
	return 0;
}

void *pool_get(struct pool *p)
{
	void *object = p->free;

	ASSERT(object != NULL);
	p->free = *(void **)object;
	p->n_free--;
	return memset(object, 0, p->size);
}

void pool_put(struct pool *p, void *object)
{
	*(void **)object = p->free;
	p->free = object;
	p->n_free++;
}
