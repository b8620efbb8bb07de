/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a link sends: frames, WRITEs ahead of them, READs.
 *
 * Work requests are staged and posted by one doorbell at the end of the loop's turn, or when the
 * batch is full. Few of them request a completion: one in a quarter of the queue, the last one of a
 * chain that a fiber waits for, and all while send buffers are scarce. A completion covers all
 * requests before it.
 *
 * A plain frame is copied into a send buffer, and its sender does not wait. A reply with data is a
 * chain: WRITEs from the server's slots into the client's, then the frame on the same queue pair,
 * so that it arrives after the data. Its sender waits until the chain has completed, and keeps the
 * slots until then. A request's data is fetched by READs, each for one contiguous range on both
 * sides.
 */
#include "common/rpc/verbs/verbs_send.h"

#include <string.h>

#include "common/base/log.h"
#include "common/rpc/verbs/verbs_loop.h"
#include "common/rpc/verbs/verbs_user_memory.h"
#include "common/rpc/verbs/verbs_link.h"

#define STALL_MS 30000u
/* Work-arounds for siw, harmless elsewhere. */
#define BY_REFERENCE_MIN 4000u
#define TINY 64u
#define PROBE_US 2500000u
#define PAGE 4096u
#define QUEUE_KEPT 2u /* entries of the send queue reserved for credits and BYE */

/* ---- work requests ---- */

void verbs_flush(struct verbs_loop *vl)
{
	struct verbs_link *k = vl->staged;
	struct ibv_send_wr *bad;

	if (k == NULL)
		return;
	vl->staged = NULL;
	vl->n_staged = 0;
	k->stats.posts++;
	if (ibv_post_send(k->qp, vl->wrs, &bad) != 0)
		verbs_link_doom(k, "its send queue has failed", -LE_DISCONNECTED);
}

/* Appends a request to the batch; the caller has checked that the queue has space. */
static struct ibv_send_wr *stage(struct verbs_link *k, uint32_t buf, struct verbs_wait *wait,
				 bool signaled)
{
	struct verbs_loop *vl = k->vl;
	uint32_t n = k->sq_head++;

	if (vl->staged != k || vl->n_staged == VERBS_BATCH)
		verbs_flush(vl);
	uint32_t i = vl->n_staged++;
	struct ibv_send_wr *wr = &vl->wrs[i];
	vl->staged = k;
	*wr = (struct ibv_send_wr){ .wr_id = VERBS_SEND_ID | n, .sg_list = vl->sges[i] };
	if (i > 0)
		vl->wrs[i - 1].next = wr;
	if (signaled || wait != NULL || (n + 1) % (k->sq_size / 4) == 0)
		wr->send_flags = IBV_SEND_SIGNALED;
	k->sent[n % k->sq_size] = (struct verbs_sent){ .buf = buf, .wait = wait };
	k->active_us = loop_now_us();
	return wr;
}

static uint32_t queue_space(const struct verbs_link *k)
{
	return k->sq_size - (k->sq_head - k->sq_tail);
}

/* siw hands pages of unsignaled requests to TCP by reference, and completes later requests while
 * the pages are still in TCP's queues. So request a completion wherever pages are handed over. */
static void ask_completion(const struct verbs_link *k, struct ibv_send_wr *wr, uint32_t len)
{
	if (k->dev->iwarp && len >= BY_REFERENCE_MIN)
		wr->send_flags |= IBV_SEND_SIGNALED;
}

/* siw sends wrong bytes when up to 32 of them cross a page boundary. Returns how many of len bytes
 * from addr on can be sent together. */
static uint32_t avoid_edge(const struct verbs_link *k, uint64_t addr, uint32_t len)
{
	uint32_t to_edge = PAGE - (uint32_t)(addr % PAGE);

	return k->dev->iwarp && to_edge < TINY && len > to_edge ? to_edge : len;
}

/* Stages one SEND of len bytes, which lie after the head in buf. */
static void stage_send(struct verbs_link *k, uint32_t buf, struct verbs_head head, uint32_t len,
		       struct verbs_wait *wait)
{
	struct verbs_group *g = k->group;
	bool scarce = g->n_tx_free < g->n_tx / 2, look = k->probing && k->probe_no == k->sq_head;

	/* The buffers must be posted before their credits are announced. */
	verbs_group_repost(g);
	head.credits = (uint16_t)k->to_return;
	k->granted += k->to_return;
	k->to_return = 0;
	k->credits--;
	memcpy(verbs_buf(g, buf), &head, sizeof(head));
	struct ibv_send_wr *wr = stage(k, buf, wait, scarce || look || head.kind == VERBS_BYE);
	wr->opcode = IBV_WR_SEND;
	wr->num_sge = 1;
	wr->sg_list[0] = (struct ibv_sge){ (uintptr_t)verbs_buf(g, buf),
					   len + (uint32_t)sizeof(head), g->mr->lkey };
	ask_completion(k, wr, len);
	if (len + sizeof(head) <= k->inline_max)
		wr->send_flags |= IBV_SEND_INLINE;
	k->stats.sends++;
}

/* Sends a message without a frame, with len zero bytes after its head; false if it cannot be sent
 * now. */
static bool send_word(struct verbs_link *k, enum verbs_kind kind, uint32_t len)
{
	if (k->qp == NULL || k->credits == 0 || queue_space(k) == 0)
		return false;
	uint32_t buf = verbs_tx_get(k->group);
	if (buf == VERBS_NO_BUF)
		return false;
	memset(verbs_buf(k->group, buf), 0, sizeof(struct verbs_head) + len);
	stage_send(k, buf, (struct verbs_head){ .kind = (uint8_t)kind }, len, NULL);
	return true;
}

bool verbs_link_bye(struct verbs_link *k)
{
	bool said = send_word(k, VERBS_BYE, TINY);

	verbs_flush(k->vl);
	return said;
}

void verbs_link_pay(struct verbs_link *k)
{
	if (k->dead || k->eof || k->qp == NULL)
		return;
	if (k->owes_try && k->established && send_word(k, VERBS_TRIED, k->piece))
		k->owes_try = false;
	if (k->owes_try) {
		list_push(&k->vl->owing, &k->owing);
		return;
	}
	if (k->to_return * 2 < k->credits_given)
		return;
	if (send_word(k, VERBS_CREDIT, TINY))
		k->stats.credit_frames++;
	else
		list_push(&k->vl->owing, &k->owing);
}

/* A WRITE of no bytes: the peer's device acknowledges it. It needs no buffer, credit or key, so it
 * works also with a peer that withholds all credits. */
static void write_nothing(struct verbs_link *k)
{
	stage(k, VERBS_NO_BUF, NULL, true)->opcode = IBV_WR_RDMA_WRITE;
	k->stats.writes++;
}

/* Sends a message on an idle link: it fails if the peer is dead. */
void verbs_link_ping(struct verbs_link *k)
{
	if (!k->established || k->dead || k->eof)
		return;
	if (send_word(k, VERBS_CREDIT, TINY))
		k->stats.credit_frames++;
	else if (!k->dev->iwarp && queue_space(k) > 0)
		write_nothing(k);
}

/* Sends, as number probe_no, the request that checks the peer; false if it cannot be sent now. Over
 * iWARP a request completes when TCP has it: it only makes TCP send something. */
static bool send_probe(struct verbs_link *k)
{
	if (k->dev->iwarp)
		return send_word(k, VERBS_CREDIT, TINY);
	if (queue_space(k) > 0)
		write_nothing(k);
	else
		k->probe_no--; /* the last request of the full queue serves as well */
	return true;
}

/* A caller waits in silence. A device acknowledges what arrives, whatever its program does. If ours
 * repeats a message for so long, the peer is dead, however many attempts are left. */
void verbs_link_probe(struct verbs_link *k)
{
	uint64_t now = loop_now_us();

	if (k->dead || k->eof || !k->established)
		return;
	if (k->probing && (int32_t)(k->sq_tail - k->probe_no) > 0)
		k->probing = false;
	if (k->probing) {
		if (now - k->probe_us > PROBE_US)
			verbs_link_doom(k, "a message was not acknowledged for seconds",
					-LE_TIMEDOUT);
		return;
	}
	k->probing = true;
	k->probe_us = now;
	k->probe_no = k->sq_head;
	if (!send_probe(k))
		k->probing = false;
}

bool verbs_link_try(struct verbs_link *k)
{
	bool said = send_word(k, VERBS_TRY, k->piece);

	verbs_flush(k->vl);
	return said;
}

/* ---- waiting ---- */

static int take_turn(struct verbs_link *k, uint64_t deadline_us)
{
	struct verbs_turn t = { .fiber = fiber_self() };
	int rc = 0;

	if (k->dead || k->eof)
		return -LE_DISCONNECTED;
	if (!k->tx_busy) {
		k->tx_busy = true;
		return 0;
	}
	k->stats.queue_stalls++;
	list_push(&k->turns, &t.link);
	while (!t.mine && rc == 0) {
		t.parked = true;
		rc = fiber_park_until(deadline_us);
		t.parked = false;
		if (rc == 0 && !t.mine && (k->dead || k->eof))
			rc = -LE_DISCONNECTED;
	}
	list_remove(&t.link);
	if (!t.mine)
		return rc;
	if (rc == -LE_INTR)
		fiber_interrupt(t.fiber);
	return 0;
}

static void give_turn(struct verbs_link *k)
{
	struct list *n = list_pop(&k->turns);

	k->tx_busy = n != NULL;
	if (n == NULL)
		return;
	struct verbs_turn *t = container_of(n, struct verbs_turn, link);
	t->mine = true;
	if (t->parked)
		fiber_wake(t->fiber);
}

/* Requirements of a request before it can be staged. */
struct need {
	bool credit; /* a credit of the peer, and a send buffer */
	bool begun;  /* part of the frame was staged: an interrupt must wait */
	uint64_t deadline_us;
};

static int wait_space(struct verbs_link *k, const struct need *need)
{
	bool interrupted = false;
	int rc = 0;

	while (rc == 0) {
		if (k->dead || k->eof)
			rc = -LE_DISCONNECTED;
		if (rc < 0)
			break;
		bool no_credit = need->credit && k->credits < 2;
		bool no_queue = queue_space(k) <= QUEUE_KEPT;
		bool no_buf = need->credit && k->group->n_tx_free == 0;
		if (!no_credit && !no_queue && !no_buf)
			break;
		k->stats.credit_stalls += no_credit;
		k->stats.queue_stalls += !no_credit;
		verbs_flush(k->vl);
		rc = waitq_wait(no_credit || no_queue ? &k->space : &k->group->tx_space,
				need->deadline_us);
		if (rc == -LE_INTR && need->begun) {
			interrupted = true;
			rc = 0;
		}
	}
	if (interrupted)
		fiber_interrupt(fiber_self());
	return rc;
}

/* Waits until the last request of a chain has completed, or the queue pair was destroyed. Posted
 * requests cannot be cancelled, so there is no deadline as long as anything completes. */
static int wait_end(struct verbs_link *k, struct verbs_wait *w)
{
	bool interrupted = false;

	while (!w->done) {
		w->parked = true;
		int rc = fiber_park_until(k->active_us + STALL_MS * 1000ull);
		w->parked = false;
		interrupted |= rc == -LE_INTR;
		if (!w->done && k->active_us + STALL_MS * 1000ull <= loop_now_us())
			verbs_link_break(k, "transfers from or to the peer's memory stall", rc);
	}
	if (interrupted)
		fiber_interrupt(w->fiber);
	return w->status;
}

/* ---- remote memory ---- */

/* Two lists of memory ranges, traversed in step: slots of this side, descriptors of the peer. */
struct walk {
	const struct slot_vec *vec;
	const struct frame_desc *desc;
	uint32_t n_vec, v, v_off; /* bytes of vec[v] that are done */
	uint32_t d, d_off;
	uint32_t left;
};

static struct verbs_reg *reg_of(const struct verbs_link *k, const struct slot *s)
{
	return s->reg[k->dev->index];
}

/* The next range, at most max bytes, within one slot. */
static struct ibv_sge next_part(const struct verbs_link *k, struct walk *w, uint32_t max)
{
	while (w->vec[w->v].len == w->v_off) {
		w->v++;
		w->v_off = 0;
	}
	const struct slot_vec *v = &w->vec[w->v];
	uint32_t len = v->len - w->v_off;
	if (len > max)
		len = max;
	struct ibv_sge sge = { (uintptr_t)v->slot->data + v->off + w->v_off, len,
			       reg_of(k, v->slot)->mr->lkey };
	len = sge.length = avoid_edge(k, sge.addr, len);
	w->v_off += len;
	return sge;
}

/* Stages one WRITE or READ, as large as both sides allow. */
static void stage_rdma(struct verbs_link *k, struct walk *w, enum ibv_wr_opcode opcode,
		       struct verbs_wait *wait)
{
	uint32_t sges_max = opcode == IBV_WR_RDMA_WRITE ? k->dev->sges : 1;

	while (w->desc[w->d].len == w->d_off) {
		w->d++;
		w->d_off = 0;
	}
	const struct frame_desc *d = &w->desc[w->d];
	uint32_t space = d->len - w->d_off, len = 0;
	if (space > w->left)
		space = w->left;
	if (space > k->dev->msg_max)
		space = k->dev->msg_max;
	space = avoid_edge(k, d->addr + w->d_off, space);
	struct ibv_send_wr *wr = stage(k, VERBS_NO_BUF, NULL, false);
	while (len < space && wr->num_sge < (int)sges_max) {
		wr->sg_list[wr->num_sge] = next_part(k, w, space - len);
		len += wr->sg_list[wr->num_sge++].length;
	}
	wr->opcode = opcode;
	wr->wr.rdma.remote_addr = d->addr + w->d_off;
	wr->wr.rdma.rkey = d->key;
	w->d_off += len;
	w->left -= len;
	k->sent[(k->sq_head - 1) % k->sq_size].read = opcode == IBV_WR_RDMA_READ;
	if (opcode == IBV_WR_RDMA_WRITE)
		ask_completion(k, wr, len);
	if (wait != NULL && w->left == 0) {
		k->sent[(k->sq_head - 1) % k->sq_size].wait = wait;
		wr->send_flags |= IBV_SEND_SIGNALED;
	}
	if (opcode == IBV_WR_RDMA_WRITE)
		k->stats.writes++;
	else
		k->stats.reads++;
}

/* A slot that is not registered is a bug of this program: the data is not copied instead. */
static int check_slots(const struct verbs_link *k, const struct slot_vec *vec, uint32_t n,
		       bool remote)
{
	for (uint32_t i = 0; i < n; i++) {
		struct verbs_reg *reg = reg_of(k, vec[i].slot);
		/* User memory: the call has its address only; look its registration up. */
		if (reg == NULL && vec[i].slot->pool == NULL) {
			reg = verbs_reg_at(k->dev, vec[i].slot->data, vec[i].slot->size);
			vec[i].slot->reg[k->dev->index] = reg;
			if (reg == NULL)
				return -LE_NOTSUP; /* the device has just come into use */
		}
		if (reg != NULL && (reg->remote || !remote))
			continue;
		log_error("verbs: a slot of %u bytes is not registered with %s%s (add_pool)",
			  vec[i].slot->size, k->dev->name,
			  reg != NULL ? " for the peer's use" : "");
		return -LE_INVAL;
	}
	return 0;
}

static uint64_t vec_bytes(const struct slot_vec *vec, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += vec[i].len;
	return sum;
}

int verbs_recv_bulk(struct link *base, const struct link_rx *rx, const struct slot_vec *vec,
		    uint32_t n)
{
	struct verbs_link *k = verbs_link_of(base);
	struct verbs_wait wait = { .fiber = fiber_self() };
	struct walk w = { .vec = vec, .desc = rx->descs, .n_vec = n, .left = rx->hdr.bulk_len };
	struct need need = { .deadline_us = loop_deadline_ms(STALL_MS) };
	int rc = 0;

	/* The data of a discarded request was not fetched. The data of a reply arrived before
	 * it. */
	if (vec == NULL || rx->hdr.type != FRAME_REQUEST) {
		k->stats.bulk_in += vec != NULL ? rx->hdr.bulk_len : 0;
		return 0;
	}
	if (vec_bytes(vec, n) < w.left)
		return -LE_INVAL;
	TRY(check_slots(k, vec, n, false));
	TRY(take_turn(k, need.deadline_us));
	while (w.left > 0 && rc == 0) {
		rc = wait_space(k, &need);
		if (rc == 0)
			stage_rdma(k, &w, IBV_WR_RDMA_READ, &wait);
		need.begun = true;
	}
	give_turn(k);
	if (rc == 0)
		rc = wait_end(k, &wait);
	else if (w.left < rx->hdr.bulk_len)
		verbs_link_end_qp(k);
	k->stats.bulk_in += rc == 0 ? rx->hdr.bulk_len : 0;
	return rc;
}

/* ---- frames ---- */

struct outgoing {
	const struct link_tx *tx;
	const void *body;
	uint32_t body_len, n_desc, total;
	uint32_t write; /* bytes of data to write ahead of the frame */
	uint8_t header[FRAME_HEADER_SIZE];
	struct frame_desc descs[FRAME_DESCS_MAX];
};

static int add_descs(const struct verbs_link *k, struct outgoing *o, const struct slot_vec *vec,
		     uint32_t n)
{
	TRY(check_slots(k, vec, n, true));
	for (uint32_t i = 0; i < n; i++) {
		if (vec[i].len == 0)
			continue;
		if (o->n_desc == FRAME_DESCS_MAX)
			return -LE_TOO_BIG;
		o->descs[o->n_desc++] = (struct frame_desc){
			(uintptr_t)vec[i].slot->data + vec[i].off, vec[i].len,
			reg_of(k, vec[i].slot)->mr->rkey
		};
	}
	return 0;
}

static uint64_t desc_bytes(const struct frame_desc *d, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += d[i].len;
	return sum;
}

static int prepare(const struct verbs_link *k, const struct link_tx *tx, struct outgoing *o)
{
	struct frame_hdr h = tx->hdr;
	uint64_t bulk_len = vec_bytes(tx->bulk, tx->n_bulk);

	o->tx = tx;
	o->body = tx->body;
	o->body_len = tx->body_len;
	o->n_desc = o->write = 0;
	if (tx->body_len > FRAME_BODY_MAX || bulk_len > FRAME_BULK_MAX)
		return -LE_TOO_BIG;
	if (h.type == FRAME_REQUEST) {
		TRY(add_descs(k, o, tx->bulk, tx->n_bulk));
		TRY(add_descs(k, o, tx->bulk_in, tx->n_bulk_in));
	} else if (bulk_len > desc_bytes(tx->peer_descs, tx->n_peer_descs)) {
		/* The peer has no space for the data: send it an error instead. */
		h.status = -LE_BAD_MESSAGE;
		o->body_len = 0;
		bulk_len = 0;
	} else {
		TRY(check_slots(k, tx->bulk, tx->n_bulk, false));
		o->write = (uint32_t)bulk_len;
	}
	h.body_len = o->body_len;
	h.bulk_len = (uint32_t)bulk_len;
	h.n_desc = (uint16_t)o->n_desc;
	frame_encode(&h, o->descs, o->body, o->header);
	o->total = FRAME_HEADER_SIZE + o->n_desc * FRAME_DESC_SIZE + o->body_len;
	return 0;
}

/* Copies the part of the frame's bytes [off, off + len) that lies in `part`, which begins at
 * `at`. */
static void copy_part(uint8_t *to, uint32_t off, uint32_t len, const void *part, uint32_t at,
		      uint32_t part_len)
{
	uint32_t first = off > at ? off : at;
	uint32_t last = off + len < at + part_len ? off + len : at + part_len;

	if (first < last)
		memcpy(to + (first - off), (const uint8_t *)part + (first - at), last - first);
}

static void copy_frame(const struct outgoing *o, uint32_t off, uint32_t len, uint8_t *to)
{
	uint32_t desc_len = o->n_desc * FRAME_DESC_SIZE;

	copy_part(to, off, len, o->header, 0, FRAME_HEADER_SIZE);
	copy_part(to, off, len, o->descs, FRAME_HEADER_SIZE, desc_len);
	copy_part(to, off, len, o->body, FRAME_HEADER_SIZE + desc_len, o->body_len);
}

static int stage_writes(struct verbs_link *k, const struct outgoing *o, struct need *need)
{
	struct walk w = { .vec = o->tx->bulk,
			  .desc = o->tx->peer_descs,
			  .n_vec = o->tx->n_bulk,
			  .left = o->write };

	need->credit = false;
	while (w.left > 0) {
		TRY(wait_space(k, need));
		stage_rdma(k, &w, IBV_WR_RDMA_WRITE, NULL);
		need->begun = true;
	}
	need->credit = true;
	return 0;
}

static int stage_pieces(struct verbs_link *k, const struct outgoing *o, struct need *need,
			struct verbs_wait *wait)
{
	for (uint32_t off = 0; off < o->total;) {
		uint32_t left = o->total - off, len = left < k->piece ? left : k->piece;
		TRY(wait_space(k, need));
		uint32_t buf = verbs_tx_get(k->group);
		copy_frame(o, off, len, verbs_buf(k->group, buf) + sizeof(struct verbs_head));
		stage_send(k, buf,
			   (struct verbs_head){ .kind = off == 0 ? VERBS_FRAME : VERBS_MORE,
						.left = left },
			   len, off + len == o->total ? wait : NULL);
		need->begun = true;
		off += len;
	}
	return 0;
}

int verbs_send(struct link *base, const struct link_tx *tx, uint64_t deadline_us)
{
	struct verbs_link *k = verbs_link_of(base);
	struct verbs_wait wait = { .fiber = fiber_self() };
	struct need need = { .credit = true, .deadline_us = deadline_us };
	struct outgoing o;

	if (k->dead || k->eof || k->dev == NULL)
		return -LE_DISCONNECTED;
	TRY(prepare(k, tx, &o));
	TRY(take_turn(k, deadline_us));
	int rc = wait_space(k, &need);
	if (rc == 0)
		rc = stage_writes(k, &o, &need);
	if (rc == 0)
		rc = stage_pieces(k, &o, &need, o.write > 0 ? &wait : NULL);
	give_turn(k);
	if (rc < 0 && need.begun) {
		/* Part of a frame cannot be withdrawn, and its WRITEs must end. */
		verbs_link_break(k, "the peer has stopped receiving a frame", rc);
		return -LE_DISCONNECTED;
	}
	TRY(rc);
	if (o.write > 0)
		TRY(wait_end(k, &wait));
	k->stats.frames_out++;
	k->stats.bulk_out += tx->hdr.type == FRAME_REQUEST ? vec_bytes(tx->bulk, tx->n_bulk)
							   : o.write;
	return 0;
}
