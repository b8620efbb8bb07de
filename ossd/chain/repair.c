/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair of a block: read → wrong checksum → fetch the same block of the same version from another
 * SYNC member → write it to a new extent. The record keeps its version. As nothing else changes,
 * readers and members are not notified. If no member has a good block, it stays damaged.
 */
#include "ossd/chain/repair.h"

#include "common/base/log.h"
#include "ossd/chain/receive.h"
#include "ossd/chunk/chunk_copy.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/store_record.h"

struct at_work {
	struct list link;
	struct chunk_key key;
	struct waitq ended;
	uint32_t waiting;
	bool done;
};

/* ---- finding damage ---- */

static uint32_t check_part(const struct chunk_record *rec, const struct slot *slot,
			   const struct chunk_part *part, struct chunk_mask *bad)
{
	const uint8_t *p = slot->data;
	uint32_t n = 0;

	for (uint32_t i = part->first; i < part->next; i++) {
		const struct chunk_block *b = &rec->blocks[i];

		if (b->len && !chunk_block_good(b, p)) {
			chunk_mask_set(bad, i);
			n++;
		}
		p += (size_t)block_units(b) * UNIT_SIZE;
	}
	return n;
}

/* Reads one block of a disk area that cannot be read as a whole. */
static int read_single(struct maintenance *k, const struct chunk_key *key,
		       const struct chunk_record *rec, struct slot *slot, struct chunk_part *part,
		       struct chunk_mask *bad)
{
	uint32_t i = part->first;
	struct chunk_record *one;

	while (i < rec->n_blocks && !rec->blocks[i].len)
		i++;
	part->next = i < rec->n_blocks ? i + 1 : i;
	part->len = 0;
	if (i == rec->n_blocks)
		return 0;
	one = chunk_record_create(&k->s->cache, i + 1, 0);
	if (!one)
		return -LE_NOMEM;
	memset(one->blocks, 0, (i + 1) * sizeof(one->blocks[0]));
	one->blocks[i] = rec->blocks[i];
	if (chunk_part_read(k->s, key, one, slot, part) < 0)
		chunk_mask_set(bad, i);
	chunk_record_unref(&k->s->cache, one);
	return 0;
}

static int check_parts(struct maintenance *k, const struct chunk_key *key,
		       const struct chunk_record *rec, struct slot *slot, struct chunk_mask *bad,
		       struct repair *ret)
{
	struct chunk_part part = {0};
	int rc = 0;

	while (part.first < rec->n_blocks && rc == 0) {
		rc = chunk_part_read(k->s, key, rec, slot, &part);
		if (rc == -LE_IO)
			rc = read_single(k, key, rec, slot, &part, bad);
		if (rc == 0)
			ret->found += check_part(rec, slot, &part, bad);
		ret->bytes += part.len;
		part.first = part.next;
	}
	return rc;
}

/* Checks all blocks. *ret_rec: the record, with a reference for the caller; NULL: no chunk, or
 * with -LE_CORRUPT: it cannot be read. One pin covers the record and all its blocks: extents that
 * a write frees meanwhile would be reused. The slot is taken before, as waiting for it may be
 * long. */
static int find_damage(struct maintenance *k, const struct chunk_key *key,
		       struct chunk_record **ret_rec, struct chunk_mask *bad, struct repair *ret)
{
	struct read_pin pin;
	struct slot *slot;
	int rc;

	TRY(slot_get(k->copies, fiber_deadline(), &slot));
	rc = chunk_store_record(k->s, key, ret_rec);
	if (rc == 0 && *ret_rec) {
		read_pin_begin(&k->s->space, &pin);
		rc = check_parts(k, key, *ret_rec, slot, bad, ret);
		read_pin_end(&k->s->space, &pin);
	}
	slot_unref(slot);
	return rc;
}

/* ---- replacing blocks ---- */

/* Replaces damaged blocks by good ones of a part from another member. */
static int use_part(struct fetched *f, struct chunk_tx *tx, struct chunk_mask *bad, uint32_t *n)
{
	const uint8_t *p = f->slot->data;

	for (uint32_t i = f->part.first; i < f->part.next; i++) {
		const struct chunk_block *b = &f->rec->blocks[i];

		if (b->len && chunk_mask_has(bad, i) && i < tx->rec->n_blocks &&
		    chunk_block_good(b, p)) {
			TRY(chunk_block_replace(tx, i, b, p));
			bad->w[i / 64] &= ~(1ULL << (i % 64));
			(*n)++;
		}
		p += (size_t)block_units(b) * UNIT_SIZE;
	}
	return 0;
}

static uint32_t first_bad(const struct chunk_mask *bad, uint32_t n_blocks)
{
	uint32_t i = 0;

	while (i < n_blocks && !chunk_mask_has(bad, i))
		i++;
	return i;
}

static bool try_member(struct maintenance *k, struct chain *c, uint32_t target, struct chunk_tx *tx,
		       struct chunk_mask *bad, uint32_t *n)
{
	struct chunk_key key = tx->ent->id;
	struct chunk_mask left = *bad;
	uint32_t i;

	while ((i = first_bad(&left, tx->rec->n_blocks)) < tx->rec->n_blocks) {
		struct fetched f = {0};
		struct part_at at = {&key, tx->rec->version, i};
		int rc = fetch_part(k, c, target, &at, &f);

		if (rc == 0)
			rc = use_part(&f, tx, bad, n);
		for (uint32_t b = i; rc == 0 && b < f.part.next; b++)
			left.w[b / 64] &= ~(1ULL << (b % 64));
		fetch_free(k, &f);
		if (rc < 0)
			return false;
	}
	return first_bad(bad, tx->rec->n_blocks) == tx->rec->n_blocks;
}

/* Blocks that no member has intact stay as they are. */
static int replace(struct maintenance *k, struct chain *c, const struct chunk_key *key,
		   uint64_t version, struct chunk_mask *bad, uint32_t *ret_n)
{
	struct chunk_tx tx;
	uint32_t n = 0;
	int rc;

	TRY(chunk_repair_begin(k->s, key, version, &tx));
	for (uint32_t i = 0; i < c->n_sync; i++)
		if (i != c->self && try_member(k, c, c->members[i].target, &tx, bad, &n))
			break;
	if (n == 0) {
		chunk_tx_abort(&tx);
		return -LE_CORRUPT;
	}
	chunk_tx_join(&tx);
	rc = chunk_tx_wait(&tx);
	if (rc == 0)
		*ret_n = n;
	return rc;
}

static void report(const struct maintenance *k, const struct chunk_key *key, const struct repair *r,
		   int status)
{
	const char *text = r->repaired == r->found ? "repaired" : status_text(status);

	log_error("chain=%u inode=%llu gen=%u chunk=%llu target=%u: %u damaged blocks, %u of them "
		  "replaced from other members: %s",
		  key->chain, (unsigned long long)key->ino.v, key->gen,
		  (unsigned long long)key->idx, k->chains->target, r->found, r->repaired, text);
}

static int repair_blocks(struct maintenance *k, const struct chunk_key *key, uint64_t version,
			 struct chunk_mask *bad, struct repair *ret)
{
	struct chain *c = chain_find(k->chains, key->chain);
	int rc = -LE_CORRUPT;

	metric_add(&k->metrics->corrupt, ret->found);
	if (c && chain_others_sync(c) > 0)
		rc = replace(k, c, key, version, bad, &ret->repaired);
	if (rc == 0 && ret->repaired < ret->found)
		rc = -LE_CORRUPT;
	metric_add(&k->metrics->repaired, ret->repaired);
	report(k, key, ret, rc);
	return rc;
}

/* ---- unreadable records ---- */

/* Requests what the member has committed of the chunk; pending versions are forwarded anyway.
 * Returns 0, 1: there is no such chunk, or 2: it is lost there too. */
static int ask_member(struct maintenance *k, struct chain *c, uint32_t target,
		      const struct chunk_key *key, struct oss_resync_chunk_req *ret_req)
{
	struct version_state st = {0};
	struct fetched f = {0};

	TRY(member_state(c, target, key, &st));
	if (st.newest == VERSION_LOST)
		return 2;
	if (st.committed == 0) /* for a new chunk: the member may not have been notified of its
	                        * commit */
		return st.newest ? -LE_NOT_READY : 1;
	TRY(fetch_part(k, c, target, &(struct part_at){key, st.committed, 0}, &f));
	*ret_req = (struct oss_resync_chunk_req){chunk_key_id(key), st.committed,
						 chunk_record_sum(f.rec), target};
	fetch_free(k, &f);
	return 0;
}

/* Removes an unreadable chunk because another member has certainly none: it was removed, or never
 * existed. -LE_STALE: it was written meanwhile, or the epoch has changed. */
static int remove_unread(struct maintenance *k, const struct chain *c, const struct chunk_key *key,
			 uint32_t epoch)
{
	struct chunk_tx tx;

	TRY(chunk_hold_over(k->s, key, fiber_deadline(), &tx));
	if (!tx.over || c->epoch != epoch) {
		chunk_release(&tx);
		return -LE_STALE;
	}
	tx.changes = true;
	chunk_tx_join(&tx);
	return chunk_tx_wait(&tx);
}

static int replace_record(struct maintenance *k, const struct chunk_key *key, struct repair *ret)
{
	enum inventory_answer answer = chunk_store_lost(k->s, key);
	struct chain *c = chain_find(k->chains, key->chain);
	uint32_t epoch = c ? c->epoch : 0, n_without = 0;
	int rc = -LE_CORRUPT;

	for (uint32_t i = 0; c && i < c->n_sync && rc != 0 && rc != -LE_STALE; i++) {
		struct oss_resync_chunk_req req;
		struct oss_resync_chunk_rep rep = {0};

		if (i == c->self)
			continue;
		rc = ask_member(k, c, c->members[i].target, key, &req);
		n_without += rc > 0;
		/* nor does this member have it */
		if (rc == 2 || (rc == 1 && answer == INVENTORY_LOST))
			rc = -LE_CORRUPT;
		else if (rc == 1)
			rc = remove_unread(k, c, key, epoch);
		else if (rc == 0)
			rc = receive_chunk(k, c, &req, &rep);
	}
	ret->nobody = rc == -LE_CORRUPT && c && c->epoch == epoch &&
		      n_without == chain_others_sync(c);
	ret->nowhere = ret->nobody && c->n_sync == c->n_members;
	log_error("chain=%u inode=%llu gen=%u chunk=%llu target=%u: %s: %s", key->chain,
		  (unsigned long long)key->ino.v, key->gen, (unsigned long long)key->idx,
		  k->chains->target,
		  answer == INVENTORY_LOST     ? "it is lost here"
		  : answer == INVENTORY_UNSURE ? "it may be lost here"
					    : "its record is damaged",
		  rc == 0       ? "the chunk was copied from another member"
		  : ret->nobody ? "no other member has it"
				: status_text(rc));
	return rc;
}

/* ---- one repair per chunk at a time ---- */

static struct at_work *work_find(const struct maintenance *k, const struct chunk_key *key)
{
	list_for_each (l, &k->repairing) {
		struct at_work *w = list_entry(l, struct at_work, link);

		if (chunk_key_equal(&w->key, key))
			return w;
	}
	return NULL;
}

static int wait_for(struct at_work *w)
{
	int rc = 0;

	w->waiting++;
	while (!w->done && rc == 0)
		rc = waitq_wait(&w->ended, fiber_deadline());
	w->waiting--;
	waitq_wake_all(&w->ended);
	return rc < 0 ? rc : -LE_BUSY;
}

static int repair_without_record(struct maintenance *k, const struct chunk_key *key,
				 struct repair *ret)
{
	int rc = replace_record(k, key, ret);

	ret->found = 1;
	ret->repaired = rc == 0;
	metric_add(&k->metrics->repaired, ret->repaired);
	return rc;
}

int repair_chunk(struct maintenance *k, const struct chunk_key *key, struct repair *ret)
{
	struct at_work w = {.key = *key}, *other = work_find(k, key);
	struct chunk_record *rec = NULL;
	struct chunk_mask bad = {0};
	int rc;

	*ret = (struct repair){0};
	if (other)
		return wait_for(other);
	waitq_init(&w.ended);
	list_push(&k->repairing, &w.link);
	rc = find_damage(k, key, &rec, &bad, ret);
	if (rc == 0 && ret->found)
		rc = repair_blocks(k, key, rec->version, &bad, ret);
	else if (rc == -LE_CORRUPT && !rec)
		rc = repair_without_record(k, key, ret);
	k->damage_seen += ret->found;
	chunk_record_unref(&k->s->cache, rec);
	list_remove(&w.link);
	w.done = true;
	waitq_wake_all(&w.ended);
	while (w.waiting) {
		int wait = waitq_wait(&w.ended, NO_DEADLINE);
		(void)wait;
	}
	return rc;
}
