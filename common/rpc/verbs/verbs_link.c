/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a link, and what it receives.
 *
 * A reader gets a frame in the buffer where the device placed it. Only a frame larger than a
 * receive buffer is assembled in separate memory. (Fetching such bodies by READ would need a key of
 * the sender's memory before authentication, and a round trip. They are rare, so they are sent in
 * pieces.)
 *
 * Credits: each side counts the free receive buffers that the other one has for it. A SEND costs
 * one, and every SEND carries the credits to return. A side that owes half of them sends a message
 * for that alone. The last credit is reserved for such messages, so both sides can always proceed:
 * a side without credits has spent the last one on returning at least half of the other's. A peer
 * that sends without a credit, or returns credits that it never had, is disconnected.
 *
 * The end: verbs_link_shutdown sends BYE and lets messages in flight arrive (a refusal, a last
 * reply), for LINGER_MS at most. verbs_link_end_qp is the immediate end: the queue pair is put into
 * error and destroyed; when that call returns, neither the peer nor the device accesses memory for
 * this link.
 */
#include "common/rpc/verbs/verbs_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/rpc/verbs/verbs_device.h"
#include "common/rpc/verbs/verbs_loop.h"
#include "common/rpc/verbs/verbs_region.h"
#include "common/rpc/verbs/verbs_send.h"

#define LINGER_MS 500u
#define FRAME_SIZE_MAX (FRAME_HEADER_SIZE + FRAME_DESCS_MAX * FRAME_DESC_SIZE + FRAME_BODY_MAX)

struct verbs_link *verbs_link_of(struct link *base)
{
	return CAST_OBJ(base, struct verbs_link, VERBS_LINK_MAGIC);
}

/* ---- life ---- */

static void linger_fired(struct timer *t)
{
	struct verbs_link *k = container_of(t, struct verbs_link, linger);

	verbs_link_break(k, "closed", 0);
}

int verbs_link_create(struct verbs_loop *vl, struct rdma_cm_id *id, struct verbs_link **ret_link)
{
	struct verbs_link *k = calloc(1, sizeof(*k));
	int rc = k != NULL ? verbs_loop_use(vl) : -LE_NOMEM;

	if (rc < 0) {
		free(k);
		return rc;
	}
	k->base.ops = vl->v->base.ops;
	k->magic = VERBS_LINK_MAGIC;
	k->vl = vl;
	k->id = id;
	id->context = &k->magic; /* the magic number also distinguishes links from listeners */
	list_init(&k->doomed);
	list_init(&k->owing);
	list_init(&k->ready);
	list_init(&k->turns);
	waitq_init(&k->cm);
	waitq_init(&k->space);
	waitq_init(&k->rx);
	timer_init(&k->linger, linger_fired);
	k->rx_first = k->rx_last = k->rx_current = VERBS_NO_BUF;
	k->active_us = loop_now_us();
	*ret_link = k;
	return 0;
}

static int count_qp(struct verbs_device *dev)
{
	struct verbs *v = dev->v;
	int rc = 0;

	pthread_mutex_lock(&v->lock);
	if (dev->n_qps < dev->qps_max)
		dev->n_qps++;
	else
		rc = -LE_OVERLOAD;
	pthread_mutex_unlock(&v->lock);
	if (rc < 0 && verbs_may_log(v, TROUBLE_QPS))
		log_error("verbs: all %u queue pairs of %s are in use", dev->qps_max, dev->name);
	return rc;
}

static void uncount_qp(struct verbs_device *dev)
{
	pthread_mutex_lock(&dev->v->lock);
	dev->n_qps--;
	pthread_mutex_unlock(&dev->v->lock);
}

static int create_qp(struct verbs_link *k)
{
	struct verbs_device *dev = k->dev;
	struct verbs_group *g = k->group;
	struct ibv_qp_init_attr want = {
		.send_cq = g->cq,
		.recv_cq = g->cq,
		.srq = g->srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = dev->wrs,
			 .max_recv_wr = g->srq != NULL ? 0 : dev->credits,
			 .max_send_sge = dev->sges,
			 .max_recv_sge = 1,
			 .max_inline_data = dev->inline_max },
	};
	struct ibv_qp_init_attr a = want;
	int err = rdma_create_qp(k->id, dev->pd, &a);

	if (err != 0 && dev->inline_max > 0) {
		/* Some cards count inline bytes against the pieces. */
		a = want;
		a.cap.max_inline_data = 0;
		err = rdma_create_qp(k->id, dev->pd, &a);
	}
	if (err != 0) {
		int status = status_from_errno(errno);
		if (verbs_may_log(dev->v, TROUBLE_QPS))
			log_error("verbs: %s cannot create a queue pair: %s%s", dev->name,
				  strerror(errno),
				  errno == ENOMEM ? " (limits of the card, or LimitMEMLOCK)" : "");
		return status;
	}
	k->qp = k->id->qp;
	k->sq_size = dev->wrs;
	k->inline_max = a.cap.max_inline_data < dev->inline_max ? a.cap.max_inline_data
								 : dev->inline_max;
	return 0;
}

static int post_recv(struct verbs_link *k, uint32_t buf)
{
	struct verbs_group *g = k->group;
	struct ibv_sge sge = { (uintptr_t)verbs_buf(g, buf), g->buf_size, g->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = buf, .sg_list = &sge, .num_sge = 1 }, *bad;
	int err = ibv_post_recv(k->qp, &wr, &bad);

	return err == 0 ? 0 : -LE_DISCONNECTED;
}

int verbs_link_queue_pair(struct verbs_link *k)
{
	TRY(verbs_device_get(k->vl->v, k->id->verbs, &k->dev));
	if (verbs_device_port_down(k->dev, k->id->port_num))
		return -LE_NETDOWN;
	TRY(count_qp(k->dev));
	int rc = verbs_group_join(k);
	if (rc == 0)
		rc = create_qp(k);
	if (rc < 0) {
		uncount_qp(k->dev);
		return rc;
	}
	memcpy(k->stats.device, k->dev->name, sizeof(k->stats.device));
	k->stats.port = k->id->port_num;
	k->granted = k->credits_given = k->dev->credits;
	k->sent = calloc(k->sq_size, sizeof(k->sent[0]));
	if (k->sent == NULL)
		return -LE_NOMEM;
	if (k->group->srq == NULL)
		for (uint32_t i = 0; i < k->credits_given; i++)
			TRY(post_recv(k, k->place * k->credits_given + i));
	return 0;
}

static void wake_all(struct verbs_link *k)
{
	list_for_each(n, &k->turns) {
		struct verbs_turn *t = container_of(n, struct verbs_turn, link);
		if (t->parked)
			fiber_wake(t->fiber);
	}
	waitq_wake_all(&k->space);
	waitq_wake_all(&k->rx);
	waitq_wake_all(&k->cm);
	if (k->group != NULL)
		waitq_wake_all(&k->group->tx_space);
}

static void finish(struct verbs_wait *w, int status)
{
	w->done = true;
	w->status = status;
	if (w->parked)
		fiber_wake(w->fiber);
}

static void end_sent(struct verbs_link *k, struct verbs_sent *s, int status)
{
	if (s->done)
		return;
	s->done = true;
	if (s->buf != VERBS_NO_BUF)
		verbs_tx_put(k->group, s->buf);
	if (s->wait != NULL)
		finish(s->wait, status);
}

void verbs_link_end_qp(struct verbs_link *k)
{
	struct verbs_loop *vl = k->vl;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	if (k->qp == NULL)
		return;
	list_remove(&k->doomed);
	list_remove(&k->owing);
	timer_cancel(&k->linger);
	if (vl->staged == k) {
		vl->staged = NULL;
		vl->n_staged = 0;
	}
	k->eof = true;
	(void)ibv_modify_qp(k->qp, &error, IBV_QP_STATE);
	if (k->established)
		(void)rdma_disconnect(k->id);
	verbs_group_drain(k->group);
	rdma_destroy_qp(k->id);
	k->qp = NULL;
	verbs_group_drain(k->group);
	while (k->sq_tail != k->sq_head)
		end_sent(k, &k->sent[k->sq_tail++ % k->sq_size], -LE_DISCONNECTED);
	if (k->group->srq != NULL && !k->received_bye)
		k->group->worn++;
	uncount_qp(k->dev);
	wake_all(k);
}

void verbs_link_doom(struct verbs_link *k, const char *reason, int status)
{
	if (k->qp == NULL || k->eof || !list_empty(&k->doomed))
		return;
	k->reason = reason;
	k->reason_status = status;
	list_push(&k->vl->doomed, &k->doomed);
}

void verbs_link_break(struct verbs_link *k, const char *reason, int status)
{
	char peer[NET_ADDR_TEXT_SIZE];

	/* Logged also for a link that fails before it is established. */
	if (k->qp != NULL && !k->dead && k->credits_max > 0) {
		net_addr_format(&k->peer, peer);
		if (status == 0)
			log_debug("verbs: %s %s: %s", k->stats.device, peer, reason);
		else
			log_warn("verbs: %s %s: connection lost: %s", k->stats.device, peer,
				 reason);
	}
	verbs_link_end_qp(k);
	if (k->detached)
		verbs_link_free(k);
}

void verbs_link_shutdown(struct verbs_link *k)
{
	if (k->dead)
		return;
	k->dead = true;
	wake_all(k);
	if (k->qp == NULL)
		return;
	if (k->established && !k->eof && verbs_link_bye(k)) {
		k->lingering = true;
		timer_set(&k->linger, loop_deadline_ms(LINGER_MS));
		return;
	}
	verbs_link_end_qp(k);
}

static void rx_forget(struct verbs_link *k)
{
	if (k->rx_current != VERBS_NO_BUF)
		verbs_rx_drop(k->group, k->rx_current);
	while (k->rx_first != VERBS_NO_BUF) {
		uint32_t buf = k->rx_first;
		k->rx_first = k->group->rx_next[buf];
		verbs_rx_drop(k->group, buf);
	}
}

void verbs_link_free(struct verbs_link *k)
{
	struct verbs_loop *vl = k->vl;

	ASSERT(k->qp == NULL && list_empty(&k->turns));
	timer_cancel(&k->linger);
	if (k->group != NULL) {
		rx_forget(k);
		verbs_group_leave(k);
	}
	rdma_destroy_id(k->id);
	free(k->sent);
	free(k->big);
	k->magic = 0;
	free(k);
	verbs_loop_unuse(vl);
}

/* ---- completions ---- */

const char *verbs_wc_reason(enum ibv_wc_status status)
{
	if (status == IBV_WC_RETRY_EXC_ERR)
		return "the peer does not acknowledge: it or its link is down, or messages of full "
		       "size do not come through (" VERBS_WAY_HINT ")";
	if (status == IBV_WC_WR_FLUSH_ERR)
		return "the peer or the device has ended the queue pair";
	return ibv_wc_status_str(status);
}

/* A completion covers all requests before it. But where READs are overtaken (siw completes a SEND
 * while a READ before it is in flight), only the completion of a READ covers READs. */
static void end_upto(struct verbs_link *k, uint32_t upto, int status)
{
	bool read = k->sent[upto % k->sq_size].read;

	for (uint32_t n = k->sq_tail; n != upto + 1; n++) {
		struct verbs_sent *s = &k->sent[n % k->sq_size];
		if (read || !s->read)
			end_sent(k, s, status);
	}
	while (k->sq_tail != k->sq_head && k->sent[k->sq_tail % k->sq_size].done)
		k->sq_tail++;
}

void verbs_link_sent(struct verbs_link *k, uint32_t upto, const struct ibv_wc *wc)
{
	int status = wc->status == IBV_WC_SUCCESS ? 0 : -LE_DISCONNECTED;

	k->stats.completions++;
	k->active_us = loop_now_us();
	if (upto - k->sq_tail >= k->sq_head - k->sq_tail)
		return;
	end_upto(k, upto, status);
	waitq_wake_one(&k->space);
	if (status < 0)
		verbs_link_doom(k, verbs_wc_reason(wc->status), status);
	else if (k->lingering && k->sq_tail == k->sq_head)
		verbs_link_doom(k, "closed", 0);
}

static void enqueue(struct verbs_link *k, uint32_t buf, uint32_t len)
{
	struct verbs_group *g = k->group;

	g->rx_next[buf] = VERBS_NO_BUF;
	g->rx_len[buf] = len;
	if (k->rx_first == VERBS_NO_BUF)
		k->rx_first = buf;
	else
		g->rx_next[k->rx_last] = buf;
	k->rx_last = buf;
	waitq_wake_one(&k->rx);
}

/* Returns a buffer to the device; the credit is returned to the peer later. */
static void release(struct verbs_link *k, uint32_t buf)
{
	if (k->group->srq != NULL)
		verbs_rx_drop(k->group, buf);
	else if (k->qp != NULL && post_recv(k, buf) < 0)
		verbs_link_doom(k, "its receive queue has failed", -LE_IO);
	k->to_return++;
	if (k->qp != NULL && k->to_return * 2 >= k->credits_given && list_empty(&k->owing))
		list_push(&k->vl->owing, &k->owing);
}

/* Returns the fault of a message, or NULL; adds its credits. */
static const char *check_head(struct verbs_link *k, const struct verbs_head *h, uint32_t len)
{
	if (k->granted == 0)
		return "the peer sends more than it has credits for";
	k->granted--;
	if (len < sizeof(*h) || h->kind < VERBS_FRAME || h->kind > VERBS_TRIED)
		return "malformed message";
	if (h->credits > k->credits_max - k->credits)
		return "the peer returns credits that it never had";
	k->credits += h->credits;
	return NULL;
}

/* Each side gets at most one of these: the accepting side TRY, the connecting side TRIED. */
static void tried(struct verbs_link *k, bool asked)
{
	if (k->tried || asked != k->accepted) {
		verbs_link_doom(k, "malformed message", -LE_BAD_FRAME);
		return;
	}
	k->tried = true;
	waitq_wake_all(&k->cm);
	k->owes_try = asked;
	if (asked && list_empty(&k->owing))
		list_push(&k->vl->owing, &k->owing);
}

void verbs_link_received(struct verbs_link *k, uint32_t buf, uint32_t len)
{
	struct verbs_group *g = k->group;
	struct verbs_head h;

	k->stats.recvs++;
	k->stats.completions++;
	k->active_us = loop_now_us();
	if (k->dead || k->eof || !list_empty(&k->doomed)) {
		verbs_rx_drop(g, buf);
		return;
	}
	memcpy(&h, verbs_buf(g, buf), sizeof(h));
	const char *wrong = check_head(k, &h, len);
	if (wrong != NULL) {
		verbs_rx_drop(g, buf);
		verbs_link_doom(k, wrong, -LE_BAD_FRAME);
		return;
	}
	if (h.credits > 0)
		waitq_wake_one(&k->space);
	if (h.kind == VERBS_FRAME || h.kind == VERBS_MORE) {
		enqueue(k, buf, len);
		return;
	}
	release(k, buf);
	if (h.kind == VERBS_TRY || h.kind == VERBS_TRIED)
		tried(k, h.kind == VERBS_TRY);
	if (h.kind == VERBS_BYE) {
		k->received_bye = true;
		verbs_link_doom(k, "the peer has closed", 0);
	}
}

/* ---- frames ---- */

static int broken(struct verbs_link *k, int status)
{
	verbs_link_break(k, status_text(status), status);
	return status;
}

/* Takes the next buffer of the queue; the caller must release it. */
static int next_buffer(struct verbs_link *k, uint32_t *ret_buf)
{
	while (!k->dead && k->rx_first == VERBS_NO_BUF) {
		if (k->eof)
			return -LE_DISCONNECTED;
		TRY(waitq_wait(&k->rx, NO_DEADLINE));
	}
	if (k->dead)
		return -LE_DISCONNECTED;
	*ret_buf = k->rx_first;
	k->rx_first = k->group->rx_next[k->rx_first];
	return 0;
}

static int big_space(struct verbs_link *k, uint32_t size)
{
	if (k->big_size >= size)
		return 0;
	free(k->big);
	k->big_size = 0;
	k->big = malloc(size);
	if (k->big == NULL)
		return -LE_NOMEM;
	k->big_size = size;
	return 0;
}

/* Adds a piece of a frame that is larger than a buffer. */
static int add_piece(struct verbs_link *k, const struct verbs_head *h, const uint8_t *data,
		     uint32_t len)
{
	if (h->kind == VERBS_FRAME) {
		if (k->big_have < k->big_total)
			return -LE_BAD_FRAME;
		TRY(big_space(k, h->left));
		k->big_have = 0;
		k->big_total = h->left;
	}
	if (h->left != k->big_total - k->big_have || len == 0 || len > h->left)
		return -LE_BAD_FRAME;
	memcpy(k->big + k->big_have, data, len);
	k->big_have += len;
	return 0;
}

/* Returns the next frame, contiguous. If it lies in a receive buffer, that is rx_current. */
static int whole_frame(struct verbs_link *k, const uint8_t **ret_data, uint32_t *ret_len)
{
	struct verbs_head h;
	uint32_t buf;

	for (;;) {
		TRY(next_buffer(k, &buf));
		const uint8_t *data = verbs_buf(k->group, buf);
		uint32_t len = k->group->rx_len[buf] - (uint32_t)sizeof(h);
		memcpy(&h, data, sizeof(h));
		k->rx_current = buf;
		if (h.left < FRAME_HEADER_SIZE && h.kind == VERBS_FRAME)
			return broken(k, -LE_BAD_FRAME);
		if (h.left > FRAME_SIZE_MAX)
			return broken(k, -LE_TOO_BIG);
		if (h.kind == VERBS_FRAME && len == h.left && k->big_have == k->big_total) {
			*ret_data = data + sizeof(h);
			*ret_len = len;
			return 0;
		}
		int rc = add_piece(k, &h, data + sizeof(h), len);
		if (rc < 0)
			return broken(k, rc);
		k->rx_current = VERBS_NO_BUF;
		release(k, buf);
		if (k->big_have == k->big_total) {
			k->big_idle = 0;
			*ret_data = k->big;
			*ret_len = k->big_total;
			return 0;
		}
	}
}

/* The descriptors of a request must cover its data. */
static bool covers_bulk(const struct frame_hdr *h, const struct frame_desc *descs)
{
	uint64_t left = h->bulk_len;

	if (h->type != FRAME_REQUEST)
		return true;
	for (uint32_t i = 0; i < h->n_desc && left > 0; i++) {
		if (descs[i].len > left)
			return false;
		left -= descs[i].len;
	}
	return left == 0;
}

static void keep_big(struct verbs_link *k)
{
	if (k->big == NULL || k->big_have < k->big_total || ++k->big_idle < TRANSPORT_BIG_KEEP)
		return;
	free(k->big);
	k->big = NULL;
	k->big_size = 0;
}

int verbs_recv(struct link *base, struct link_rx *ret_rx)
{
	struct verbs_link *k = verbs_link_of(base);
	struct frame_hdr *h = &ret_rx->hdr;
	const uint8_t *data;
	uint32_t len;

	if (k->rx_current != VERBS_NO_BUF) {
		uint32_t buf = k->rx_current;
		k->rx_current = VERBS_NO_BUF;
		release(k, buf);
	}
	keep_big(k);
	TRY(whole_frame(k, &data, &len));
	int rc = frame_decode(data, h);
	if (rc < 0)
		return broken(k, rc);
	uint32_t desc_len = h->n_desc * FRAME_DESC_SIZE;
	if (len != FRAME_HEADER_SIZE + desc_len + h->body_len)
		return broken(k, -LE_BAD_FRAME);
	memcpy(ret_rx->descs, data + FRAME_HEADER_SIZE, desc_len);
	ret_rx->body = data + FRAME_HEADER_SIZE + desc_len;
	rc = frame_check(data, h, ret_rx->descs, ret_rx->body);
	if (rc == 0 && !covers_bulk(h, ret_rx->descs))
		rc = -LE_BAD_FRAME;
	if (rc < 0)
		return broken(k, rc);
	k->stats.frames_in++;
	return 0;
}
