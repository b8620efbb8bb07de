/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport's state of one loop (the verbs loop), and the handling of completions.
 *
 * In every turn of the loop, after its fibers have run: post the work requests that they staged,
 * poll the completion queues, break the links that failed, return credits. While the loop spins,
 * this repeats. Before the loop sleeps, the queues are armed and polled once more, and the loop's
 * io_uring watches the completion channel. So a busy loop makes no system call for completions, and
 * an idle one two per wake-up.
 *
 * Completions only update state and wake fibers. Ending a queue pair is deferred to settle(),
 * because it polls again: after a queue pair is destroyed, no completion of it may remain for the
 * next queue pair with the same number.
 *
 * Groups limit the sizes of queues. A completion queue holds all that its 64 links can have in
 * flight, a shared receive queue has a buffer for every credit given. A queue pair that breaks in
 * the middle of a message may lose a buffer of the shared queue; after VERBS_SPARE such losses a
 * group accepts no new links, and is destroyed with its last one.
 */
#include "common/rpc/verbs/verbs_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/log.h"
#include "common/rpc/verbs/verbs_device.h"
#include "common/rpc/verbs/verbs_link.h"
#include "common/rpc/verbs/verbs_region.h"
#include "common/rpc/verbs/verbs_send.h"

#define ACKS_KEPT 64u
#define POLLS_MAX 8u /* batches from one queue per turn */

/* ---- buffers ---- */

uint32_t verbs_tx_get(struct verbs_group *g)
{
	return g->n_tx_free > 0 ? g->tx_free[--g->n_tx_free] : VERBS_NO_BUF;
}

void verbs_tx_put(struct verbs_group *g, uint32_t buf)
{
	g->tx_free[g->n_tx_free++] = buf;
	waitq_wake_one(&g->tx_space);
}

static void doom_all(struct verbs_group *g, const char *reason)
{
	for (uint32_t i = 0; i < g->links_max; i++)
		if (g->links[i] != NULL)
			verbs_link_doom(g->links[i], reason, -LE_IO);
}

void verbs_group_repost(struct verbs_group *g)
{
	struct ibv_recv_wr wrs[VERBS_BATCH], *bad;
	struct ibv_sge sges[VERBS_BATCH];

	if (g->n_repost == 0)
		return;
	for (uint32_t i = 0; i < g->n_repost; i++) {
		sges[i] = (struct ibv_sge){ (uintptr_t)verbs_buf(g, g->repost[i]), g->buf_size,
					    g->mr->lkey };
		wrs[i] = (struct ibv_recv_wr){ .wr_id = g->repost[i],
					       .next = i + 1 < g->n_repost ? &wrs[i + 1] : NULL,
					       .sg_list = &sges[i],
					       .num_sge = 1 };
	}
	g->n_repost = 0;
	if (ibv_post_srq_recv(g->srq, wrs, &bad) == 0)
		return;
	/* Not all buffers are in the queue, which new links would rely on. */
	g->worn = VERBS_SPARE;
	doom_all(g, "its receive queue has failed");
}

/* ---- completions ---- */

static struct verbs_link *link_by_qp(struct verbs_group *g, uint32_t qp_num)
{
	struct verbs_link *k = g->links[g->qp_hint];

	if (k != NULL && k->qp != NULL && k->qp->qp_num == qp_num)
		return k;
	for (uint32_t i = 0; i < g->links_max; i++) {
		k = g->links[i];
		if (k != NULL && k->qp != NULL && k->qp->qp_num == qp_num) {
			g->qp_hint = i;
			return k;
		}
	}
	return NULL;
}

void verbs_rx_drop(struct verbs_group *g, uint32_t buf)
{
	if (g->srq == NULL)
		return;
	g->repost[g->n_repost++] = buf;
	if (g->n_repost == VERBS_BATCH)
		verbs_group_repost(g);
}

static void completed(struct verbs_group *g, const struct ibv_wc *wc)
{
	struct verbs_link *k = link_by_qp(g, wc->qp_num);

	if (wc->wr_id & VERBS_SEND_ID) {
		if (k != NULL)
			verbs_link_sent(k, (uint32_t)wc->wr_id, wc);
		return;
	}
	if (k == NULL) {
		verbs_rx_drop(g, (uint32_t)wc->wr_id);
	} else if (wc->status == IBV_WC_SUCCESS) {
		verbs_link_received(k, (uint32_t)wc->wr_id, wc->byte_len);
	} else {
		verbs_rx_drop(g, (uint32_t)wc->wr_id);
		verbs_link_doom(k, verbs_wc_reason(wc->status), -LE_DISCONNECTED);
	}
}

static uint32_t poll_some(struct verbs_group *g)
{
	struct ibv_wc wc[VERBS_BATCH];
	int n = ibv_poll_cq(g->cq, VERBS_BATCH, wc);

	if (n < 0) {
		doom_all(g, "its completion queue has failed");
		return 0;
	}
	for (int i = 0; i < n; i++)
		completed(g, &wc[i]);
	return (uint32_t)n;
}

void verbs_group_drain(struct verbs_group *g)
{
	while (poll_some(g) > 0)
		;
}

void verbs_group_poll(struct verbs_group *g)
{
	for (uint32_t i = 0; i < POLLS_MAX; i++)
		if (poll_some(g) < VERBS_BATCH)
			return;
}

static void break_doomed(struct verbs_loop *vl)
{
	struct list *n;

	while ((n = list_pop(&vl->doomed)) != NULL) {
		struct verbs_link *k = container_of(n, struct verbs_link, doomed);
		verbs_link_break(k, k->reason, k->reason_status);
	}
}

/* Breaks doomed links, and sends owed credits. */
static void settle(struct verbs_loop *vl)
{
	struct list *n, owing;

	break_doomed(vl);
	/* A link that cannot send them yet puts itself back into verbs loop->owing. */
	list_init(&owing);
	while ((n = list_pop(&vl->owing)) != NULL)
		list_push(&owing, n);
	while ((n = list_pop(&owing)) != NULL)
		verbs_link_pay(container_of(n, struct verbs_link, owing));
}

static void hub_poll(struct loop_poller *p)
{
	struct verbs_loop *vl = container_of(p, struct verbs_loop, poller);

	verbs_flush(vl);
	list_for_each(n, &vl->groups)
		verbs_group_poll(container_of(n, struct verbs_group, link));
	settle(vl);
	verbs_flush(vl);
}

static bool hub_arm(struct loop_poller *p)
{
	struct verbs_loop *vl = container_of(p, struct verbs_loop, poller);
	uint32_t n_done = 0;

	list_for_each(n, &vl->groups) {
		struct verbs_group *g = container_of(n, struct verbs_group, link);

		if (g->armed || g->n_links == 0)
			continue;
		if (ibv_req_notify_cq(g->cq, 0) == 0) {
			g->armed = true;
			vl->channels[g->dev->index].n_armed++;
		}
		/* Completions from before the arming cause no event. */
		n_done += poll_some(g);
	}
	if (n_done > 0) {
		settle(vl);
		verbs_flush(vl);
	}
	return n_done > 0;
}

static void ack(struct verbs_group *g)
{
	if (g->unacked > 0)
		ibv_ack_cq_events(g->cq, g->unacked);
	g->unacked = 0;
}

static void disarmed(struct verbs_channel *c, struct verbs_group *g)
{
	if (!g->armed)
		return;
	g->armed = false;
	c->n_armed--;
}

/* Handles the events of armed queues. An armed queue makes one event, so reading stops when all
 * have. Completions are handled right here, so that fibers that wait for them run in the turn that
 * begins now. Failed links are broken before that, while the reason is available: a fiber that
 * waits on one would close it. */
static void channel_ready(struct loop_watch *w)
{
	struct verbs_channel *c = container_of(w, struct verbs_channel, watch);
	struct ibv_cq *cq;
	void *arg;

	c->vl->wakeups++;
	while (c->n_armed > 0) {
		if (ibv_get_cq_event(c->ch, &cq, &arg) != 0)
			break;
		struct verbs_group *g = arg;
		disarmed(c, g);
		if (++g->unacked == ACKS_KEPT)
			ack(g);
		verbs_group_poll(g);
	}
	break_doomed(c->vl);
}

/* ---- groups ---- */

static void group_destroy(struct verbs_group *g)
{
	struct verbs_device *dev = g->dev;

	list_remove(&g->link);
	disarmed(&g->vl->channels[dev->index], g);
	if (g->srq != NULL)
		(void)ibv_destroy_srq(g->srq);
	if (g->cq != NULL) {
		ack(g);
		(void)ibv_destroy_cq(g->cq);
	}
	pthread_mutex_lock(&dev->v->lock);
	dev->n_cqs -= g->cq != NULL;
	if (g->mr != NULL)
		verbs_deregister(dev, g->mr);
	pthread_mutex_unlock(&dev->v->lock);
	if (g->memory != NULL)
		munmap(g->memory, g->memory_len);
	free(g->rx_next);
	free(g->rx_len);
	free(g->tx_free);
	free(g);
}

static int say_no_queues(struct verbs_device *dev, const char *what)
{
	int err = errno;

	if (verbs_may_log(dev->v, TROUBLE_QUEUES))
		log_error("verbs: %s cannot create a %s: %s%s", dev->name, what, strerror(err),
			  err == ENOMEM ? " (queues are locked memory: LimitMEMLOCK=infinity)"
					: "");
	return status_from_errno(err);
}

static int group_memory(struct verbs_group *g)
{
	int rc = 0;

	g->rx_next = calloc(g->n_rx, sizeof(g->rx_next[0]));
	g->rx_len = calloc(g->n_rx, sizeof(g->rx_len[0]));
	g->tx_free = calloc(g->n_tx, sizeof(g->tx_free[0]));
	g->memory_len = (uint64_t)(g->n_rx + g->n_tx) * g->buf_size;
	void *p = mmap(NULL, g->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	if (p == MAP_FAILED || g->rx_next == NULL || g->rx_len == NULL || g->tx_free == NULL)
		return -LE_NOMEM;
	g->memory = p;
	pthread_mutex_lock(&g->dev->v->lock);
	g->mr = verbs_register(g->dev, g->memory, g->memory_len, IBV_ACCESS_LOCAL_WRITE, &rc);
	pthread_mutex_unlock(&g->dev->v->lock);
	while (g->n_tx_free < g->n_tx) {
		g->tx_free[g->n_tx_free] = g->n_rx + g->n_tx - 1 - g->n_tx_free;
		g->n_tx_free++;
	}
	return rc;
}

static int group_queues(struct verbs_group *g)
{
	struct verbs_device *dev = g->dev;
	struct verbs_loop *vl = g->vl;
	struct verbs_channel *c = &vl->channels[dev->index];
	uint32_t cqes = g->links_max * (dev->wrs + dev->credits) + VERBS_SPARE;

	g->cq = ibv_create_cq(dev->ctx, (int)cqes, g, c->ch, 0);
	if (g->cq == NULL)
		return say_no_queues(dev, "completion queue");
	pthread_mutex_lock(&dev->v->lock);
	dev->n_cqs++;
	pthread_mutex_unlock(&dev->v->lock);
	if (!dev->srq)
		return 0;
	struct ibv_srq_init_attr a = { .attr = { .max_wr = g->n_rx, .max_sge = 1 } };
	g->srq = ibv_create_srq(dev->pd, &a);
	if (g->srq == NULL)
		return say_no_queues(dev, "shared receive queue");
	for (uint32_t i = 0; i < g->n_rx; i++)
		verbs_rx_drop(g, i);
	verbs_group_repost(g);
	return 0;
}

/* The first group of a device is small, as most programs have few connections; so is one that
 * replaces a worn-out group. */
static uint32_t group_links(const struct verbs_loop *vl, const struct verbs_device *dev)
{
	uint32_t n = 8;

	list_for_each(pos, &vl->groups) {
		const struct verbs_group *g = container_of(pos, struct verbs_group, link);
		if (g->dev == dev && g->worn < VERBS_SPARE)
			n = VERBS_GROUP_LINKS;
	}
	while (n > 1 && n * (dev->wrs + dev->credits) + VERBS_SPARE > dev->cqes)
		n /= 2;
	while (n > 1 && dev->srq && n * dev->credits + VERBS_SPARE > dev->srq_wrs)
		n /= 2;
	return n;
}

static int channel_open(struct verbs_loop *vl, struct verbs_device *dev)
{
	struct verbs_channel *c = &vl->channels[dev->index];

	if (c->ch == NULL) {
		c->ch = ibv_create_comp_channel(dev->ctx);
		if (c->ch == NULL)
			return say_no_queues(dev, "completion channel");
		(void)fcntl(c->ch->fd, F_SETFL, fcntl(c->ch->fd, F_GETFL) | O_NONBLOCK);
		c->vl = vl;
		c->watch.fn = channel_ready;
		c->watch.drains = true;
	}
	return c->watch.internal != NULL ? 0 : loop_watch_start(&c->watch, c->ch->fd);
}

static int group_create(struct verbs_loop *vl, struct verbs_device *dev,
			struct verbs_group **ret_group)
{
	struct verbs_group *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return -LE_NOMEM;
	list_init(&g->link);
	g->vl = vl;
	g->dev = dev;
	g->links_max = group_links(vl, dev);
	g->buf_size = vl->v->opts.recv_size;
	g->n_rx = g->links_max * dev->credits + (dev->srq ? VERBS_SPARE : 0);
	g->n_tx = g->links_max * 8 + 56;
	waitq_init(&g->tx_space);
	int rc = group_memory(g);
	if (rc == 0)
		rc = group_queues(g);
	if (rc < 0) {
		group_destroy(g);
		return rc;
	}
	list_push(&vl->groups, &g->link);
	*ret_group = g;
	return 0;
}

int verbs_group_join(struct verbs_link *k)
{
	struct verbs_loop *vl = k->vl;
	struct verbs_group *g = NULL;

	TRY(channel_open(vl, k->dev));
	TRY(verbs_device_watch(k->dev, vl));
	list_for_each(n, &vl->groups) {
		struct verbs_group *one = container_of(n, struct verbs_group, link);
		if (one->dev == k->dev && one->n_links < one->links_max && one->worn < VERBS_SPARE)
			g = one;
	}
	if (g == NULL)
		TRY(group_create(vl, k->dev, &g));
	k->place = 0;
	while (g->links[k->place] != NULL)
		k->place++;
	g->links[k->place] = k;
	g->n_links++;
	k->group = g;
	return 0;
}

void verbs_group_leave(struct verbs_link *k)
{
	struct verbs_group *g = k->group;

	k->group = NULL;
	g->links[k->place] = NULL;
	if (--g->n_links == 0 && g->worn > 0)
		group_destroy(g);
}

/* ---- the loop's state ---- */

static void hub_mail(struct mail *m)
{
	struct verbs_loop *vl = container_of(m, struct verbs_loop, mail);

	atomic_store(&vl->mailed, false);
	list_for_each(n, &vl->groups) {
		struct verbs_group *g = container_of(n, struct verbs_group, link);

		for (uint32_t i = 0; i < g->links_max; i++) {
			struct verbs_link *k = g->links[i];
			if (k == NULL || k->id == NULL)
				continue;
			if (atomic_load(&g->dev->gone))
				verbs_link_doom(k, "the device is lost", -LE_DISCONNECTED);
			else if (atomic_load(&g->dev->down) & 1u << (k->id->port_num & 31))
				verbs_link_doom(k, "the port is down", -LE_DISCONNECTED);
		}
	}
}

static void keepalive_fired(struct timer *t)
{
	struct verbs_loop *vl = container_of(t, struct verbs_loop, keepalive);
	uint64_t every = vl->v->opts.keepalive_ms * 1000ull, now = loop_now_us();

	list_for_each(n, &vl->groups) {
		struct verbs_group *g = container_of(n, struct verbs_group, link);
		for (uint32_t i = 0; i < g->links_max; i++)
			if (g->links[i] != NULL && g->links[i]->active_us + every <= now)
				verbs_link_ping(g->links[i]);
	}
	timer_set(t, now + every / 2);
}

static struct verbs_link *any_detached(struct verbs_loop *vl)
{
	list_for_each(n, &vl->groups) {
		struct verbs_group *g = container_of(n, struct verbs_group, link);

		for (uint32_t i = 0; i < g->links_max; i++)
			if (g->links[i] != NULL && g->links[i]->detached)
				return g->links[i];
	}
	return NULL;
}

/* Ends links that are closed but wait for their last messages to arrive. */
static void hub_gone(struct loop_poller *p)
{
	struct verbs_loop *vl = container_of(p, struct verbs_loop, poller);

	struct verbs_link *k;

	while ((k = any_detached(vl)) != NULL) {
		verbs_link_end_qp(k);
		verbs_link_free(k);
	}
}

int verbs_loop_get(struct verbs *v, struct verbs_loop **ret_hub)
{
	struct verbs_loop *vl = NULL;

	pthread_mutex_lock(&v->lock);
	list_for_each(n, &v->loops)
		if (container_of(n, struct verbs_loop, link)->loop == loop_self())
			vl = container_of(n, struct verbs_loop, link);
	pthread_mutex_unlock(&v->lock);
	if (vl != NULL) {
		*ret_hub = vl;
		return 0;
	}
	vl = calloc(1, sizeof(*vl));
	if (vl == NULL)
		return -LE_NOMEM;
	vl->v = v;
	vl->loop = loop_self();
	vl->poller = (struct loop_poller){ .poll = hub_poll, .arm = hub_arm, .gone = hub_gone };
	list_init(&vl->poller.link);
	list_init(&vl->groups);
	list_init(&vl->doomed);
	list_init(&vl->owing);
	vl->mail.fn = hub_mail;
	vl->watch.fn = v->events_ready;
	timer_init(&vl->keepalive, keepalive_fired);
	vl->events = rdma_create_event_channel();
	if (vl->events == NULL) {
		int rc = status_from_errno(errno);
		log_error("verbs: no RDMA connection manager (%s): load the module rdma_ucm",
			  strerror(errno));
		free(vl);
		return rc;
	}
	(void)fcntl(vl->events->fd, F_SETFL, fcntl(vl->events->fd, F_GETFL) | O_NONBLOCK);
	(void)fcntl(vl->events->fd, F_SETFD, FD_CLOEXEC);
	pthread_mutex_lock(&v->lock);
	list_push(&v->loops, &vl->link);
	pthread_mutex_unlock(&v->lock);
	*ret_hub = vl;
	return 0;
}

int verbs_loop_use(struct verbs_loop *vl)
{
	if (vl->n_users++ > 0)
		return 0;
	int rc = loop_watch_start(&vl->watch, vl->events->fd);
	if (rc < 0) {
		vl->n_users--;
		return rc;
	}
	loop_poller_add(&vl->poller);
	timer_set(&vl->keepalive, loop_deadline_ms(vl->v->opts.keepalive_ms));
	return 0;
}

/* With the last user: afterwards the loop may end, and then the transport. */
void verbs_loop_unuse(struct verbs_loop *vl)
{
	struct verbs *v = vl->v;

	if (--vl->n_users > 0)
		return;
	loop_watch_stop(&vl->watch);
	loop_poller_remove(&vl->poller);
	timer_cancel(&vl->keepalive);
	for (uint32_t i = 0; i < VERBS_DEVICES_MAX; i++)
		loop_watch_stop(&vl->channels[i].watch);
	pthread_mutex_lock(&v->lock);
	for (uint32_t i = 0; i < v->n_devices; i++) {
		if (v->devices[i]->watcher != vl)
			continue;
		loop_watch_stop(&v->devices[i]->watch);
		v->devices[i]->watcher = NULL;
	}
	pthread_mutex_unlock(&v->lock);
}

void verbs_loop_free(struct verbs_loop *vl)
{
	struct list *n;

	/* If links linger, their loop is the current one. */
	if (vl->n_users > 0)
		hub_gone(&vl->poller);
	ASSERT(vl->n_users == 0);
	while ((n = vl->groups.next) != &vl->groups)
		group_destroy(container_of(n, struct verbs_group, link));
	for (uint32_t i = 0; i < VERBS_DEVICES_MAX; i++)
		if (vl->channels[i].ch != NULL)
			(void)ibv_destroy_comp_channel(vl->channels[i].ch);
	rdma_destroy_event_channel(vl->events);
	list_remove(&vl->link);
	free(vl);
}
