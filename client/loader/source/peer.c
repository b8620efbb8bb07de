/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/peer.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "client/client.h"
#include "client/data/read.h"
#include "client/include/leat/leat_loader.h"
#include "client/leat_impl.h"
#include "client/stage/fetch/fetch.h"
#include "client/stage/fetch/peers.h"
#include "client/stage/fetch/peers_net.h"
#include "common/base/assert.h"
#include "common/base/copy_counter.h"
#include "common/base/status.h"
#include "common/rpc/rpc.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

/* Interval of queries for copies, which appear and disappear with jobs. Each loader of a large
 * job sends them. */
#define POLL_MS 5000u
/* Buffers of 1 MiB, for ranges that cannot be received in place. */
#define SLOTS         16u
#define SLOT_WAIT_US  1000000u
#define PARTS_AT_ONCE 8u
/* Limit for the bytes sent per byte requested. */
#define TRAVEL_MAX 2u

#define PEER_MAGIC 0x4c504552u /* LPER */

struct peer_source {
	uint32_t magic;
	struct swarm *swarm;
	struct swarm_rpc net;
	struct rpc_key key;
	const struct manifest *m;
	struct slot_pool *pool;
	struct leat_fs *fs;
	_Atomic uint32_t ready, dropped, lied;
};

static void note(void *arg, const struct swarm *w)
{
	struct peer_source *p = CAST_OBJ(arg, struct peer_source, PEER_MAGIC);
	struct swarm_stats st;
	swarm_stats(w, &st);
	p->ready = swarm_n_ready(w);
	p->dropped = st.dropped;
	p->lied = st.lied;
}

/* ---- what may be requested ---- */

static const struct manifest_file *file_of(const struct peer_source *p, uint32_t file)
{
	return &p->m->files[file];
}

static void to_blocks(const struct manifest_file *f, uint64_t *lo, uint64_t *hi)
{
	*lo = *lo / f->block * f->block;
	*hi = (*hi + f->block - 1) / f->block * f->block;
	if (*hi > f->size)
		*hi = f->size;
}

bool peer_may_serve(const struct peer_source *p, const struct peer_range *r)
{
	uint64_t lo = r->off, hi = r->off + r->len;
	if (p->ready == 0)
		return false;
	to_blocks(file_of(p, r->file), &lo, &hi);
	return hi - lo <= TRAVEL_MAX * r->len;
}

/* ---- reading ---- */

/* Bytes [off, off + len) of a chunk of f that begins at `base` in the file. */
struct part {
	struct peer_source *p;
	const struct manifest_file *f;
	uint64_t base, off, len;
	uint8_t *to;
	int rc;
};

static int get(const struct part *x, uint64_t off, uint64_t len, struct slot *s)
{
	return swarm_get_part(x->p->swarm, x->f->first_chunk + x->base / MANIFEST_CHUNK,
			      (uint32_t)off, (uint32_t)len, s);
}

static int get_by_copy(const struct part *x, uint64_t off, uint64_t len)
{
	struct slot *s;
	TRY(slot_get(x->p->pool, loop_now_us() + SLOT_WAIT_US, &s));
	int rc = get(x, off, len, s);
	if (rc == 0)
		copy_counted(x->to, s->data + (x->off - off), x->len);
	slot_unref(s);
	return rc;
}

static void read_part(void *arg)
{
	struct part *x = arg;
	uint64_t lo = x->base + x->off, hi = lo + x->len;
	to_blocks(x->f, &lo, &hi);
	lo -= x->base;
	hi -= x->base;
	/* A network card writes only to memory that is registered with it. */
	bool lands = !x->p->fs || read_lands_directly(x->p->fs->client, x->to, x->len);
	if (!lands || lo != x->off || hi - lo != x->len) {
		x->rc = get_by_copy(x, lo, hi - lo);
		return;
	}
	/* A slot on the stack: the rpc has returned all references when `get` returns. */
	struct slot user_memory = {.data = x->to, .size = (uint32_t)x->len, .refs = 1};
	x->rc = get(x, lo, x->len, &user_memory);
	ASSERT(user_memory.refs == 1);
}

bool peer_read(struct peer_source *p, const struct peer_range *r, uint8_t *to)
{
	struct part parts[PARTS_AT_ONCE];
	uint64_t at = r->off, end = r->off + r->len;
	bool all = true;
	while (at < end && all) {
		uint32_t n = 0;
		for (; n < PARTS_AT_ONCE && at < end; n++) {
			uint64_t base = at / MANIFEST_CHUNK * MANIFEST_CHUNK;
			uint64_t stop = base + MANIFEST_CHUNK < end ? base + MANIFEST_CHUNK : end;
			parts[n] = (struct part){p,         file_of(p, r->file), base, at - base,
						 stop - at, to + (at - r->off),  0};
			at = stop;
		}
		if (n == 1)
			read_part(&parts[0]);
		else
			fiber_parallel("peer", read_part, parts, sizeof(parts[0]), n, n);
		for (uint32_t i = 0; i < n; i++)
			all &= parts[i].rc == 0;
	}
	note(p, p->swarm);
	return all;
}

int peer_report_damage(struct peer_source *p, uint64_t chunk)
{
	return swarm_damaged(p->swarm, chunk);
}

void peer_tell(const struct peer_source *p, struct leat_loader_metrics *m)
{
	m->peers += p->ready;
	m->peers_dropped += p->dropped;
	m->peers_lied += p->lied;
}

/* ---- start and end ---- */

static int start(struct peer_source *p, const struct peer_options *o)
{
	struct swarm_options so = {.ops = o->ops,
				   .net = o->net,
				   .manifest = p->m,
				   .self = "",
				   .poll_ms = POLL_MS,
				   .looked = note,
				   .looked_arg = p};
	TRY(slot_pool_create(MANIFEST_CHUNK, SLOTS, &p->pool));
	p->fs = o->fs;
	if (o->fs) {
		struct transport *t = o->fs->transport;
		TRY(t->ops->add_pool(t, p->pool, POOL_REMOTE));
		p->key = o->fs->client->key;
		p->net = (struct swarm_rpc){
			.magic = SWARM_RPC_MAGIC, .fs = o->fs, .key = &p->key, .loader = true};
		so.ops = &swarm_net_rpc;
		so.net = &p->net;
	}
	return swarm_create(&so, &p->swarm);
}

int peer_create(const struct peer_options *o, struct peer_source **ret_peers)
{
	struct peer_source *p = calloc(1, sizeof(*p));
	if (!p)
		return -LE_NOMEM;
	p->magic = PEER_MAGIC;
	p->m = o->m;
	int rc = start(p, o);
	if (rc < 0) {
		peer_destroy(p);
		return rc;
	}
	*ret_peers = p;
	return 0;
}

void peer_destroy(struct peer_source *p)
{
	if (!p)
		return;
	swarm_destroy(p->swarm);
	if (p->pool)
		slot_pool_destroy(p->pool);
	p->magic = 0;
	free(p);
}
