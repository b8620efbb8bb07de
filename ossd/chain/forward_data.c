/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/forward_data.h"

#include "ossd/chunk/chunk_write.h"

uint32_t forward_targets(struct chain *c, const struct chunk_key *key,
			 uint32_t targets[CHAIN_MEMBERS_MAX])
{
	uint32_t n = 0;

	if (!chain_is_sync(c))
		return 0;
	if (!chain_is_tail(c)) {
		targets[0] = c->members[c->self + 1].target;
		return 1;
	}
	for (uint32_t i = c->n_sync; i < c->n_members; i++) {
		const struct chain_hooks *h = &c->all->hooks;
		uint32_t target = c->members[i].target;

		if (c->members[i].state == MEMBER_SYNCING && h->fills && h->fills(c, target, key))
			targets[n++] = target;
	}
	return n;
}

static void add_vec(struct version *v, struct slot *slot, uint32_t off, uint32_t len)
{
	v->vec[v->n_vec++] = (struct slot_vec){slot_ref(slot), off, len};
}

static uint32_t n_kept(const struct version *v)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < v->n_vec; i++)
		n += v->vec[i].slot->pool != v->chain->all->store->merge_pool;
	return n;
}

void forward_release(struct version *v)
{
	struct chains *cs = v->chain->all;
	uint32_t kept = n_kept(v);

	cs->n_kept -= kept;
	cs->n_kept_merged -= v->n_vec - kept;
	for (uint32_t i = 0; i < v->n_vec; i++)
		slot_unref(v->vec[i].slot);
	v->n_vec = 0;
}

/* Adds bytes [pos, end) of the request's data. */
static void add_bulk(struct version *v, const struct chunk_write *w, uint32_t pos, uint32_t end)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < w->n_bulk && pos < end; i++) {
		const struct slot_vec *b = &w->bulk[i];
		uint32_t from = pos - at, len = end - pos;

		if (pos < at + b->len) {
			if (len > b->len - from)
				len = b->len - from;
			add_vec(v, b->slot, b->off + from, len);
			pos += len;
		}
		at += b->len;
	}
}

void forward_keep(struct version *v, const struct chunk_write *w)
{
	struct chains *cs = v->chain->all;
	struct chunk_tx *tx = &v->tx;
	const struct chunk_record *rec = tx->rec;
	uint32_t first = w->off / rec->block_size, pos = 0, end = 0;
	uint32_t last = (w->off + w->len - 1) / rec->block_size, n = tx->n_merged;
	uint32_t targets[CHAIN_MEMBERS_MAX];
	bool last_merged = n && tx->merged[n - 1].block == last && last != first;
	struct piece p;
	bool space = cs->n_kept + w->n_bulk <= cs->o.kept_max &&
		    cs->n_kept_merged + n <= cs->o.kept_merged_max;

	if (!space || w->n_bulk + n > VERSION_VECS || !forward_targets(v->chain, NULL, targets))
		goto out;
	for (uint32_t i = 0; i < w->n_bulk; i++)
		end += w->bulk[i].len;
	if (n && tx->merged[0].block == first) {
		p = chunk_write_piece(w, 0);
		add_vec(v, tx->stage, tx->merged[0].off, block_space(&rec->blocks[first]));
		pos = piece_space(&p);
	}
	if (last_merged) {
		p = chunk_write_piece(w, last - first);
		end -= piece_space(&p);
	}
	if (pos < end)
		add_bulk(v, w, pos, end);
	if (last_merged)
		add_vec(v, tx->stage, tx->merged[n - 1].off, block_space(&rec->blocks[last]));
	cs->n_kept += n_kept(v);
	cs->n_kept_merged += v->n_vec - n_kept(v);
out:
	slot_unref(tx->stage);
	tx->stage = NULL;
}
