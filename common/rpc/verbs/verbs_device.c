/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, the memory registered with them, and their events.
 *
 * A pool is registered with every device in use, one region per slot, so that a key sent to a peer
 * opens that slot only. A device that comes into use later gets all pools, a pool made later is
 * registered with all devices. The pages are pinned: from then on the whole pool is resident.
 *
 * One loop reads the asynchronous events of a device and notifies the others by mail.
 */
#include "common/rpc/verbs/verbs_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/log.h"
#include "common/rpc/verbs/transport_verbs.h"
#include "common/rpc/verbs/verbs_user_memory.h"
#include "common/rpc/verbs/verbs_region.h"

/* ---- memory ---- */

static void pool_forget(struct verbs_pool *p, struct verbs_device *dev)
{
	struct verbs_reg *regs = p->regs[dev->index];

	if (regs == NULL)
		return;
	for (uint32_t i = 0; i < slot_pool_total(p->pool); i++) {
		slot_pool_at(p->pool, i)->reg[dev->index] = NULL;
		if (regs[i].mr != NULL)
			verbs_deregister(dev, regs[i].mr);
	}
	free(regs);
	p->regs[dev->index] = NULL;
}

static int access_of(const struct verbs_device *dev, enum pool_use use)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (use == POOL_REMOTE)
		access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	/* On iWARP the response to a READ is a remote write. */
	if (use == POOL_SINK && dev->iwarp)
		access |= IBV_ACCESS_REMOTE_WRITE;
	return access;
}

static int pool_register(struct verbs_pool *p, struct verbs_device *dev)
{
	uint32_t n = slot_pool_total(p->pool);
	struct verbs_reg *regs = calloc(n, sizeof(*regs));
	int rc = 0;

	if (regs == NULL)
		return -LE_NOMEM;
	p->regs[dev->index] = regs;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct slot *s = slot_pool_at(p->pool, i);
		regs[i].mr = verbs_register(dev, s->data, s->size, access_of(dev, p->use), &rc);
		regs[i].remote = p->use == POOL_REMOTE;
		if (regs[i].mr != NULL)
			s->reg[dev->index] = &regs[i];
	}
	if (rc < 0)
		pool_forget(p, dev);
	return rc;
}

static void pool_free(struct verbs_pool *p)
{
	for (uint32_t i = 0; i < p->v->n_devices; i++)
		pool_forget(p, p->v->devices[i]);
	list_remove(&p->link);
	free(p);
}

static void pool_gone(struct slot_pool_hook *h)
{
	struct verbs_pool *p = container_of(h, struct verbs_pool, hook);
	struct verbs *v = p->v;

	pthread_mutex_lock(&v->lock);
	pool_free(p);
	pthread_mutex_unlock(&v->lock);
}

static struct verbs_pool *find_pool(const struct verbs *v, const struct slot_pool *pool)
{
	list_for_each(n, &v->pools) {
		struct verbs_pool *p = container_of(n, struct verbs_pool, link);
		if (p->pool == pool)
			return p;
	}
	return NULL;
}

/* Registers an existing pool for a further use; none of its slots may be in use at this time. */
static int pool_again(struct verbs_pool *p, enum pool_use use)
{
	int rc = 0;

	if (use <= p->use)
		return 0;
	p->use = use;
	for (uint32_t i = 0; i < p->v->n_devices && rc == 0; i++) {
		pool_forget(p, p->v->devices[i]);
		rc = pool_register(p, p->v->devices[i]);
	}
	return rc;
}

int verbs_pool_add(struct verbs *v, struct slot_pool *pool, enum pool_use use)
{
	struct verbs_pool *p = calloc(1, sizeof(*p));
	int rc = 0;

	if (p == NULL)
		return -LE_NOMEM;
	*p = (struct verbs_pool){ .hook.gone = pool_gone, .v = v, .pool = pool, .use = use };
	pthread_mutex_lock(&v->lock);
	struct verbs_pool *there = find_pool(v, pool);
	if (there != NULL) {
		free(p);
		rc = pool_again(there, use);
	} else {
		list_push(&v->pools, &p->link);
		for (uint32_t i = 0; i < v->n_devices && rc == 0; i++)
			rc = pool_register(p, v->devices[i]);
		if (rc < 0)
			pool_free(p);
		else
			slot_pool_hook_add(pool, &p->hook);
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

void verbs_pools_free(struct verbs *v)
{
	struct list *n;

	while ((n = v->pools.next) != &v->pools) {
		struct verbs_pool *p = container_of(n, struct verbs_pool, link);

		slot_pool_hook_remove(&p->hook);
		pool_free(p);
	}
}

/* ---- devices ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
	return value != 0 ? value : otherwise;
}

static int read_limits(struct verbs_device *dev)
{
	const struct transport_verbs_options *o = &dev->v->opts;
	struct ibv_device_attr a;
	struct ibv_port_attr port;
	int err = ibv_query_device(dev->ctx, &a);

	if (err == 0)
		err = ibv_query_port(dev->ctx, 1, &port);
	if (err != 0)
		return status_from_errno(err);
	dev->iwarp = dev->ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	dev->srq = a.max_srq > 0 && a.max_srq_wr > 0 && o->srq != VERBS_SRQ_OFF &&
		   (o->srq == VERBS_SRQ_ON || !dev->iwarp);
	dev->wrs = least(or_default(o->wrs_max, 128), (uint32_t)a.max_qp_wr);
	dev->sges = least(least(or_default(o->sges_max, VERBS_SGES), (uint32_t)a.max_sge),
			  VERBS_SGES);
	dev->inline_max = o->inline_max == UINT32_MAX ? 0 : or_default(o->inline_max, 256);
	dev->credits = least(or_default(o->credits, 32), dev->wrs);
	dev->cqes = (uint32_t)a.max_cqe;
	dev->srq_wrs = (uint32_t)a.max_srq_wr;
	dev->qps_max = least(or_default(o->qps_max, UINT32_MAX), (uint32_t)a.max_qp);
	dev->mrs_max = least(or_default(o->mrs_max, UINT32_MAX), (uint32_t)a.max_mr);
	uint32_t reads = or_default(o->reads_max, 16);
	dev->reads = least(least(reads, (uint32_t)a.max_qp_init_rd_atom), 255);
	dev->serve_reads = least(least(reads, (uint32_t)a.max_qp_rd_atom), 255);
	dev->msg_max = port.max_msg_sz > 0 ? least(port.max_msg_sz, 1u << 30) : 1u << 30;
	if (dev->wrs < 8 || dev->sges < 1 || dev->credits < VERBS_CREDITS_MIN || dev->reads == 0) {
		log_error("verbs: %s is too small: %u work requests, %u credits, %u reads",
			  dev->name, dev->wrs, dev->credits, dev->reads);
		return -LE_NOTSUP;
	}
	return 0;
}

static bool is_wanted(const struct verbs *v, const char *name)
{
	size_t len = strlen(name);

	if (v->names == NULL)
		return true;
	for (const char *at = v->names; (at = strstr(at, name)) != NULL; at += len)
		if ((at == v->names || strchr(" ,", at[-1]) != NULL) &&
		    (at[len] == '\0' || strchr(" ,", at[len]) != NULL))
			return true;
	return false;
}

static int device_open(struct verbs *v, struct ibv_context *ctx, struct verbs_device **ret_dev)
{
	const char *name = ibv_get_device_name(ctx->device);
	struct verbs_device *dev;
	int rc = 0;

	if (!is_wanted(v, name))
		return -LE_NODEV;
	if (v->n_devices == VERBS_DEVICES_MAX)
		return -LE_OVERLOAD;
	dev = calloc(1, sizeof(*dev));
	if (dev == NULL)
		return -LE_NOMEM;
	*dev = (struct verbs_device){ .v = v, .ctx = ctx, .index = v->n_devices };
	strncpy(dev->name, name, sizeof(dev->name) - 1);
	rc = read_limits(dev);
	if (rc == 0 && (dev->pd = ibv_alloc_pd(ctx)) == NULL)
		rc = status_from_errno(errno);
	list_for_each(n, &v->pools)
		if (rc == 0)
			rc = pool_register(container_of(n, struct verbs_pool, link), dev);
	if (rc == 0)
		user_memory_register(v, dev);
	if (rc < 0) {
		list_for_each(n, &v->pools)
			pool_forget(container_of(n, struct verbs_pool, link), dev);
		verbs_device_close(dev);
		return rc;
	}
	v->devices[v->n_devices++] = dev;
	log_info("verbs: using %s (%s, %u work requests, %u pieces, %u reads, %u credits)",
		 dev->name, dev->iwarp ? "iWARP" : dev->srq ? "shared receive queue" : "InfiniBand",
		 dev->wrs, dev->sges, dev->reads, dev->credits);
	*ret_dev = dev;
	return 0;
}

int verbs_device_get(struct verbs *v, struct ibv_context *ctx, struct verbs_device **ret_dev)
{
	struct verbs_device *dev = NULL;
	int rc = 0;

	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 0; i < v->n_devices; i++)
		if (v->devices[i]->ctx == ctx)
			dev = v->devices[i];
	if (dev == NULL)
		rc = device_open(v, ctx, &dev);
	pthread_mutex_unlock(&v->lock);
	if (rc == 0 && atomic_load(&dev->gone))
		rc = -LE_NODEV;
	if (rc == 0)
		*ret_dev = dev;
	return rc;
}

int verbs_device_all(struct verbs *v)
{
	struct verbs_device *dev;
	int n = 0, rc = -LE_NODEV;
	struct ibv_context **list = rdma_get_devices(&n);

	if (list == NULL)
		return -LE_NODEV;
	for (int i = 0; i < n; i++) {
		int one = verbs_device_get(v, list[i], &dev);
		/* One working device is enough. */
		if (rc != 0)
			rc = one;
	}
	rdma_free_devices(list);
	return rc;
}

void verbs_device_close(struct verbs_device *dev)
{
	if (dev->pd != NULL)
		(void)ibv_dealloc_pd(dev->pd);
	free(dev);
}

/* ---- events ---- */

static void set_down(struct verbs_device *dev, int port, bool down)
{
	uint32_t bit, before;

	if (port < 1 || port > 31)
		return;
	bit = 1u << port;
	before = down ? atomic_fetch_or(&dev->down, bit) : atomic_fetch_and(&dev->down, ~bit);
	if (((before & bit) != 0) == down)
		return;
	if (down)
		log_warn("verbs: port %d of %s is down", port, dev->name);
	else
		log_info("verbs: port %d of %s is up", port, dev->name);
}

/* Queries each time: the port may have been down before any loop read events. */
bool verbs_device_port_down(struct verbs_device *dev, int port)
{
	struct ibv_port_attr a;

	if (port < 1 || port > 31)
		return false;
	/* If the query fails, the next step fails with a better reason. */
	if (ibv_query_port(dev->ctx, (uint8_t)port, &a) == 0)
		set_down(dev, port, a.state != IBV_PORT_ACTIVE);
	return (atomic_load(&dev->down) & 1u << port) != 0;
}

static void notify_loops(struct verbs *v)
{
	pthread_mutex_lock(&v->lock);
	list_for_each(n, &v->loops) {
		struct verbs_loop *vl = container_of(n, struct verbs_loop, link);

		if (vl->n_users > 0 && !atomic_exchange(&vl->mailed, true))
			loop_post(vl->loop, &vl->mail);
	}
	pthread_mutex_unlock(&v->lock);
}

static void device_event(struct verbs_device *dev, const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		log_error("verbs: device %s is lost", dev->name);
		atomic_store(&dev->gone, true);
		notify_loops(dev->v);
		break;
	case IBV_EVENT_PORT_ERR:
		set_down(dev, e->element.port_num, true);
		notify_loops(dev->v);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		set_down(dev, e->element.port_num, false);
		break;
	case IBV_EVENT_CQ_ERR:
		log_error("verbs: a completion queue of %s has failed", dev->name);
		atomic_store(&dev->gone, true);
		notify_loops(dev->v);
		break;
	default:
		/* Errors of a queue pair arrive as failed work requests. */
		log_debug("verbs: %s: %s", dev->name, ibv_event_type_str(e->event_type));
	}
}

static void async_ready(struct loop_watch *w)
{
	struct verbs_device *dev = container_of(w, struct verbs_device, watch);
	struct ibv_async_event e;

	while (ibv_get_async_event(dev->ctx, &e) == 0) {
		struct ibv_async_event copy = e;
		ibv_ack_async_event(&e);
		device_event(dev, &copy);
	}
}

int verbs_device_watch(struct verbs_device *dev, struct verbs_loop *vl)
{
	int fd = dev->ctx->async_fd, rc = 0;

	pthread_mutex_lock(&dev->v->lock);
	if (dev->watcher == NULL) {
		(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
		dev->watch.fn = async_ready;
		rc = loop_watch_start(&dev->watch, fd);
		if (rc == 0)
			dev->watcher = vl;
	}
	pthread_mutex_unlock(&dev->v->lock);
	return rc;
}
