/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/read_batch.h"

#include <stdlib.h>
#include <string.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/read.h"
#include "client/data/size.h"
#include "client/layout/block_pieces.h"
#include "client/layout/block_sums.h"
#include "client/layout/stripe.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/hedge.h"
#include "client/servers/replica_select.h"
#include "client/servers/retry.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/copy_counter.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define PART_MAX        LEAT_BLOCK_SIZE_MIN /* longer reads gain little from a batch */
#define GROUPS_WIDTH    16u
#define FREE_GROUPS_MAX 64u
#define ALONE_WIDTH     32u
/* The maximum size of one group's blocks: a server reads them into one slot. */
#define BLOCKS_MAX READV_BULK_MAX
#define CAP_WIRE   64u
#define PART_WIRE  22u

struct job {
	struct ll_part *part;
	struct inode_io *d;
	uint64_t size;   /* of the file */
	uint32_t n_truncations; /* attr.n_truncations before the size was requested */
	struct cap cap;
	struct stripe_part at;
	struct chain *chain;
	struct target *target; /* NULL: to be read alone, or already in a group */
};

struct group {
	struct list link; /* of client.free_groups */
	struct client *c;
	struct chain *chain;
	struct target *target;
	struct job *jobs[READV_PARTS_MAX];
	uint32_t n, len;
	struct slot *slot; /* NULL: received directly in the callers' memory */
	struct slot user_memory[READV_PARTS_MAX];
	struct slot_vec in[READV_PARTS_MAX];
	uint8_t caps[READV_PARTS_MAX * CAP_WIRE], parts[READV_PARTS_MAX * PART_WIRE];
};

static bool is_simple(const struct job *j)
{
	const struct ll_part *p = j->part;

	return p->off < j->size && p->len <= j->size - p->off &&
	       j->d->inode->attr.layout.chunk_size >= LEAT_CHUNK_SIZE_MIN &&
	       !wb_pending(j->d, p->off, p->len);
}

/* Returns the file's size. Requests it once for all parts of a file. Yields. */
static int size_of(struct job *jobs, uint32_t n, struct ll_file *f)
{
	struct job *j = &jobs[n];

	for (uint32_t i = n; !inode_is_fixed(f->inode) && i-- > 0;) {
		if (jobs[i].d == f->d) {
			j->size = jobs[i].size;
			j->n_truncations = jobs[i].n_truncations;
			return 0;
		}
	}
	j->n_truncations = f->inode->attr.n_truncations;
	return size_for_read(f, UINT64_MAX, &j->size);
}

/* Makes job n of the part if it may be read and is small. Returns false otherwise. Yields. */
static bool begin_job(struct job *jobs, uint32_t n, struct ll_part *p)
{
	struct ll_file *f = CAST_OBJ(p->file, struct ll_file, LL_FILE_MAGIC);
	struct job *j = &jobs[n];

	*j = (struct job){.part = p, .d = f->d};
	if (!f->can_read || p->len == 0 || p->len > PART_MAX || p->off > LEAT_FILE_SIZE_MAX ||
	    cap_get(f->d, CAP_TO_READ, &j->cap) < 0 || size_of(jobs, n, f) < 0)
		return false;
	f->was_read = true;
	if (p->off >= j->size)
		p->done = 0;
	return p->off < j->size;
}

/* Selects the job's target. Leaves j->target NULL if the part must be read alone. */
static void plan_job(struct client *c, struct job *j)
{
	const struct layout *l = &j->d->inode->attr.layout;
	struct replica_route replica_route = {0};
	struct target *t;

	if (!is_simple(j))
		return;
	j->at = stripe_first(l->chunk_size, j->part->off, j->part->len);
	j->chain = map_chain(c, l, j->at.idx);
	if (j->at.len < j->part->len || j->chain == NULL)
		return;
	replica_route.hash = replica_hash(c, j->d->inode->ino, j->at.idx);
	t = replica_pick(&replica_route, j->chain, loop_now_us());
	if (t != NULL && t->up)
		j->target = t;
}

/* Returns how many bytes the server reads for the job: whole blocks. */
static uint32_t blocks_of(const struct job *j)
{
	uint32_t bs = chunk_block_size(j->d->inode->attr.layout.chunk_size);

	return ((j->at.off + j->at.len - 1) / bs - j->at.off / bs + 1) * bs;
}

/* Collects the first job without a group, and all that fit with it, into g. Returns false if there
 * is none. A group of one is not sent; its part is read alone. */
static bool next_group(struct group *g, struct job *jobs, uint32_t n)
{
	uint32_t first = 0, blocks = 0;

	while (first < n && jobs[first].target == NULL)
		first++;
	if (first == n)
		return false;
	g->chain = jobs[first].chain;
	g->target = jobs[first].target;
	g->n = g->len = 0;
	for (uint32_t i = first; i < n && g->n < READV_PARTS_MAX; i++) {
		struct job *j = &jobs[i];

		if (j->target != g->target || j->chain != g->chain ||
		    blocks + blocks_of(j) > BLOCKS_MAX)
			continue;
		blocks += blocks_of(j);
		j->target = NULL;
		g->jobs[g->n++] = j;
		g->len += j->at.len;
	}
	/* A block is larger than BLOCKS_MAX. */
	if (g->n == 0)
		jobs[first].target = NULL;
	return true;
}

/* Returns the index of the job's capability among those of the group; adds it if it is new. */
static uint32_t add_cap(struct wire_w *w, const struct group *g, uint32_t i, uint32_t *n_caps,
			uint32_t cap_of[READV_PARTS_MAX])
{
	for (uint32_t k = 0; k < i; k++)
		if (g->jobs[k]->d == g->jobs[i]->d)
			return cap_of[k];
	wire_put_cap(w, &g->jobs[i]->cap);
	return (*n_caps)++;
}

static int encode(struct group *g, struct oss_readv_req *req)
{
	uint32_t cap_of[READV_PARTS_MAX], n_caps = 0;
	struct wire_w caps, parts;

	wire_w_init(&caps, g->caps, sizeof(g->caps));
	wire_w_init(&parts, g->parts, sizeof(g->parts));
	for (uint32_t i = 0; i < g->n; i++) {
		const struct stripe_part *at = &g->jobs[i]->at;

		cap_of[i] = add_cap(&caps, g, i, &n_caps, cap_of);
		struct readv_part p = {cap_of[i], at->idx, at->off, at->len};
		wire_put_readv_part(&parts, &p);
	}
	req->caps = bytes_of(g->caps, (uint32_t)caps.len);
	req->parts = bytes_of(g->parts, (uint32_t)parts.len);
	return caps.status < 0 ? caps.status : parts.status;
}

/* Sets where the data is received. */
static int prepare(struct group *g, struct rpc_call *call)
{
	bool lands = true;

	for (uint32_t i = 0; i < g->n && lands; i++)
		lands = read_lands_directly(g->c, g->jobs[i]->part->buf, g->jobs[i]->part->len);
	call->bulk_in = g->in;
	if (!lands) {
		g->slot = slot_try_get(g->c->slots);
		g->in[0] = (struct slot_vec){g->slot, 0, g->len};
		call->n_bulk_in = 1;
		return g->slot != NULL ? 0 : -LE_NOMEM;
	}
	for (uint32_t i = 0; i < g->n; i++) {
		struct ll_part *p = g->jobs[i]->part;

		/* Held only during the rpc, so its references are not counted. */
		g->user_memory[i] = (struct slot){.data = p->buf, .size = p->len, .refs = 1};
		g->in[i] = (struct slot_vec){&g->user_memory[i], 0, p->len};
	}
	call->n_bulk_in = g->n;
	return 0;
}

static int ask(struct group *g, struct rpc_call *call)
{
	struct client *c = g->c;
	uint64_t now = loop_now_us(), hedge_us;
	struct flight f;
	struct retry r;
	bool hedged;
	int rc;

	TRY(target_connect(g->target));
	retry_begin(&r, c);
	call->session = c->session;
	call->target = g->target->id;
	call->chain = g->chain->id;
	call->epoch = g->chain->epoch;
	call->deadline_us = retry_attempt_deadline(&r);
	hedge_us = hedge_after_us(&c->many_latencies, c->params.hedge_ms);
	hedged = hedge_us > 0 && hedge_possible(g->chain) && now + hedge_us < call->deadline_us;
	if (hedged)
		call->deadline_us = now + hedge_us;
	call->flags = RPC_CALL_NO_WAIT;
	target_asked(g->target, g->chain);
	flight_begin(g->chain, &f, g->target, false);
	rc = flight_end(&f, rpc_call(g->target->rpc, call));
	c->stats.many_ops++;
	latencies_add(&c->many_latencies, loop_now_us() - now);
	if (rc == -LE_TIMEDOUT) {
		hedge_lost(g->target, loop_now_us() - now);
		c->stats.hedges += hedged;
	}
	return rc;
}

/* Verifies one part of the reply and completes its job. */
static int take_part(struct group *g, struct job *j, const struct readv_result *res,
		     struct bytes pieces, uint8_t *data)
{
	struct pieces_in in = {
		.pieces = pieces,
		.block_size = chunk_block_size(j->d->inode->attr.layout.chunk_size),
		.off = j->at.off,
		.space = j->at.len,
		.bulk_len = res->sent,
		.data = data,
		.scratch = g->c->block,
		.sums = j->part->sums,
		.chunk_at = j->part->off - j->at.off,
	};
	uint32_t len = 0;
	int rc;

	if (res->status < 0) {
		if (cap_is_refused(res->status))
			cap_void(j->d, &j->cap, CAP_TO_READ);
		return res->status;
	}
	block_sums_clear(j->part->sums, j->part->off, j->part->len);
	rc = pieces_open(&in, &len);
	if (rc == -LE_CORRUPT_WIRE) {
		g->c->stats.checksum_errors++;
		log_write(LOG_WARN, "read of ino %llu chunk %llu from target %u: %s",
			  (unsigned long long)j->d->inode->ino.v, (unsigned long long)j->at.idx,
			  g->target->id, status_text(rc));
	}
	TRY(rc);
	/* The part is then read alone: ll_pread determines what the hole means. */
	if (pieces_hole(&in, len) < j->at.len && !PLANTED_BUG(CLIENT_TRUST_HOLES) &&
	    !size_known_untruncated(g->c, j->d->inode, j->n_truncations))
		return -LE_AGAIN;
	memset(data + len, 0, j->at.len - len);
	if (g->slot != NULL)
		copy_counted(j->part->buf, data, j->at.len);
	j->part->done = j->at.len;
	g->c->stats.read_ops++;
	g->c->stats.read_bytes += j->at.len;
	return 0;
}

static int take(struct group *g, const struct oss_readv_rep *rep, uint32_t bulk_len)
{
	const uint8_t *pieces = rep->pieces.data;
	uint32_t at = 0, left = rep->pieces.len / PIECE_WIRE_SIZE;
	struct wire_r w;

	if (bulk_len != g->len)
		return -LE_BAD_MESSAGE;
	wire_r_init(&w, rep->results.data, rep->results.len);
	for (uint32_t i = 0; i < g->n; i++) {
		struct job *j = g->jobs[i];
		uint8_t *data = g->slot != NULL ? g->slot->data + at : j->part->buf;
		struct readv_result res = {0};
		int rc;

		if (wire_r_end(&w))
			return -LE_BAD_MESSAGE;
		wire_get_readv_result(&w, &res);
		if (w.status < 0 || res.n_pieces > left)
			return -LE_BAD_MESSAGE;
		rc = take_part(g, j, &res, bytes_of(pieces, res.n_pieces * PIECE_WIRE_SIZE), data);
		(void)rc; /* the part is read alone, which returns the error */
		pieces += (size_t)res.n_pieces * PIECE_WIRE_SIZE;
		left -= res.n_pieces;
		at += j->at.len;
	}
	return 0;
}

static void run_group(void *arg)
{
	struct group *g = *(struct group **)arg;
	struct oss_readv_req req;
	struct oss_readv_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_readv, .req = &req, .rep = &rep};
	int rc;

	if (g->n < 2)
		return;
	rc = encode(g, &req);
	if (rc >= 0)
		rc = prepare(g, &call);
	if (rc >= 0)
		rc = ask(g, &call);
	if (rc >= 0)
		rc = take(g, &rep, call.ret_bulk_len);
	rpc_call_fini(&call);
	slot_unref(g->slot);
	for (uint32_t i = 0; rc == -LE_INTR && i < g->n; i++)
		g->jobs[i]->part->done = rc;
}

static void run_alone(void *arg)
{
	struct ll_part *p = *(struct ll_part **)arg;

	p->done = read_with_sums(p->file, p->buf, p->len, p->off, p->sums);
}

/* Reads the parts that no group has answered. */
static void read_alone(struct ll_part *parts, uint32_t n)
{
	struct ll_part *some[ALONE_WIDTH];

	for (uint32_t i = 0; i < n;) {
		uint32_t k = 0;

		for (; i < n && k < ALONE_WIDTH; i++)
			if (parts[i].done == -LE_AGAIN)
				some[k++] = &parts[i];
		if (k == 1)
			run_alone(&some[0]);
		else if (k > 0)
			fiber_parallel("pread", run_alone, some, sizeof(some[0]), k, k);
	}
}

static struct group *group_get(struct client *c)
{
	struct list *l = list_pop(&c->free_groups);
	struct group *g = l != NULL ? list_entry(l, struct group, link) : malloc(sizeof(*g));

	if (g == NULL)
		return NULL;
	c->n_free_groups -= l != NULL;
	g->c = c;
	g->slot = NULL;
	return g;
}

static void group_put(struct group *g)
{
	struct client *c = g->c;

	if (c->n_free_groups >= FREE_GROUPS_MAX) {
		free(g);
		return;
	}
	c->n_free_groups++;
	list_push_front(&c->free_groups, &g->link);
}

void read_batch_fini(struct client *c)
{
	struct list *l;

	while ((l = list_pop(&c->free_groups)) != NULL)
		free(list_entry(l, struct group, link));
}

/* Sends the groups of all jobs, GROUPS_WIDTH concurrently. */
static void run_groups(struct client *c, struct job *jobs, uint32_t n)
{
	struct group *some[GROUPS_WIDTH];
	uint32_t k;

	do {
		for (k = 0; k < GROUPS_WIDTH; k++) {
			some[k] = group_get(c);
			if (some[k] == NULL)
				break;
			if (!next_group(some[k], jobs, n)) {
				group_put(some[k]);
				break;
			}
		}
		if (k > 0)
			fiber_parallel("readv", run_group, some, sizeof(some[0]), k, k);
		for (uint32_t i = 0; i < k; i++)
			group_put(some[i]);
	} while (k == GROUPS_WIDTH);
}

static void read_grouped(struct client *c, struct ll_part *parts, uint32_t n)
{
	struct job *jobs = malloc(n * sizeof(*jobs));
	uint32_t n_jobs = 0;

	if (jobs == NULL)
		return;
	for (uint32_t i = 0; i < n; i++)
		n_jobs += begin_job(jobs, n_jobs, &parts[i]);
	for (uint32_t i = 0; i < n_jobs; i++)
		plan_job(c, &jobs[i]);
	run_groups(c, jobs, n_jobs);
	free(jobs);
}

void ll_pread_batch(struct client *c, struct ll_part *parts, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		parts[i].done = -LE_AGAIN;
	if (n > 1)
		read_grouped(c, parts, n);
	read_alone(parts, n);
}
