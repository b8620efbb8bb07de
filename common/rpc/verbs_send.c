/*
 * What a link sends: frames, WRITEs ahead of them, READs.
 *
 * Work requests are staged and posted with one doorbell at the end of the loop's turn, or when the
 * batch is full. Few of them ask for a completion: one in a quarter of the queue, the last of those
 * that somebody waits for, and all while send buffers are scarce. A completion tells of all
 * requests before it.
 *
 * A plain frame is copied into a send buffer and needs no wait at all. A reply with data is a
 * chain: WRITEs from the server's slots into the client's, then the frame on the same queue pair,
 * so that it arrives after the data; whoever sent it waits until the chain has completed, and keeps
 * the slots until then. A request's data is fetched by READs, one piece of memory on each side.
 */
#include <string.h>

#include "common/base/log.h"
#include "common/rpc/verbs_impl.h"

#define SEND_ID (1ull << 63)
#define STALL_MS 30000u
/* Of siw; harmless elsewhere. */
#define BY_REFERENCE_MIN 4000u
#define TINY 64u
#define LOOK_US 2500000u
#define PAGE 4096u
#define QUEUE_KEPT 2u /* places in the send queue for credits and BYE */

/* ---- work requests ---- */

void verbs_flush(struct verbs_hub *hub)
{
	struct verbs_link *k = hub->staged;
	struct ibv_send_wr *bad;

	if (k == NULL)
		return;
	hub->staged = NULL;
	hub->n_staged = 0;
	k->stats.posts++;
	if (ibv_post_send(k->qp, hub->wrs, &bad) != 0)
		verbs_link_doom(k, "its send queue has failed", -LE_DISCONNECTED);
}

/* A new request at the end of the batch; there is room in the queue. */
static struct ibv_send_wr *stage(struct verbs_link *k, uint32_t buf, struct verbs_wait *wait,
				 bool signaled)
{
	struct verbs_hub *hub = k->hub;
	uint32_t n = k->sq_head++;

	if (hub->staged != k || hub->n_staged == VERBS_BATCH)
		verbs_flush(hub);
	uint32_t i = hub->n_staged++;
	struct ibv_send_wr *wr = &hub->wrs[i];
	hub->staged = k;
	*wr = (struct ibv_send_wr){ .wr_id = SEND_ID | n, .sg_list = hub->sges[i] };
	if (i > 0)
		hub->wrs[i - 1].next = wr;
	if (signaled || wait != NULL || (n + 1) % (k->sq_size / 4) == 0)
		wr->send_flags = IBV_SEND_SIGNALED;
	k->sent[n % k->sq_size] = (struct verbs_sent){ .buf = buf, .wait = wait };
	k->active_us = loop_now_us();
	return wr;
}

static uint32_t queue_room(const struct verbs_link *k)
{
	return k->sq_size - (k->sq_head - k->sq_tail);
}

/* siw hands pages of unsignaled requests to TCP by reference, and completes what comes after them
 * while they are still in its queues: there a completion is asked for wherever it counts. */
static void ask_completion(const struct verbs_link *k, struct ibv_send_wr *wr, uint32_t len)
{
	if (k->dev->iwarp && len >= BY_REFERENCE_MIN)
		wr->send_flags |= IBV_SEND_SIGNALED;
}

/* siw sends wrong bytes when up to 32 of them lie on two pages: so many of len from addr on. */
static uint32_t avoid_edge(const struct verbs_link *k, uint64_t addr, uint32_t len)
{
	uint32_t to_edge = PAGE - (uint32_t)(addr % PAGE);

	return k->dev->iwarp && to_edge < TINY && len > to_edge ? to_edge : len;
}

/* One SEND of len bytes, which already lie behind the head in buf. */
static void stage_send(struct verbs_link *k, uint32_t buf, struct verbs_head head, uint32_t len,
		       struct verbs_wait *wait)
{
	struct verbs_group *g = k->group;
	bool scarce = g->n_tx_free < g->n_tx / 2, look = k->looking && k->look_no == k->sq_head;

	/* Before they are announced. */
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

/* A message without a frame, len bytes behind its head; false when there is no room for it now. */
static bool send_word(struct verbs_link *k, enum verbs_kind kind, uint32_t len)
{
	if (k->qp == NULL || k->credits == 0 || queue_room(k) == 0)
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

	verbs_flush(k->hub);
	return said;
}

void verbs_link_pay(struct verbs_link *k)
{
	if (k->dead || k->eof || k->qp == NULL)
		return;
	if (k->owes_try && k->established && send_word(k, VERBS_TRIED, k->piece))
		k->owes_try = false;
	if (k->owes_try) {
		list_push(&k->hub->owing, &k->owing);
		return;
	}
	if (k->to_return * 2 < k->credits_given)
		return;
	if (send_word(k, VERBS_CREDIT, TINY))
		k->stats.credit_frames++;
	else
		list_push(&k->hub->owing, &k->owing);
}

/* A WRITE of no bytes: the peer's device acknowledges it, and it needs neither a buffer nor a
 * credit nor a key, so it goes also to a peer that keeps all credits. */
static void write_nothing(struct verbs_link *k)
{
	stage(k, VERBS_NO_BUF, NULL, true)->opcode = IBV_WR_RDMA_WRITE;
	k->stats.writes++;
}

/* To an idle peer: if it is no more, that will be seen. */
void verbs_link_ping(struct verbs_link *k)
{
	if (!k->established || k->dead || k->eof)
		return;
	if (send_word(k, VERBS_CREDIT, TINY))
		k->stats.credit_frames++;
	else if (!k->dev->iwarp && queue_room(k) > 0)
		write_nothing(k);
}

/* Sends what shows, as number look_no, whether the peer is there; false when that cannot be now.
 * Over iWARP a request is done when TCP has it: all it can do is to make TCP send. */
static bool send_look(struct verbs_link *k)
{
	if (k->dev->iwarp)
		return send_word(k, VERBS_CREDIT, TINY);
	if (queue_room(k) > 0)
		write_nothing(k);
	else
		k->look_no--; /* what the queue is full of does as well */
	return true;
}

/* Somebody waits in silence. A device acknowledges what arrives, whatever its program does; one
 * that repeats a message for so long has no peer any more, however many attempts it has left. */
void verbs_link_look(struct verbs_link *k)
{
	uint64_t now = loop_now_us();

	if (k->dead || k->eof || !k->established)
		return;
	if (k->looking && (int32_t)(k->sq_tail - k->look_no) > 0)
		k->looking = false;
	if (k->looking) {
		if (now - k->look_us > LOOK_US)
			verbs_link_doom(k, "a message was not acknowledged for seconds",
					-LE_TIMEDOUT);
		return;
	}
	k->looking = true;
	k->look_us = now;
	k->look_no = k->sq_head;
	if (!send_look(k))
		k->looking = false;
}

bool verbs_link_try(struct verbs_link *k)
{
	bool said = send_word(k, VERBS_TRY, k->piece);

	verbs_flush(k->hub);
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

/* What a request to be staged needs. */
struct need {
	bool credit; /* of the peer, and a send buffer */
	bool begun;  /* something has been staged: an interruption has to wait */
	uint64_t deadline_us;
};

static int wait_room(struct verbs_link *k, const struct need *need)
{
	bool interrupted = false;
	int rc = 0;

	while (rc == 0) {
		if (k->dead || k->eof)
			rc = -LE_DISCONNECTED;
		if (rc < 0)
			break;
		bool no_credit = need->credit && k->credits < 2;
		bool no_queue = queue_room(k) <= QUEUE_KEPT;
		bool no_buf = need->credit && k->group->n_tx_free == 0;
		if (!no_credit && !no_queue && !no_buf)
			break;
		k->stats.credit_stalls += no_credit;
		k->stats.queue_stalls += !no_credit;
		verbs_flush(k->hub);
		rc = waitq_wait(no_credit || no_queue ? &k->room : &k->group->tx_room,
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

/* Until the last request of a chain has completed, or its queue pair is no more. What has been
 * posted cannot be taken back, so it takes the time it takes, as long as anything completes. */
static int wait_end(struct verbs_link *k, struct verbs_wait *w)
{
	bool interrupted = false;

	while (!w->done) {
		w->parked = true;
		int rc = fiber_park_until(k->active_us + STALL_MS * 1000ull);
		w->parked = false;
		interrupted |= rc == -LE_INTR;
		if (!w->done && k->active_us + STALL_MS * 1000ull <= loop_now_us())
			verbs_link_break(k, "the peer's memory does not answer", rc);
	}
	if (interrupted)
		fiber_interrupt(w->fiber);
	return w->status;
}

/* ---- remote memory ---- */

/* Two lists of pieces of memory, walked in step: slots here, descriptors of the peer. */
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

/* The next len or fewer bytes on both sides, of one slot and one descriptor. */
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

/* One WRITE or READ as large as both sides allow. */
static void stage_rdma(struct verbs_link *k, struct walk *w, enum ibv_wr_opcode opcode,
		       struct verbs_wait *wait)
{
	uint32_t sges_max = opcode == IBV_WR_RDMA_WRITE ? k->dev->sges : 1;

	while (w->desc[w->d].len == w->d_off) {
		w->d++;
		w->d_off = 0;
	}
	const struct frame_desc *d = &w->desc[w->d];
	uint32_t room = d->len - w->d_off, len = 0;
	if (room > w->left)
		room = w->left;
	if (room > k->dev->msg_max)
		room = k->dev->msg_max;
	room = avoid_edge(k, d->addr + w->d_off, room);
	struct ibv_send_wr *wr = stage(k, VERBS_NO_BUF, NULL, false);
	while (len < room && wr->num_sge < (int)sges_max) {
		wr->sg_list[wr->num_sge] = next_part(k, w, room - len);
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

/* A slot that is not registered here is a mistake in this program: nothing is copied instead. */
static int check_slots(const struct verbs_link *k, const struct slot_vec *vec, uint32_t n,
		       bool remote)
{
	for (uint32_t i = 0; i < n; i++) {
		struct verbs_reg *reg = reg_of(k, vec[i].slot);
		/* Somebody's own memory: `lent` to the call, which says no more than where. */
		if (reg == NULL && vec[i].slot->pool == NULL) {
			reg = verbs_reg_at(k->dev, vec[i].slot->data, vec[i].slot->size);
			vec[i].slot->reg[k->dev->index] = reg;
			if (reg == NULL)
				return -LE_NOTSUP; /* the device came into use a moment ago */
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

	/* Nothing has been fetched yet. Or it was a reply: its data came before it. */
	if (vec == NULL || rx->hdr.type != FRAME_REQUEST) {
		k->stats.bulk_in += vec != NULL ? rx->hdr.bulk_len : 0;
		return 0;
	}
	if (vec_bytes(vec, n) < w.left)
		return -LE_INVAL;
	TRY(check_slots(k, vec, n, false));
	TRY(take_turn(k, need.deadline_us));
	while (w.left > 0 && rc == 0) {
		rc = wait_room(k, &need);
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
	uint32_t write; /* bytes of data to be written ahead of the frame */
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
		/* It has no room for that: let it know instead. */
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

/* The bytes from..to of a part that begins at `at` in the frame. */
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
		TRY(wait_room(k, need));
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
		TRY(wait_room(k, need));
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
	int rc = wait_room(k, &need);
	if (rc == 0)
		rc = stage_writes(k, &o, &need);
	if (rc == 0)
		rc = stage_pieces(k, &o, &need, o.write > 0 ? &wait : NULL);
	give_turn(k);
	if (rc < 0 && need.begun) {
		/* Half a frame cannot be taken back, and what it wrote has to end. */
		verbs_link_break(k, "the peer takes no more of a frame", rc);
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
