/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: page-aligned buffers of one size, mapped (MAP_SHARED, huge pages where available) and
 * registered once, reused for ever. Bulk data is transferred only in slots, from the network to the
 * disk or to the application, and is not copied between them.
 *
 * A pool belongs to one loop: get, ref and unref happen there. In `reg` each transport stores its
 * registration of the slot (memory region keys).
 */
#ifndef LEAT_COMMON_RT_SLOT_H
#define LEAT_COMMON_RT_SLOT_H

#include <stdint.h>

#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/rt/fiber.h"

struct slot_pool;

#define SLOT_REGS 4
struct slot {
	uint8_t *data;
	uint32_t size;
	uint32_t refs;
	struct slot_pool *pool;
	void *reg[SLOT_REGS];
	struct list link; /* free list; for the holder's use while held */
};

/* A piece of a slot. */
struct slot_vec {
	struct slot *slot;
	uint32_t off, len;
};

/* Makes n_max slots of size bytes. Memory is mapped immediately but allocated at the first use. */
int slot_pool_create(uint32_t size, uint32_t n_max, struct slot_pool **ret_pool) CHECK_RESULT;
/* No slot may be held. */
void slot_pool_destroy(struct slot_pool *p);
/* One reference for the caller; the most recently freed slot (warm cache). NULL when none is
 * free. */
struct slot *slot_try_get(struct slot_pool *p);
/* Waits for a slot, in order of arrival: -LE_TIMEDOUT, -LE_INTR. Yields. */
int slot_get(struct slot_pool *p, uint64_t deadline_us, struct slot **ret_slot) CHECK_RESULT;
static inline struct slot *slot_ref(struct slot *s)
{
	ASSERT(s->refs > 0);
	s->refs++;
	return s;
}
void slot_unref(struct slot *s); /* NULL is fine */
uint32_t slot_pool_free(const struct slot_pool *p);
uint32_t slot_pool_size(const struct slot_pool *p); /* bytes per slot */
uint32_t slot_pool_total(const struct slot_pool *p);
/* distance from one slot's memory to the next */
uint64_t slot_pool_stride(const struct slot_pool *p);
/* The i-th of all, held or free. */
struct slot *slot_pool_at(struct slot_pool *p, uint32_t i);
/* Before the pool's memory is unmapped, `gone` is called on the pool's loop; the hook is already
 * removed. */
struct slot_pool_hook {
	struct list link;
	void (*gone)(struct slot_pool_hook *h);
};
void slot_pool_hook_add(struct slot_pool *p, struct slot_pool_hook *h);
void slot_pool_hook_remove(struct slot_pool_hook *h);
/* Base and length of the whole mapping, for registration. */
void slot_pool_memory(const struct slot_pool *p, void **ret_base, uint64_t *ret_len);

#endif
