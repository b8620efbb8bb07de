/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/chunk_copy.h"

#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/store_block.h"
#include "ossd/chunk/store_record.h"


#define QUIET_POLL_US  300u
#define QUIET_POLLS    100u
#define QUIET_PAUSE_US 5000u

/* ---- source ---- */

/* Waits until no change is pending. Under the lock no new change joins, so the pending ones are
 * soon committed. But aborting one needs the lock: returns 1 if that may be the case. */
static int wait_quiet(struct chunk_store *s, struct chunk_ent *e)
{
	for (uint32_t i = 0; e->n_pend; i++) {
		TRY(chunk_store_status(s));
		if (i == QUIET_POLLS)
			return 1;
		group_commit_expedite(&s->gc);
		TRY(fiber_sleep_us(QUIET_POLL_US));
	}
	return 0;
}

static int hold(struct chunk_store *s, const struct chunk_key *k, uint64_t deadline_us, bool over,
		struct chunk_tx *tx)
{
	int rc;

	for (;;) {
		TRY(over ? chunk_tx_begin_over(s, k, tx) : chunk_tx_begin(s, k, tx));
		rc = wait_quiet(s, tx->ent);
		if (rc == 0 && !tx->over)
			rc = store_ent_load(s, tx->ent);
		if (rc == 0)
			break;
		chunk_tx_cancel(tx);
		TRY(rc);
		if (env_now_us(s->env) >= deadline_us)
			return -LE_TIMEDOUT;
		TRY(fiber_sleep_us(QUIET_PAUSE_US));
	}
	chunk_record_unref(&s->cache, tx->old);
	tx->old = chunk_record_ref(chunk_ent_newest(tx->ent));
	return 0;
}

int chunk_hold(struct chunk_store *s, const struct chunk_key *k, uint64_t deadline_us,
	       struct chunk_tx *tx)
{
	return hold(s, k, deadline_us, false, tx);
}

int chunk_hold_over(struct chunk_store *s, const struct chunk_key *k, uint64_t deadline_us,
		    struct chunk_tx *tx)
{
	return hold(s, k, deadline_us, true, tx);
}

void chunk_release(struct chunk_tx *tx)
{
	chunk_tx_cancel(tx);
}

static uint32_t padded(const struct chunk_block *b)
{
	return block_units(b) * UNIT_SIZE;
}

/* A range that the file does not have reads as zeros, and fails its checksum where that matters. */
static int read_run(struct chunk_store *s, uint8_t *buf, uint32_t len, uint64_t off)
{
	int rc = env_file_pread(s->data.f, buf, len, off);

	if (rc == -LE_NODATA) {
		memset(buf, 0, len);
		return 0;
	}
	return rc;
}

int chunk_part_read(struct chunk_store *s, const struct chunk_key *k,
		    const struct chunk_record *rec, struct slot *slot, struct chunk_part *part)
{
	uint32_t i = part->first, run = 0, begin = 0;
	uint64_t run_off = 0;

	(void)k;
	part->len = 0;
	for (; i < rec->n_blocks; i++) {
		const struct chunk_block *b = &rec->blocks[i];

		if (!b->len)
			continue;
		if (part->len + padded(b) > slot->size)
			break;
		if (run && run_off + run != block_file_off(b)) {
			TRY(read_run(s, slot->data + begin, run, run_off));
			run = 0;
		}
		if (!run) {
			run_off = block_file_off(b);
			begin = part->len;
		}
		run += padded(b);
		part->len += padded(b);
	}
	if (run)
		TRY(read_run(s, slot->data + begin, run, run_off));
	part->next = i;
	return 0;
}

/* ---- destination ---- */

static int allocate(struct chunk_tx *tx)
{
	struct alloc_request a = {0};
	uint32_t take = 0, give = 0;

	for (uint32_t i = 0; tx->old && i < tx->old->n_blocks; i++)
		if (tx->old->blocks[i].len)
			give += block_units(&tx->old->blocks[i]);
	for (uint32_t i = 0; i < tx->rec->n_blocks; i++)
		if (tx->rec->blocks[i].flags & BLOCK_FRESH)
			take += block_units(&tx->rec->blocks[i]);
	if (!take)
		return 0;
	a.last = tx->rec->n_blocks - 1;
	a.growth = take > give ? take - give : 0;
	a.len = take * UNIT_SIZE;
	return tx_allocate(tx, &a);
}

int chunk_copy_begin(struct chunk_store *s, const struct chunk_key *k,
		     const struct chunk_record *as, struct chunk_tx *tx)
{
	struct chunk_record *rec;
	int rc;

	TRY(chunk_hold_over(s, k, fiber_deadline(), tx));
	rec = chunk_record_create(&s->cache, as->n_blocks, as->n_gaps);
	if (!rec) {
		chunk_release(tx);
		return -LE_NOMEM;
	}
	rec->version = as->version;
	rec->mtime_ns = as->mtime_ns;
	rec->end = as->end;
	rec->chunk_size = as->chunk_size;
	rec->block_size = as->block_size;
	memcpy(rec->blocks, as->blocks, as->n_blocks * sizeof(rec->blocks[0]));
	memcpy(chunk_record_gaps(rec), chunk_record_gaps(as),
	       as->n_gaps * sizeof(struct chunk_gap));
	for (uint32_t i = 0; i < rec->n_blocks; i++)
		if (rec->blocks[i].len)
			rec->blocks[i].flags |= BLOCK_FRESH;
	tx->rec = rec;
	rc = allocate(tx);
	if (rc < 0) {
		chunk_tx_abort(tx);
		return rc;
	}
	tx->changes = true;
	return 0;
}

static int write_run(struct chunk_tx *tx, uint8_t *buf, uint32_t len, uint64_t off)
{
	struct iovec iov = {buf, len};

	tx->data = true;
	return store_data_write(tx->s, &iov, 1, off);
}

int chunk_part_write(struct chunk_tx *tx, const struct slot *slot, const struct chunk_part *part)
{
	uint32_t pos = 0, run = 0, begin = 0;
	uint64_t run_off = 0;

	for (uint32_t i = part->first; i < part->next; i++) {
		const struct chunk_block *b = &tx->rec->blocks[i];

		if (!b->len)
			continue;
		if (pos + padded(b) > part->len)
			return -LE_BAD_MESSAGE;
		if (run && run_off + run != block_file_off(b)) {
			TRY(write_run(tx, slot->data + begin, run, run_off));
			run = 0;
		}
		if (!run) {
			run_off = block_file_off(b);
			begin = pos;
		}
		run += padded(b);
		pos += padded(b);
	}
	if (pos != part->len)
		return -LE_BAD_MESSAGE;
	return run ? write_run(tx, slot->data + begin, run, run_off) : 0;
}

/* If the record could not be read, its extents are unknown: the next start frees them. */
int chunk_copy_remove(struct chunk_store *s, const struct chunk_key *k,
		      bool (*may)(void *arg, const struct chunk_key *k), void *arg)
{
	struct chunk_tx tx;

	TRY(chunk_hold_over(s, k, fiber_deadline(), &tx));
	if (!tx.old && !tx.over) {
		chunk_release(&tx);
		return 0;
	}
	if (may && !may(arg, k)) {
		bool damaged = tx.over;

		chunk_release(&tx);
		return damaged ? -LE_CORRUPT : -LE_CANCELED;
	}
	tx.changes = true;
	chunk_tx_join(&tx);
	TRY(chunk_tx_wait(&tx));
	return 1;
}

int chunk_copy_lose(struct chunk_store *s, const struct chunk_key *k,
		    bool (*may)(void *arg, const struct chunk_key *k), void *arg)
{
	struct chunk_tx tx;

	TRY(chunk_hold_over(s, k, fiber_deadline(), &tx));
	if (tx.lost && tx.over_row) {
		chunk_release(&tx);
		return 0;
	}
	if (may && !may(arg, k)) {
		chunk_release(&tx);
		return -LE_CANCELED;
	}
	tx.changes = tx.lose = true;
	chunk_tx_join(&tx);
	TRY(chunk_tx_wait(&tx));
	return 1;
}

int chunk_repair_begin(struct chunk_store *s, const struct chunk_key *k, uint64_t version,
		       struct chunk_tx *tx)
{
	const struct chunk_record *old;
	int rc;

	TRY(chunk_hold(s, k, fiber_deadline(), tx));
	old = tx->old;
	if (!old || old->version != version) {
		chunk_release(tx);
		return -LE_STALE;
	}
	rc = tx_new_record(tx, old->chunk_size, old->n_blocks, NULL);
	if (rc < 0) {
		chunk_release(tx);
		return rc;
	}
	tx->rec->version = old->version;
	tx->rec->mtime_ns = old->mtime_ns;
	tx->changes = true;
	return 0;
}

int chunk_block_replace(struct chunk_tx *tx, uint32_t index, const struct chunk_block *as,
			const void *buf)
{
	struct alloc_request a = {.first = index, .last = index, .privileged = true};
	struct chunk_block *b = &tx->rec->blocks[index], old = *b;
	int rc;

	if (!b->len || as->len != b->len || as->sum != b->sum)
		return -LE_STALE;
	*b = *as;
	b->flags |= BLOCK_FRESH;
	rc = tx_allocate(tx, &a);
	if (rc < 0) {
		*b = old;
		return rc;
	}
	rc = write_run(tx, (uint8_t *)(uintptr_t)buf, padded(b), block_file_off(b));
	if (rc < 0) {
		extent_put(&tx->s->space.alloc, b->unit, block_units(b));
		*b = old;
	}
	return rc;
}
