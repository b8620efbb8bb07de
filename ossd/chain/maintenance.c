/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/maintenance.h"

#include <stdlib.h>

#include "common/base/log.h"

#define COPY_SLOTS 8u /* parts of chunks received concurrently */
#define DROP_PAGE  64u
#define DROP_WAIT  1000000u

/* ---- hooks of the chains ---- */

static struct maintenance *maintenance_of(const struct chain *c)
{
	return c->all->hooks.arg;
}

static bool fills(struct chain *c, uint32_t target, const struct chunk_key *key)
{
	return resync_fills(maintenance_of(c)->resync, c, target, key);
}

static bool failed(struct chain *c, uint32_t target, int status)
{
	log_debug("chain %u: target %u, which is being filled: %s", c->id, target,
		  status_text(status));
	return resync_failed(maintenance_of(c)->resync, c, target);
}

static void adopted(struct chain *c)
{
	resync_adopted(maintenance_of(c)->resync, c);
	if (c->phase == CHAIN_DROPPED)
		maintenance_of(c)->drop_due = true;
}

/* ---- chunks of chains that have left ---- */

static bool is_stranger(void *arg, const struct chunk_key *key)
{
	const struct maintenance *k = arg;
	const struct chain *c = chain_find(k->chains, key->chain);

	return !c || c->phase == CHAIN_NONE || c->phase == CHAIN_DROPPED;
}

struct page {
	struct chunk_key k[DROP_PAGE];
	uint32_t n;
};

static int page_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct page *p = arg;

	(void)value, (void)len;
	return chunk_key_decode(ROW_CHUNK, key, key_len, &p->k[p->n++]);
}

/* Reads keys of chunks, of any chain, starting with that chain. */
static int read_page(struct maintenance *k, uint32_t chain, uint32_t max, struct page *p)
{
	struct chunk_key first = {.chain = chain};
	uint8_t begin[CHUNK_KEY_SIZE], end = ROW_CHUNK + 1;
	struct kv_range range = {begin, sizeof(begin), &end, 1, max};
	bool more;

	chunk_key_encode(ROW_CHUNK, &first, begin);
	p->n = 0;
	TRY(group_commit_barrier(&k->s->gc));
	return kv_scan(k->s->kv, NULL, &range, page_row, p, &more);
}

static int drop_page(struct maintenance *k, const struct page *p, uint32_t chain, uint64_t *n)
{
	struct maintenance_turn w;
	int rc = 0;

	maintenance_turn_begin(&k->turns, &w);
	for (uint32_t i = 0; i < p->n && rc >= 0 && p->k[i].chain == chain; i++) {
		rc = chunk_copy_remove(k->s, &p->k[i], is_stranger, k);
		if (rc == 1) {
			(*n)++;
			metric_add(&k->metrics->dropped, 1);
		}
	}
	maintenance_turn_end(&k->turns, &w, 0);
	return rc < 0 ? rc : 0;
}

static void forget_names(struct maintenance *k, uint32_t chain)
{
	inventory_forget_names(chain, group_commit_batch(&k->s->gc));
	(void)group_commit_join_lazy(&k->s->gc, NULL, false);
}

static int drop_all(struct maintenance *k)
{
	struct page p;
	uint32_t chain = 0;

	while (!k->stopping) {
		uint64_t n = 0;

		TRY(read_page(k, chain, 1, &p));
		if (p.n == 0)
			return 0;
		chain = p.k[0].chain;
		while (!k->stopping && is_stranger(k, &p.k[0]) && p.k[0].chain == chain) {
			TRY(read_page(k, chain, DROP_PAGE, &p));
			if (p.n == 0 || p.k[0].chain != chain)
				break;
			TRY(drop_page(k, &p, chain, &n));
		}
		/* Names may remain of chunks that had lost their row. */
		if (!k->stopping && is_stranger(k, &(struct chunk_key){.chain = chain}))
			forget_names(k, chain);
		if (n)
			log_info("chain %u has left this target: %llu chunks removed", chain,
				 (unsigned long long)n);
		if (chain++ == UINT32_MAX)
			return 0;
	}
	return 0;
}

void maintenance_members_known(struct maintenance *k)
{
	k->drop_due = k->members_known = true;
	if (k->dropper)
		fiber_wake(k->dropper);
}

static void drop_fiber(void *arg)
{
	struct maintenance *k = arg;

	k->dropper = fiber_self();
	/* Waits for maintenance_members_known. */
	while (!k->stopping && !k->members_known)
		fiber_park();
	while (!k->stopping) {
		if (k->drop_due) {
			int rc;

			k->drop_due = false;
			rc = drop_all(k);
			maintenance_noticed(k, rc);
			if (rc < 0) {
				k->drop_due = true;
				if (rc != -LE_CANCELED && rc != -LE_INTR)
					log_warn("removing chunks of chains that have left: %s",
						 status_text(rc));
			}
		}
		if (!k->stopping && fiber_sleep_us(DROP_WAIT) < 0)
			break;
	}
	k->dropper = NULL;
	latch_done(&k->fibers);
}

/* ---- start and end ---- */

int maintenance_start(const struct maintenance_options *o, struct maintenance **ret_care)
{
	struct maintenance *k = calloc(1, sizeof(*k));
	struct resync_options ro = {.chains = o->chains,
				    .log = o->chains->log,
				    .p = o->p,
				    .metrics = o->metrics,
				    .synced = o->synced,
				    .arg = o->arg};
	int rc;

	if (!k)
		return -LE_NOMEM;
	k->chains = o->chains;
	k->s = o->chains->store;
	k->env = k->s->env;
	k->p = o->p;
	k->metrics = o->metrics;
	k->incarnation = env_random_u64(k->env);
	list_init(&k->repairing);
	latch_init(&k->fibers, 0);
	maintenance_turns_init(&k->turns, k->env, k->metrics, o->p->resync_rate_mib_s,
			       o->p->resync_share);
	ro.turns = &k->turns;
	ro.maintenance = k;
	rc = slot_pool_create(OSSD_SLOT_SIZE, COPY_SLOTS, &k->copies);
	if (rc == 0)
		rc = o->transport->ops->add_pool(o->transport, k->copies, POOL_REMOTE);
	if (rc == 0)
		rc = resync_start(&ro, &k->resync);
	if (rc < 0) {
		maintenance_free(k);
		return rc;
	}
	o->chains->hooks = (struct chain_hooks){
		.arg = k, .fills = fills, .failed = failed, .adopted = adopted};
	latch_add(&k->fibers, 1);
	if (fiber_spawn("chain-drop", drop_fiber, k) < 0)
		latch_done(&k->fibers);
	*ret_care = k;
	return 0;
}

void maintenance_stop(struct maintenance *k)
{
	k->stopping = true;
	if (k->dropper) {
		fiber_interrupt(k->dropper);
		fiber_wake(k->dropper);
	}
	if (k->resync)
		resync_stop(k->resync);
	k->resync = NULL;
	k->chains->hooks = (struct chain_hooks){0};
	latch_wait(&k->fibers);
}

void maintenance_free(struct maintenance *k)
{
	if (k->copies)
		slot_pool_destroy(k->copies);
	free(k);
}
