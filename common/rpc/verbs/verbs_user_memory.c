/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User memory that calls receive into: ranges that the user registers for a while, or slots of a
 * pool that are addressed directly. The call then has a slot without a pool; its registration is
 * looked up here when the request is sent.
 *
 * A range is registered without holding the lock, which loops take for each such request: pinning
 * is slow. Devices exist until the transport is destroyed.
 */
#include "common/rpc/verbs/verbs_user_memory.h"

#include <stdlib.h>

#include "common/rpc/verbs/verbs_region.h"

#define LENT_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static bool covers(const uint8_t *from, uint64_t from_len, const uint8_t *base, uint64_t len)
{
	return base >= from && len <= from_len && (uint64_t)(base - from) <= from_len - len;
}

/* ---- lookup, under the lock ---- */

static struct verbs_reg *in_user_memory(const struct verbs *v, uint32_t dev, const uint8_t *base,
				 uint64_t len)
{
	list_for_each(n, &v->user_memory) {
		struct user_memory *m = container_of(n, struct user_memory, link);
		if (covers(m->base, m->len, base, len) && m->regs[dev].mr != NULL)
			return &m->regs[dev];
	}
	return NULL;
}

static struct verbs_reg *in_pools(const struct verbs *v, uint32_t dev, const uint8_t *base,
				  uint64_t len)
{
	list_for_each(n, &v->pools) {
		struct verbs_pool *p = container_of(n, struct verbs_pool, link);
		uint64_t pool_len, stride;
		void *pool_base;

		slot_pool_memory(p->pool, &pool_base, &pool_len);
		if (p->use != POOL_REMOTE || !covers(pool_base, pool_len, base, len))
			continue;
		stride = slot_pool_stride(p->pool);
		uint64_t i = (uint64_t)(base - (uint8_t *)pool_base) / stride;
		if (i >= slot_pool_total(p->pool) || p->regs[dev] == NULL)
			return NULL;
		const struct slot *s = slot_pool_at(p->pool, (uint32_t)i);
		return covers(s->data, s->size, base, len) ? &p->regs[dev][i] : NULL;
	}
	return NULL;
}

static struct verbs_reg *find(const struct verbs *v, uint32_t dev, const void *base, uint64_t len)
{
	struct verbs_reg *r = in_user_memory(v, dev, base, len);

	return r != NULL ? r : in_pools(v, dev, base, len);
}

struct verbs_reg *verbs_reg_at(struct verbs_device *dev, const void *base, uint64_t len)
{
	pthread_mutex_lock(&dev->v->lock);
	struct verbs_reg *r = find(dev->v, dev->index, base, len);
	pthread_mutex_unlock(&dev->v->lock);
	return r;
}

bool verbs_lands(struct verbs *v, const void *base, uint64_t len)
{
	bool lands = true;

	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 0; i < v->n_devices && lands; i++)
		lands = find(v, i, base, len) != NULL;
	pthread_mutex_unlock(&v->lock);
	return lands;
}

/* ---- registering ---- */

static void forget(struct verbs *v, struct user_memory *m)
{
	for (uint32_t i = 0; i < v->n_devices; i++)
		if (m->regs[i].mr != NULL)
			verbs_deregister(v->devices[i], m->regs[i].mr);
	free(m);
}

int verbs_register_user(struct verbs *v, void *base, uint64_t len, struct user_memory **ret_memory)
{
	struct user_memory *m = calloc(1, sizeof(*m));
	int rc = 0;

	if (m == NULL)
		return -LE_NOMEM;
	m->base = base;
	m->len = len;
	pthread_mutex_lock(&v->lock);
	/* The lock is released during each registration: the loop also covers devices that come
	 * into use meanwhile. */
	for (uint32_t i = 0; i < v->n_devices && rc == 0; i++)
		m->regs[i] = (struct verbs_reg){
			verbs_register_apart(v->devices[i], base, len, LENT_ACCESS, &rc), true
		};
	if (rc == 0)
		list_push(&v->user_memory, &m->link);
	else
		forget(v, m);
	pthread_mutex_unlock(&v->lock);
	if (rc == 0)
		*ret_memory = m;
	return rc;
}

void verbs_unregister_user(struct verbs *v, struct user_memory *m)
{
	pthread_mutex_lock(&v->lock);
	list_remove(&m->link);
	forget(v, m);
	pthread_mutex_unlock(&v->lock);
}

/* Registers all user memory with a device that comes into use. Data for memory that cannot be
 * registered with it is copied from then on. */
void user_memory_register(struct verbs *v, struct verbs_device *dev)
{
	list_for_each(n, &v->user_memory) {
		struct user_memory *m = container_of(n, struct user_memory, link);
		int rc = 0;
		m->regs[dev->index] = (struct verbs_reg){
			verbs_register(dev, m->base, m->len, LENT_ACCESS, &rc), true
		};
	}
}
