#include "ossd/chain/care.h"

#include <stdlib.h>

#include "common/base/log.h"

#define COPY_SLOTS 8u /* parts of chunks that come at once */
#define DROP_PAGE  64u
#define DROP_WAIT  1000000u

/* ---- what chain.c tells ---- */

static struct care *care_of(const struct chain *c)
{
	return c->all->hooks.arg;
}

static bool fills(struct chain *c, uint32_t target, const struct chunk_key *key)
{
	return resync_fills(care_of(c)->resync, c, target, key);
}

static bool failed(struct chain *c, uint32_t target, int status)
{
	log_debug("chain %u: target %u, which is being filled: %s", c->id, target,
		  status_text(status));
	return resync_failed(care_of(c)->resync, c, target);
}

static void adopted(struct chain *c)
{
	resync_adopted(care_of(c)->resync, c);
	if (c->phase == CHAIN_DROPPED)
		care_of(c)->drop_due = true;
}

/* ---- chunks of chains that have left ---- */

static bool is_stranger(void *arg, const struct chunk_key *key)
{
	const struct care *k = arg;
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
	return chunk_row_decode(ROW_CHUNK, key, key_len, &p->k[p->n++]);
}

/* Chunks of any chain from that one on. */
static int read_page(struct care *k, uint32_t chain, uint32_t max, struct page *p)
{
	struct chunk_key first = {.chain = chain};
	uint8_t begin[CHUNK_ROW_SIZE], end = ROW_CHUNK + 1;
	struct kv_range range = {begin, sizeof(begin), &end, 1, max};
	bool more;

	chunk_row_encode(ROW_CHUNK, &first, begin);
	p->n = 0;
	TRY(group_commit_barrier(&k->s->gc));
	return kv_scan(k->s->kv, NULL, &range, page_row, p, &more);
}

static int drop_page(struct care *k, const struct page *p, uint32_t chain, uint64_t *n)
{
	struct pace_work w;
	int rc = 0;

	pace_begin(&k->pace, &w);
	for (uint32_t i = 0; i < p->n && rc >= 0 && p->k[i].chain == chain; i++) {
		rc = chunk_copy_remove(k->s, &p->k[i], is_stranger, k);
		if (rc == 1) {
			(*n)++;
			metric_add(&k->metrics->dropped, 1);
		}
	}
	pace_end(&k->pace, &w, 0);
	return rc < 0 ? rc : 0;
}

static void forget_names(struct care *k, uint32_t chain)
{
	ledger_forget_names(chain, group_commit_batch(&k->s->gc));
	(void)group_commit_join_lazy(&k->s->gc, NULL, false);
}

static int drop_all(struct care *k)
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
		/* Of chunks whose rows had vanished names are left. */
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

void care_members_known(struct care *k)
{
	k->drop_due = k->members_known = true;
	if (k->dropper)
		fiber_wake(k->dropper);
}

static void drop_fiber(void *arg)
{
	struct care *k = arg;

	k->dropper = fiber_self();
	/* Not before care_members_known. */
	while (!k->stopping && !k->members_known)
		fiber_park();
	while (!k->stopping) {
		if (k->drop_due) {
			int rc;

			k->drop_due = false;
			rc = drop_all(k);
			care_noticed(k, rc);
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

int care_start(const struct care_options *o, struct care **ret_care)
{
	struct care *k = calloc(1, sizeof(*k));
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
	pace_init(&k->pace, k->env, k->metrics, o->p->resync_rate_mib_s, o->p->resync_share);
	ro.pace = &k->pace;
	ro.care = k;
	rc = slot_pool_create(OSSD_SLOT_SIZE, COPY_SLOTS, &k->copies);
	if (rc == 0)
		rc = o->transport->ops->add_pool(o->transport, k->copies, POOL_REMOTE);
	if (rc == 0)
		rc = resync_start(&ro, &k->resync);
	if (rc < 0) {
		care_free(k);
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

void care_stop(struct care *k)
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

void care_free(struct care *k)
{
	if (k->copies)
		slot_pool_destroy(k->copies);
	free(k);
}
