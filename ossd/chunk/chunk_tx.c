/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/chunk_tx.h"

#include "common/base/planted_bug.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/chunk/store_block.h"
#include "ossd/chunk/store_record.h"

/* Frees the extents that old has and rec does not. */
static void free_difference(struct chunk_store *s, const struct chunk_record *old,
			    const struct chunk_record *rec)
{
	for (uint32_t i = 0; old && i < old->n_blocks; i++) {
		const struct chunk_block *o = &old->blocks[i];
		const struct chunk_block *n = rec && i < rec->n_blocks ? &rec->blocks[i] : NULL;
		bool shared = n && n->len && n->unit == o->unit && !PLANTED_BUG(OSS_FREE_SHARED);
		uint32_t keep = shared ? block_units(n) : 0;

		if (o->len && block_units(o) > keep)
			space_free(&s->space, o->unit + keep, block_units(o) - keep);
	}
}

/* Makes the record the committed one of the cache. */
static void show_committed(struct chunk_tx *tx)
{
	chunk_ent_committed(&tx->s->cache, tx->ent, chunk_record_ref(tx->rec));
	tx->ent->lost = tx->lose;
}

static void tx_committed(struct commit_member *m)
{
	struct chunk_tx *tx = container_of(m, struct chunk_tx, member);
	struct chunk_store *s = tx->s;

	if (tx->held) {
		tx->held(tx, 0);
		return;
	}
	list_remove(&tx->in_flight);
	free_difference(s, tx->old, tx->rec);
	show_committed(tx);
}

static void tx_failed(struct commit_member *m)
{
	struct chunk_tx *tx = container_of(m, struct chunk_tx, member);

	if (tx->held)
		tx->held(tx, -LE_IO);
	else
		list_remove(&tx->in_flight);
}

static void tx_end(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;

	NO_YIELD();

	ASSERT(s->n_writing > 0);
	if (tx->locked)
		fmutex_unlock(&tx->ent->lock);
	tx->locked = false;
	chunk_record_unref(&s->cache, tx->old);
	chunk_record_unref(&s->cache, tx->rec);
	tx->old = tx->rec = NULL;
	slot_unref(tx->stage);
	tx->stage = NULL;
	chunk_ent_put(&s->cache, tx->ent);
	s->n_writing--;
	s->last_write_us = env_now_us(s->env);
}

static int tx_begin(struct chunk_store *s, const struct chunk_key *id, bool over,
		    struct chunk_tx *tx)
{
	bool row;
	int rc;

	TRY(chunk_store_status(s));
	TRY(inventory_need(&s->inventory, id->chain));
	*tx = (struct chunk_tx){
		.s = s, .member.committed = tx_committed, .member.failed = tx_failed};
	tx->ent = chunk_ent_get(&s->cache, id);
	if (!tx->ent)
		return -LE_NOMEM;
	s->n_writing++;
	fmutex_lock(&tx->ent->lock);
	tx->locked = true;
	rc = store_ent_load_row(s, tx->ent, &row);
	if (rc == -LE_CORRUPT && over) {
		tx->over = true;
		tx->over_row = row;
		tx->lost = chunk_store_lost(s, id) == INVENTORY_LOST;
		rc = 0;
	}
	if (rc == 0)
		rc = chunk_store_status(s);
	if (rc < 0) {
		tx_end(tx);
		return rc;
	}
	tx->old = chunk_record_ref(chunk_ent_newest(tx->ent));
	tx->version = (tx->old ? tx->old->version : 0) + 1;
	return 0;
}

int chunk_tx_begin(struct chunk_store *s, const struct chunk_key *id, struct chunk_tx *tx)
{
	return tx_begin(s, id, false, tx);
}

int chunk_tx_begin_over(struct chunk_store *s, const struct chunk_key *id, struct chunk_tx *tx)
{
	return tx_begin(s, id, true, tx);
}

void chunk_tx_cancel(struct chunk_tx *tx)
{
	tx_end(tx);
}

bool chunk_tx_in_the_way(const struct chunk_tx *tx, const struct chunk_write *w)
{
	if (tx->change != CHANGE_WRITE)
		return true;
	return tx->session != w->session && tx->off < w->off + w->len &&
	       w->off < tx->off + tx->len;
}

/* Returns the group that must be durable before the write may start; 0: none. */
static uint64_t in_the_way(const struct chunk_ent *e, const struct chunk_write *w)
{
	for (const struct list *l = e->in_flight.prev; l != &e->in_flight; l = l->prev) {
		const struct chunk_tx *tx = list_entry(l, struct chunk_tx, in_flight);

		if (chunk_tx_in_the_way(tx, w))
			return tx->group;
	}
	return 0;
}

int chunk_tx_begin_write(struct chunk_store *s, const struct chunk_write *w, struct chunk_tx *tx)
{
	for (;;) {
		uint64_t group;

		TRY(chunk_tx_begin(s, &w->id, tx));
		group = in_the_way(tx->ent, w);
		if (!group)
			return 0;
		chunk_tx_cancel(tx);
		group_commit_expedite(&s->gc);
		TRY(group_commit_wait(&s->gc, group));
	}
}

int tx_new_record(struct chunk_tx *tx, uint32_t chunk_size, uint32_t n_blocks,
		  const struct chunk_gaps *gaps)
{
	struct chunk_store *s = tx->s;
	const struct chunk_record *old = tx->old;
	const struct chunk_gap *at = gaps ? gaps->at : old ? chunk_record_gaps(old) : NULL;
	uint32_t n_gaps = gaps ? gaps->n : old ? old->n_gaps : 0;
	struct chunk_record *rec = chunk_record_create(&s->cache, n_blocks, n_gaps);
	uint32_t n_copy = old ? (old->n_blocks < n_blocks ? old->n_blocks : n_blocks) : 0;

	if (!rec)
		return -LE_NOMEM;
	if (n_copy)
		memcpy(rec->blocks, old->blocks, n_copy * sizeof(rec->blocks[0]));
	memset(rec->blocks + n_copy, 0, (n_blocks - n_copy) * sizeof(rec->blocks[0]));
	if (n_gaps)
		memcpy(chunk_record_gaps(rec), at, n_gaps * sizeof(*at));
	rec->version = tx->version;
	rec->mtime_ns = mds_clock_stamp_ns(&s->clock, s->env);
	if (old && rec->mtime_ns < old->mtime_ns)
		rec->mtime_ns = old->mtime_ns;
	rec->end = old ? old->end : 0;
	rec->chunk_size = chunk_size;
	rec->block_size = chunk_block_size(chunk_size);
	tx->rec = rec;
	return 0;
}

/* had: the chunk has a row. */
static void put_row(struct chunk_store *s, const struct chunk_key *id, bool had,
		    const struct chunk_record *rec)
{
	struct kv_batch *b = group_commit_batch(&s->gc);
	uint8_t key[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_CHUNK, id, key);
	if (rec)
		kv_batch_put(b, key, sizeof(key), s->scratch,
			     chunk_record_encode(id, rec, s->scratch));
	else
		kv_batch_delete(b, key, sizeof(key));
	if (rec && !had)
		inventory_add(&s->inventory, id, b);
	else if (had && !rec)
		inventory_remove(&s->inventory, id, b);
}

/* Writes a row that marks the chunk as lost. had: the chunk has a row. */
static void put_lost(struct chunk_store *s, const struct chunk_key *id, bool had)
{
	struct kv_batch *b = group_commit_batch(&s->gc);
	uint8_t key[CHUNK_KEY_SIZE], value[CHUNK_LOST_SIZE];

	chunk_key_encode(ROW_CHUNK, id, key);
	chunk_record_encode_lost(id, value);
	kv_batch_put(b, key, sizeof(key), value, sizeof(value));
	if (!had)
		inventory_add(&s->inventory, id, b);
	inventory_marked(&s->inventory, id->chain, 1);
}

static void put_change(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;
	const struct chunk_key *id = &tx->ent->id;

	if (tx->lost && tx->over_row)
		inventory_marked(&s->inventory, id->chain, -1);
	if (tx->lose)
		put_lost(s, id, tx->old || tx->over_row);
	else
		put_row(s, id, tx->old || tx->over_row, tx->rec);
	if (tx->over && !tx->over_row && !tx->rec && !tx->lose)
		inventory_forget(&s->inventory, id, group_commit_batch(&s->gc));
}

void chunk_tx_join(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;
	NO_YIELD();

	ASSERT(tx->locked && tx->ent->lock.held && !(tx->lose && tx->rec));
	put_change(tx);
	chunk_ent_set_pending(&s->cache, tx->ent, chunk_record_ref(tx->rec));
	tx->group = tx->lazy ? group_commit_join_lazy(&s->gc, &tx->member, tx->data)
			     : group_commit_join(&s->gc, &tx->member, tx->data);
	if (!tx->held)
		list_push(&tx->ent->in_flight, &tx->in_flight);
	fmutex_unlock(&tx->ent->lock);
	tx->locked = false;
}

void chunk_tx_commit(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;

	free_difference(s, tx->old, tx->rec);
	show_committed(tx);
	tx_end(tx);
}

void chunk_tx_take_back(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;

	ASSERT(tx->ent->lock.held && chunk_ent_newest(tx->ent) == tx->rec);
	if (tx->lost)
		put_lost(s, &tx->ent->id, tx->rec != NULL);
	else
		put_row(s, &tx->ent->id, tx->rec != NULL, tx->old);
	chunk_ent_revert(&s->cache, tx->ent, chunk_record_ref(tx->old));
	if (tx->lost)
		tx->ent->known = tx->ent->lost = true;
}

void chunk_tx_taken_back(struct chunk_tx *tx)
{
	free_difference(tx->s, tx->rec, tx->old);
	tx_end(tx);
}

int chunk_tx_wait(struct chunk_tx *tx)
{
	int rc = group_commit_wait(&tx->s->gc, tx->group);

	tx_end(tx);
	return rc;
}

void chunk_tx_abort(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;

	ASSERT(tx->locked);
	for (uint32_t i = 0; tx->rec && i < tx->rec->n_blocks; i++) {
		const struct chunk_block *n = &tx->rec->blocks[i];
		const struct chunk_block *o =
			tx->old && i < tx->old->n_blocks ? &tx->old->blocks[i] : NULL;

		if (n->len && !(n->flags & BLOCK_FRESH) && !(o && o->len && o->unit == n->unit))
			extent_put(&s->space.alloc, n->unit, block_units(n));
	}
	tx_end(tx);
}

/* ---- extents ---- */

static void put_back(struct chunk_tx *tx, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		struct chunk_block *b = &tx->rec->blocks[i];

		if (b->flags & BLOCK_FRESH)
			extent_put(&tx->s->space.alloc, b->unit, block_units(b));
	}
}

/* Assigns [start, start + n) to the blocks that need extents, starting at *at. Frees what remains
 * because the next block does not fit. */
static void hand_out(struct chunk_tx *tx, uint32_t *at, uint32_t last, uint64_t start, uint32_t n)
{
	for (; *at <= last; (*at)++) {
		struct chunk_block *b = &tx->rec->blocks[*at];

		if (!(b->flags & BLOCK_FRESH))
			continue;
		if (block_units(b) > n)
			break;
		b->unit = (uint32_t)start;
		start += block_units(b);
		n -= block_units(b);
	}
	if (n)
		extent_put(&tx->s->space.alloc, start, n);
}

/* Allocates for all blocks or none. Does not yield. whole_only: in one contiguous run. */
static int try_extents(struct chunk_tx *tx, const struct alloc_request *a, uint32_t need,
		       bool whole_only)
{
	uint32_t at = a->first;

	while (need) {
		uint32_t n, units, begin;
		uint64_t start;

		while (!(tx->rec->blocks[at].flags & BLOCK_FRESH))
			at++;
		begin = at;
		units = block_units(&tx->rec->blocks[at]);
		n = extent_get(&tx->s->space.alloc, need, units, &start);
		if (n && n < need && whole_only) {
			extent_put(&tx->s->space.alloc, start, n);
			n = 0;
		}
		if (!n) {
			put_back(tx, a->first, at);
			return -LE_NOSPC;
		}
		hand_out(tx, &at, a->last, start, n);
		for (uint32_t i = begin; i < at; i++)
			if (tx->rec->blocks[i].flags & BLOCK_FRESH)
				need -= block_units(&tx->rec->blocks[i]);
	}
	return 0;
}

static int get_extents(struct chunk_tx *tx, const struct alloc_request *a, uint32_t need)
{
	struct chunk_store *s = tx->s;

	for (;;) {
		uint64_t seen = s->data.size;
		bool can_grow = seen < s->data.capacity;
		int rc = try_extents(tx, a, need, can_grow);

		if (rc == 0 || !can_grow)
			return rc;
		rc = data_file_grow(&s->data, seen, s->p->grow_step);
		if (rc < 0) {
			/* The underlying file system is full: the file cannot grow. */
			s->data.capacity = s->data.size;
			s->space.alloc.n_units = s->data.size / UNIT_SIZE;
		}
		extent_alloc_grow(&s->space.alloc, s->data.size / UNIT_SIZE);
	}
}

/* Waits for commits, or for reads that have ended, which free extents. */
static bool wait_for_frees(struct chunk_store *s)
{
	if (s->gc.done + 1 >= s->gc.next_number - (s->gc.open->n == 0))
		return s->space.quarantined > 0 && fiber_sleep_us(1000) == 0;
	group_commit_expedite(&s->gc);
	return group_commit_wait(&s->gc, s->gc.done + 1) == 0;
}

int tx_allocate(struct chunk_tx *tx, const struct alloc_request *a)
{
	struct chunk_store *s = tx->s;
	uint32_t need = 0;
	int rc = -LE_NOSPC;

	for (uint32_t i = a->first; i <= a->last; i++)
		if (tx->rec->blocks[i].flags & BLOCK_FRESH)
			need += block_units(&tx->rec->blocks[i]);
	for (int round = 0; round < 16 && rc == -LE_NOSPC; round++) {
		if (round && !wait_for_frees(s))
			break;
		rc = space_admit(&s->space, a->session, a->len, need,
				 a->privileged ? 0 : a->growth);
		if (rc == 0 && need)
			rc = get_extents(tx, a, need);
	}
	if (rc == 0)
		for (uint32_t i = a->first; i <= a->last; i++)
			tx->rec->blocks[i].flags &= ~BLOCK_FRESH;
	return rc;
}

