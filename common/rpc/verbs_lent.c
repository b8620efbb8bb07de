/*
 * Memory of others that calls receive into: lent by them for a while, piece by piece, or slots of a
 * pool that somebody reads into by address. What a call is given then is a slot without a pool,
 * whose registration is looked up here when its request is sent.
 *
 * A piece is registered without the lock, which loops take for each such request: pinning takes a
 * while. Devices are never removed before the transport is.
 */
#include <stdlib.h>

#include "common/rpc/verbs_impl.h"

#define LENT_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static bool covers(const uint8_t *from, uint64_t from_len, const uint8_t *base, uint64_t len)
{
	return base >= from && len <= from_len && (uint64_t)(base - from) <= from_len - len;
}

/* ---- looking up, under the lock ---- */

static struct verbs_reg *in_lent(const struct verbs *v, uint32_t dev, const uint8_t *base,
				 uint64_t len)
{
	list_for_each(n, &v->lent) {
		struct lent_memory *m = container_of(n, struct lent_memory, link);
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
	struct verbs_reg *r = in_lent(v, dev, base, len);

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

/* ---- lending ---- */

static void forget(struct verbs *v, struct lent_memory *m)
{
	for (uint32_t i = 0; i < v->n_devices; i++)
		if (m->regs[i].mr != NULL)
			verbs_deregister(v->devices[i], m->regs[i].mr);
	free(m);
}

int verbs_lend(struct verbs *v, void *base, uint64_t len, struct lent_memory **ret_lent)
{
	struct lent_memory *m = calloc(1, sizeof(*m));
	int rc = 0;

	if (m == NULL)
		return -LE_NOMEM;
	m->base = base;
	m->len = len;
	pthread_mutex_lock(&v->lock);
	/* Until it has one of each device, also of those that come into use meanwhile. */
	for (uint32_t i = 0; i < v->n_devices && rc == 0; i++)
		m->regs[i] = (struct verbs_reg){
			verbs_register_apart(v->devices[i], base, len, LENT_ACCESS, &rc), true
		};
	if (rc == 0)
		list_push(&v->lent, &m->link);
	else
		forget(v, m);
	pthread_mutex_unlock(&v->lock);
	if (rc == 0)
		*ret_lent = m;
	return rc;
}

void verbs_take_back(struct verbs *v, struct lent_memory *m)
{
	pthread_mutex_lock(&v->lock);
	list_remove(&m->link);
	forget(v, m);
	pthread_mutex_unlock(&v->lock);
}

/* A device comes into use: what is lent is for it too. What cannot be registered with it is copied
 * from then on. */
void verbs_lent_register(struct verbs *v, struct verbs_device *dev)
{
	list_for_each(n, &v->lent) {
		struct lent_memory *m = container_of(n, struct lent_memory, link);
		int rc = 0;
		m->regs[dev->index] = (struct verbs_reg){
			verbs_register(dev, m->base, m->len, LENT_ACCESS, &rc), true
		};
	}
}
