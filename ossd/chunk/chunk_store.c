/*
 * Opening, closing, the commit counter, transactions on chunks, and the fiber that zeroes
 * space ahead. The changes themselves: chunk_write.c, chunk_trim.c. Reads: chunk_read.c.
 *
 * Start: super row → replay rows → all chunk records, whose extents are marked in the free map
 * (store_load.c) → data file → serve. What a crash left in the data file without a record is free
 * again.
 */
#include "ossd/chunk/chunk_store.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/base/payload.h"
#include "ossd/chunk/store_impl.h"

WIRE_DEFINE_MESSAGE(store_super)

#define ZERO_STEP       (1u << 20)
#define ZERO_SYNC_EVERY (32u << 20)
#define ZERO_IDLE_US    300000u

/* ---- records ---- */

int store_record_decode(struct chunk_store *s, const struct chunk_key *id, const void *data,
			size_t len, struct chunk_record **ret_rec)
{
	struct chunk_summary_info info;
	struct chunk_record *rec;
	int rc = chunk_record_summary(id, data, len, &info);

	if (rc == 0) {
		rec = chunk_record_create(&s->cache, info.n_blocks, info.n_gaps);
		if (!rec)
			return -LE_NOMEM;
		rc = chunk_record_decode(id, data, len, rec, info.n_blocks);
		if (rc == 0) {
			*ret_rec = rec;
			return 0;
		}
		chunk_record_unref(&s->cache, rec);
	}
	metric_add(&s->metrics->corrupt, 1);
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the record of the chunk is damaged",
		  (unsigned long long)id->ino.v, id->gen, (unsigned long long)id->idx,
		  s->super.target);
	return -LE_CORRUPT;
}

static int lost_by_name(struct chunk_store *s, const struct chunk_key *id)
{
	metric_add(&s->metrics->corrupt, 1);
	log_error("inode=%llu gen=%u chunk=%llu target=%u: the chunk is lost",
		  (unsigned long long)id->ino.v, id->gen, (unsigned long long)id->idx,
		  s->super.target);
	return -LE_CORRUPT;
}

/* The index has no row of the chunk. Should it? */
static int check_lost(struct chunk_store *s, const struct chunk_key *id)
{
	switch (ledger_has(&s->ledger, id)) {
	case LEDGER_NONE:
		return 0;
	case LEDGER_LOST:
		return lost_by_name(s, id);
	case LEDGER_UNSURE:
		metric_add(&s->metrics->corrupt, 1);
		log_error("chain=%u inode=%llu gen=%u chunk=%llu target=%u: the index has lost "
			  "several chunks, and their names: this may be one of them",
			  id->chain, (unsigned long long)id->ino.v, id->gen,
			  (unsigned long long)id->idx, s->super.target);
		return -LE_CORRUPT;
	}
	return -LE_CORRUPT;
}

int store_ent_load_row(struct chunk_store *s, struct chunk_ent *e, bool *ret_row)
{
	struct chunk_record *rec = NULL;
	uint8_t key[CHUNK_ROW_SIZE];
	struct kv_value v;
	int rc;

	*ret_row = false;
	if (e->known || store_ent_pending(s, e)) {
		metric_add(&s->metrics->cache_hits, 1);
		if (!e->lost || store_ent_pending(s, e))
			return 0;
		*ret_row = true;
		return lost_by_name(s, &e->id);
	}
	metric_add(&s->metrics->cache_misses, 1);
	chunk_row_encode(ROW_CHUNK, &e->id, key);
	rc = kv_get(s->kv, key, sizeof(key), &v);
	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	*ret_row = rc == 0;
	if (rc == 0) {
		bool lost = chunk_record_is_lost(&e->id, v.data, v.len);

		if (!e->known && lost)
			e->known = e->lost = true;
		else if (!e->known)
			rc = store_record_decode(s, &e->id, v.data, v.len, &rec);
		kv_value_fini(&v);
		TRY(rc);
		if (e->lost && !store_ent_pending(s, e))
			return lost_by_name(s, &e->id);
	} else if (!e->known && !e->n_pend) {
		TRY(store_ent_vanished(s, e));
		*ret_row = e->known && e->lost;
		if (*ret_row && !store_ent_pending(s, e))
			return lost_by_name(s, &e->id);
		/* Last: a doubt that comes later finds the entry, and nothing yields in between. */
		if (!e->known && !e->n_pend)
			TRY(check_lost(s, &e->id));
	}
	chunk_ent_load(&s->cache, e, rec);
	return 0;
}

int chunk_store_record(struct chunk_store *s, const struct chunk_key *id,
		       struct chunk_record **ret_rec)
{
	struct chunk_ent *e = chunk_ent_get(&s->cache, id);
	int rc;

	if (!e)
		return -LE_NOMEM;
	rc = store_ent_load(s, e);
	if (rc == 0)
		*ret_rec = chunk_record_ref(store_ent_seen(s, e));
	chunk_ent_put(&s->cache, e);
	return rc;
}

enum ledger_answer chunk_store_lost(struct chunk_store *s, const struct chunk_key *id)
{
	struct chunk_ent *e = chunk_ent_find(&s->cache, id);
	bool pending = e && store_ent_pending(s, e);
	bool known = pending || (e && e->known), lost = !pending && known && e->lost;
	uint8_t key[CHUNK_ROW_SIZE];
	struct kv_value v;
	int rc;

	if (e)
		chunk_ent_put(&s->cache, e);
	if (known)
		return lost ? LEDGER_LOST : LEDGER_NONE;
	chunk_row_encode(ROW_CHUNK, id, key);
	rc = kv_get(s->kv, key, sizeof(key), &v);
	if (rc < 0)
		return rc == -LE_NOENT ? ledger_has(&s->ledger, id) : LEDGER_NONE;
	lost = chunk_record_is_lost(id, v.data, v.len);
	kv_value_fini(&v);
	return lost ? LEDGER_LOST : LEDGER_NONE;
}

int chunk_store_committed(struct chunk_store *s, const struct chunk_key *id, bool quiet,
			  struct chunk_record **ret_rec)
{
	struct chunk_ent *e = chunk_ent_get(&s->cache, id);
	int rc;

	if (!e)
		return -LE_NOMEM;
	rc = store_ent_load(s, e);
	if (rc == 0 && quiet && e->n_pend)
		rc = -LE_PENDING;
	else if (rc == 0 && !store_ent_readable(e))
		rc = -LE_CORRUPT;
	if (rc == 0)
		*ret_rec = chunk_record_ref(e->rec);
	chunk_ent_put(&s->cache, e);
	return rc;
}

int store_corrupt(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		  const struct chunk_block *b)
{
	metric_add(&s->metrics->corrupt, 1);
	log_error(
		"inode=%llu gen=%u chunk=%llu block=%u target=%u extent=%llu+%u: stored data does "
		"not match its checksum",
		(unsigned long long)id->ino.v, id->gen, (unsigned long long)id->idx, index,
		s->super.target, (unsigned long long)block_file_off(b), b->stored_len);
	return -LE_CORRUPT;
}

int store_data_write(struct chunk_store *s, const struct iovec *iov, int n_iov, uint64_t off)
{
	int rc = env_file_pwritev(s->data.f, iov, n_iov, off);

	/* A quota of the server's own user, to the writer no other thing than a full disk. */
	if (rc == -LE_DQUOT)
		rc = -LE_NOSPC;
	if (rc < 0 && rc != -LE_NOSPC)
		group_commit_fail(&s->gc, rc, "a write to the data file");
	return rc;
}

static int pread_block(struct chunk_store *s, const struct chunk_block *b, uint8_t *buf)
{
	return env_file_pread(s->data.f, buf, (size_t)block_units(b) * UNIT_SIZE,
			      block_file_off(b));
}

int store_stored_read(struct chunk_store *s, const struct chunk_key *id,
		      const struct chunk_record *rec, uint32_t index, uint8_t *buf)
{
	const struct chunk_block *b = &rec->blocks[index];

	TRY(pread_block(s, b, buf));
	return chunk_block_good(b, buf) ? 0 : store_corrupt(s, id, index, b);
}

int store_block_unpack(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		       const struct chunk_block *b, uint8_t *buf)
{
	if (b->flags & BLOCK_LZ4) {
		if (!chunk_block_good(b, buf))
			return store_corrupt(s, id, index, b);
		payload_copy(s->block, buf, b->stored_len);
		if (decompress_block(s->block, b->stored_len, buf, b->len) < 0)
			return store_corrupt(s, id, index, b);
		metric_add(&s->metrics->unpacks, 1);
	}
	return checksum64(buf, b->len) == b->sum ? 0 : store_corrupt(s, id, index, b);
}

int store_block_read(struct chunk_store *s, const struct chunk_key *id,
		     const struct chunk_record *rec, uint32_t index, uint8_t *buf)
{
	TRY(pread_block(s, &rec->blocks[index], buf));
	return store_block_unpack(s, id, index, &rec->blocks[index], buf);
}

/* ---- transactions ---- */

/* Gives back what old holds and rec does not. */
static void free_difference(struct chunk_store *s, const struct chunk_record *old,
			    const struct chunk_record *rec)
{
	for (uint32_t i = 0; old && i < old->n_blocks; i++) {
		const struct chunk_block *o = &old->blocks[i];
		const struct chunk_block *n = rec && i < rec->n_blocks ? &rec->blocks[i] : NULL;
		uint32_t keep = n && n->len && n->unit == o->unit ? block_units(n) : 0;

		if (o->len && block_units(o) > keep)
			space_free(&s->space, o->unit + keep, block_units(o) - keep);
	}
}

/* It is what the index holds now. */
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
	list_remove(&tx->under_way);
	free_difference(s, tx->old, tx->rec);
	show_committed(tx);
}

static void tx_failed(struct commit_member *m)
{
	struct chunk_tx *tx = container_of(m, struct chunk_tx, member);

	if (tx->held)
		tx->held(tx, -LE_IO);
	else
		list_remove(&tx->under_way);
}

static void tx_end(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;

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
	TRY(ledger_need(&s->ledger, id->chain));
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
		tx->lost = chunk_store_lost(s, id) == LEDGER_LOST;
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

/* The group behind which the write may go; 0: nothing is in its way. */
static uint64_t in_the_way(const struct chunk_ent *e, const struct chunk_write *w)
{
	for (const struct list *l = e->under_way.prev; l != &e->under_way; l = l->prev) {
		const struct chunk_tx *tx = list_entry(l, struct chunk_tx, under_way);

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
		group_commit_hurry(&s->gc);
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
	rec->mtime_ns = env_wall_ns(s->env);
	if (old && rec->mtime_ns < old->mtime_ns)
		rec->mtime_ns = old->mtime_ns;
	rec->end = old ? old->end : 0;
	rec->chunk_size = chunk_size;
	rec->block_size = chunk_block_size(chunk_size);
	tx->rec = rec;
	return 0;
}

/* had: there is a row. */
static void put_row(struct chunk_store *s, const struct chunk_key *id, bool had,
		    const struct chunk_record *rec)
{
	struct kv_batch *b = group_commit_batch(&s->gc);
	uint8_t key[CHUNK_ROW_SIZE];

	chunk_row_encode(ROW_CHUNK, id, key);
	if (rec)
		kv_batch_put(b, key, sizeof(key), s->scratch,
			     chunk_record_encode(id, rec, s->scratch));
	else
		kv_batch_delete(b, key, sizeof(key));
	if (rec && !had)
		ledger_add(&s->ledger, id, b);
	else if (had && !rec)
		ledger_remove(&s->ledger, id, b);
}

/* had: there is a row. That its chunk is lost takes its place. */
static void put_lost(struct chunk_store *s, const struct chunk_key *id, bool had)
{
	struct kv_batch *b = group_commit_batch(&s->gc);
	uint8_t key[CHUNK_ROW_SIZE], value[CHUNK_LOST_SIZE];

	chunk_row_encode(ROW_CHUNK, id, key);
	chunk_record_encode_lost(id, value);
	kv_batch_put(b, key, sizeof(key), value, sizeof(value));
	if (!had)
		ledger_add(&s->ledger, id, b);
	ledger_marked(&s->ledger, id->chain, 1);
}

static void put_change(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;
	const struct chunk_key *id = &tx->ent->id;

	if (tx->lost && tx->over_row)
		ledger_marked(&s->ledger, id->chain, -1);
	if (tx->lose)
		put_lost(s, id, tx->old || tx->over_row);
	else
		put_row(s, id, tx->old || tx->over_row, tx->rec);
	if (tx->over && !tx->over_row && !tx->rec && !tx->lose)
		ledger_forget(&s->ledger, id, group_commit_batch(&s->gc));
}

void chunk_tx_join(struct chunk_tx *tx)
{
	struct chunk_store *s = tx->s;

	ASSERT(tx->locked && !(tx->lose && tx->rec));
	put_change(tx);
	chunk_ent_set_pending(&s->cache, tx->ent, chunk_record_ref(tx->rec));
	tx->group = tx->lazy ? group_commit_join_lazy(&s->gc, &tx->member, tx->data)
			     : group_commit_join(&s->gc, &tx->member, tx->data);
	if (!tx->held)
		list_push(&tx->ent->under_way, &tx->under_way);
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

/* Gives [start, start + n) to the blocks from *at on, returns what does not fit a whole block. */
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

/* All or none, without a yield; whole_only: in one run. */
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
			/* The file system below is full: this is all there is. */
			s->data.capacity = s->data.size;
			s->space.alloc.n_units = s->data.size / UNIT_SIZE;
		}
		extent_alloc_grow(&s->space.alloc, s->data.size / UNIT_SIZE);
	}
}

/* Lets what others have freed become durable, and so usable. */
static bool wait_for_frees(struct chunk_store *s)
{
	if (s->gc.done + 1 >= s->gc.next_number - (s->gc.open->n == 0))
		return s->space.quarantined > 0 && fiber_sleep_us(1000) == 0;
	group_commit_hurry(&s->gc);
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

/* ---- zeroing ahead ---- */

static bool may_zero(const struct chunk_store *s)
{
	uint64_t high = s->space.alloc.high * UNIT_SIZE;

	return s->n_writing == 0 && s->data.size < s->data.capacity &&
	       s->data.size - (high < s->data.size ? high : s->data.size) < s->p->zero_ahead &&
	       env_now_us(s->env) - s->last_write_us > ZERO_IDLE_US && chunk_store_status(s) == 0;
}

static void zero_fiber(void *arg)
{
	struct chunk_store *s = arg;
	uint64_t unsynced = 0;
	int rc = 0;

	while (!s->stopping && rc == 0) {
		bool more = may_zero(s);

		if (more) {
			rc = data_file_zero(&s->data, s->zero->data, ZERO_STEP);
			extent_alloc_grow(&s->space.alloc, s->data.size / UNIT_SIZE);
			unsynced += ZERO_STEP;
		}
		if (rc == 0 && unsynced && s->p->sync &&
		    (unsynced >= ZERO_SYNC_EVERY || (!more && s->n_writing == 0))) {
			/* With a group: the kernel tells only one sync that data could not be
			 * written, and that of the next group would succeed without its data. */
			rc = group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, true));
			unsynced = 0;
		}
		if (!more && fiber_sleep_us(100000) < 0)
			break;
	}
	if (rc < 0)
		log_warn("zeroing ahead has ended: %s", status_text(rc));
	latch_done(&s->fibers);
}

/* ---- start ---- */

int store_super_check(const struct wire_r *r, const struct store_super *super, const char *dir)
{
	if (r->status == 0 && super->format == STORE_FORMAT)
		return 0;
	log_error("%s: another release of Leat has made this store (format %u, this one knows "
		  "%u). It is left as it is: go on with that release; or copy the files out with "
		  "it, make new stores (leat-mds format, leat-ossd format) and copy them back",
		  dir, super->format, STORE_FORMAT);
	return -LE_STORE_FORMAT;
}

static int load_super(struct chunk_store *s)
{
	struct kv_value v;
	struct wire_r r;
	int rc = kv_get(s->kv, SUPER_KEY, SUPER_KEY_SIZE, &v);

	if (rc < 0)
		return rc == -LE_NOENT ? -LE_STORE_FORMAT : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_store_super(&r, &s->super);
	kv_value_fini(&v);
	TRY(store_super_check(&r, &s->super, s->p->data_dir));
	rc = kv_get(s->kv, COMMITS_KEY, COMMITS_KEY_SIZE, &v);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_u64(&r, &s->commits);
	s->commits_next = s->commits;
	kv_value_fini(&v);
	return r.status < 0 ? -LE_STORE_FORMAT : 0;
}

static void commit_before(void *arg, struct kv_batch *b)
{
	struct chunk_store *s = arg;
	uint8_t buf[8];
	struct wire_w w;

	s->commits_next++;
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u64(&w, &s->commits_next);
	kv_batch_put(b, COMMITS_KEY, COMMITS_KEY_SIZE, buf, sizeof(buf));
}

static void commit_after(void *arg)
{
	struct chunk_store *s = arg;

	s->commits = s->commits_next;
}

static int start_fibers(struct chunk_store *s)
{
	struct group_commit_options g = {
		.env = s->env,
		.kv = s->kv,
		.data = s->data.f,
		.sync = s->p->sync,
		.metrics = s->metrics,
		.arg = s,
		.before = commit_before,
		.after = commit_after,
	};

	TRY(group_commit_start(&s->gc, &g));
	if (!s->p->zero_ahead)
		return 0;
	latch_add(&s->fibers, 1);
	if (fiber_spawn("zero-ahead", zero_fiber, s) < 0)
		latch_done(&s->fibers);
	return 0;
}

static int open_pools(struct chunk_store *s)
{
	TRY(slot_pool_create(OSSD_SLOT_SIZE, s->p->read_slots + 1, &s->read_pool));
	TRY(slot_pool_create(OSSD_SMALL_SLOT_SIZE, s->p->small_slots, &s->small_pool));
	TRY(slot_pool_create(OSSD_SLOT_SIZE, s->p->merge_slots, &s->merge_pool));
	s->zero = slot_try_get(s->read_pool);
	return s->zero ? 0 : -LE_NOMEM;
}

/* 0: there is none. */
static int get_leased(struct chunk_store *s, uint64_t *ret_session)
{
	struct kv_value v;
	struct wire_r r;
	int rc = kv_get(s->kv, LEASED_KEY, LEASED_KEY_SIZE, &v);

	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_u64(&r, ret_session);
	kv_value_fini(&v);
	return r.status < 0 ? -LE_CORRUPT_STORE : 0;
}

/* What the last server has left, if it was ended in order: not so any more from now on. */
static int begin_use(struct chunk_store *s)
{
	struct kv_batch *b;
	struct kv_value v;
	int rc;

	TRY(get_leased(s, &s->leased));
	s->leased_before = s->leased;
	s->leased_until_us = env_now_us(s->env) + CHUNK_LEASE_MS * 1000u;
	rc = kv_get(s->kv, ENDED_KEY, ENDED_KEY_SIZE, &v);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	kv_value_fini(&v);
	writers_all_returned(&s->writers);
	b = kv_batch_create();
	if (!b)
		return -LE_NOMEM;
	kv_batch_delete(b, ENDED_KEY, ENDED_KEY_SIZE);
	rc = kv_commit(s->kv, b, s->p->sync);
	kv_batch_destroy(b);
	return rc;
}

static int open_files(struct chunk_store *s)
{
	struct kv_options ko = {
		.cache_size = s->p->kv_cache_size,
		.write_buffer_size = s->p->kv_write_buffer_size,
		.no_sync = !s->p->sync,
	};
	char path[STORE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/index", s->p->data_dir);
	TRY(kv_open(s->env, path, &ko, &s->kv));
	TRY(load_super(s));
	snprintf(path, sizeof(path), "%s/data", s->p->data_dir);
	TRY(data_file_open(s->env, path, s->super.capacity, &s->super.uuid, &s->data));
	TRY(space_init(&s->space, s->data.capacity / UNIT_SIZE, s->data.size / UNIT_SIZE,
		       s->p->reserve, s->p->grant_max));
	if (s->data.device)
		TRY(extent_take(&s->space.alloc, 0, DATA_LABEL_UNITS));
	TRY(store_load_index(s));
	return begin_use(s);
}

static void store_free(struct chunk_store *s)
{
	slot_unref(s->zero);
	if (s->read_pool)
		slot_pool_destroy(s->read_pool);
	if (s->small_pool)
		slot_pool_destroy(s->small_pool);
	if (s->merge_pool)
		slot_pool_destroy(s->merge_pool);
	if (s->space.ring)
		space_fini(&s->space);
	chunk_cache_fini(&s->cache);
	replay_fini(&s->replay);
	writers_fini(&s->writers);
	ledger_fini(&s->ledger);
	data_file_close(&s->data);
	if (s->kv)
		kv_close(s->kv);
	free(s);
}

int chunk_store_open(struct env *env, const struct ossd_params *p, struct ossd_metrics *m,
		     struct chunk_store **ret_store)
{
	struct chunk_store *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -LE_NOMEM;
	s->env = env;
	s->p = p;
	s->metrics = m;
	chunk_cache_init(&s->cache, p->cache_size);
	replay_init(&s->replay, p->replay_rows_max);
	writers_init(&s->writers);
	ledger_init(&s->ledger);
	fmutex_init(&s->many_slots);
	fmutex_init(&s->leasing);
	latch_init(&s->fibers, 0);
	rc = open_pools(s);
	if (rc == 0)
		rc = open_files(s);
	if (rc == 0)
		rc = start_fibers(s);
	if (rc < 0) {
		store_free(s);
		return rc;
	}
	s->last_write_us = env_now_us(env);
	chunk_store_gauges(s);
	*ret_store = s;
	return 0;
}

/* Everything that anybody has seen is durable, unless what is gone with an earlier server has not
 * been repeated yet. Without that row the next server takes longer to begin. */
static void end_use(struct chunk_store *s)
{
	struct kv_batch *b;

	if (chunk_store_status(s) < 0 || s->writers.n_awaited)
		return;
	b = kv_batch_create();
	if (!b)
		return;
	kv_batch_put(b, ENDED_KEY, ENDED_KEY_SIZE, "", 0);
	if (env_now_us(s->env) >= s->leased_until_us)
		kv_batch_delete(b, LEASED_KEY, LEASED_KEY_SIZE);
	if (kv_commit(s->kv, b, s->p->sync) < 0)
		log_warn("target %u: the end of its use could not be noted", s->super.target);
	kv_batch_destroy(b);
}

void chunk_store_close(struct chunk_store *s)
{
	s->stopping = true;
	latch_wait(&s->fibers);
	group_commit_stop(&s->gc);
	end_use(s);
	store_free(s);
}

int chunk_store_set_owner(struct chunk_store *s, const struct uuid *cluster, uint32_t target)
{
	struct store_super super = s->super;
	uint8_t buf[SUPER_MAX];
	struct wire_w w;
	uint64_t group;

	TRY(chunk_store_status(s));
	super.cluster = *cluster;
	super.target = target;
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_store_super(&w, &super);
	kv_batch_put(group_commit_batch(&s->gc), SUPER_KEY, SUPER_KEY_SIZE, buf, w.len);
	group = group_commit_join(&s->gc, NULL, false);
	TRY(group_commit_wait(&s->gc, group));
	s->super = super;
	return 0;
}

int chunk_store_status(const struct chunk_store *s)
{
	return s->gc.status < 0 ? -LE_IO : 0;
}

static int put_leased(struct chunk_store *s, uint64_t session)
{
	struct group_commit *g = &s->gc;
	uint8_t buf[8];
	struct wire_w w;

	TRY(chunk_store_status(s));
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u64(&w, &session);
	kv_batch_put(group_commit_batch(g), LEASED_KEY, LEASED_KEY_SIZE, buf, w.len);
	TRY(group_commit_wait(g, group_commit_join(g, NULL, false)));
	s->leased = session;
	return 0;
}

int chunk_store_leased(struct chunk_store *s, uint64_t session, uint64_t until_us)
{
	int rc = 0;

	s->leased_until_us = until_us;
	if (s->leased == session || s->leased == LEASED_MANY)
		return 0;
	fmutex_lock(&s->leasing);
	if (s->leased != session && s->leased != LEASED_MANY)
		rc = put_leased(s, s->leased == 0 ? session : LEASED_MANY);
	fmutex_unlock(&s->leasing);
	return rc;
}

void chunk_store_gauges(struct chunk_store *s)
{
	struct ossd_metrics *m = s->metrics;

	metric_set(&m->cache_bytes, s->cache.bytes);
	metric_set(&m->capacity_bytes, space_total(&s->space));
	metric_set(&m->used_bytes, space_used(&s->space));
	metric_set(&m->free_bytes, space_usable(&s->space));
	metric_set(&m->granted_bytes, s->space.granted);
	metric_set(&m->zeroed_bytes, s->data.size);
}
