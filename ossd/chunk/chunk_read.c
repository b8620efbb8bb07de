/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: record from memory or index → pin its extents → one pread per contiguous run, straight
 * into the slots from which the reply is sent → checksums of partial blocks. No lock is taken: the
 * record is immutable, and the pin prevents reuse of its extents.
 *
 * The blocks lie in the slots in order, and the reply begins with the first byte that was
 * requested. A block occupies its plain size, except that a compressed one that is requested as a
 * whole occupies only its stored size. Small reads use small slots. Many small reads of one
 * request share a slot (read_space). A range without data is read from the shared slot of zeros.
 */
#include "ossd/chunk/chunk_read.h"

#include "common/base/checksum.h"
#include "common/base/log.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/store_block.h"
#include "ossd/chunk/store_record.h"

#define RUNS_MAX   32u
#define RUNS_WIDTH 8u
#define REPLACED   1 /* the chunk has another record now: read that one */

struct run {
	struct chunk_store *s;
	uint8_t *buf;
	uint64_t off;
	uint32_t len;
	uint32_t block;
	int rc;
};

struct reader {
	struct chunk_store *s;
	struct chunk_read *r;
	struct chunk_ent *ent;
	struct read_pin pin;
	bool pinned;
	const struct chunk_record *rec;
	uint32_t end;         /* end of the requested range in the chunk */
	uint32_t first, last; /* blocks */
	uint32_t base;        /* offset of the first block in its slot */
	struct run runs[RUNS_MAX];
	uint32_t n_runs;
};

static const struct chunk_block *block_at(const struct reader *rd, uint32_t i)
{
	static const struct chunk_block hole;

	return i < rd->rec->n_blocks ? &rd->rec->blocks[i] : &hole;
}

/* Returns the requested bytes [*ret_fs, *ret_fe) of block i. */
static void block_range(const struct reader *rd, uint32_t i, uint32_t *ret_fs, uint32_t *ret_fe)
{
	uint32_t bs = rd->rec->block_size, begin = i * bs;

	*ret_fs = rd->r->off > begin ? rd->r->off - begin : 0;
	*ret_fe = rd->end - begin < bs ? rd->end - begin : bs;
}

/* True if the block is sent as it is stored, compressed. */
static bool goes_packed(const struct reader *rd, uint32_t i)
{
	const struct chunk_block *b = block_at(rd, i);
	uint32_t fs, fe;

	block_range(rd, i, &fs, &fe);
	return (b->flags & BLOCK_LZ4) && b->len == rd->rec->block_size && fs == 0 && fe == b->len;
}

/* Cursor over the positions of the blocks in the slots. */
struct place {
	uint32_t slot, pos; /* position of the next block */
};

/* Returns the offset of block i in slot *ret_slot, and moves *at after the block. */
static uint32_t place_next(const struct reader *rd, uint32_t i, uint32_t slot_size,
			   struct place *at, uint32_t *ret_slot)
{
	uint32_t room = goes_packed(rd, i) ? block_space(block_at(rd, i)) : rd->rec->block_size;
	uint32_t pos;

	if (at->pos + room > slot_size) {
		at->slot++;
		at->pos = 0;
	}
	pos = at->pos;
	at->pos += room;
	*ret_slot = at->slot;
	return pos;
}

static struct place place_first(const struct reader *rd)
{
	return (struct place){0, rd->base};
}

static uint8_t *block_buf(const struct reader *rd, uint32_t i, struct place *at)
{
	const struct slot_vec *vec = rd->r->vec;
	uint32_t slot, pos = place_next(rd, i, vec[0].slot->size, at, &slot);

	return vec[slot].slot->data + pos;
}

/* The record to read; NULL: no chunk. Call only after store_ent_load. */
static struct chunk_record *seen(const struct reader *rd)
{
	return rd->r->committed ? rd->ent->rec : store_ent_seen(rd->s, rd->ent);
}

/* ---- slots ---- */

static void drop_slots(struct chunk_read *r)
{
	for (uint32_t i = 0; i < r->n_vec; i++)
		slot_unref(r->vec[i].slot);
	r->n_vec = 0;
}

/*
 * Releases the pin before it waits for a slot. The wait may be long, because slots are in use
 * until slow clients have received them, and a pin delays the reuse of freed space.
 */
static int get_slot(struct reader *rd, struct slot_pool *pool, struct slot **ret_slot)
{
	struct slot *slot = slot_try_get(pool);

	if (slot) {
		*ret_slot = slot;
		return 0;
	}
	if (rd->pinned)
		read_pin_end(&rd->s->space, &rd->pin);
	rd->pinned = false;
	return slot_get(pool, fiber_deadline(), ret_slot);
}

/* Fills in vec, without slots, with the parts to send. Returns the number of slots, 0: too many. */
static uint32_t plan_slots(struct reader *rd, uint32_t slot_size)
{
	struct slot_vec *vec = rd->r->vec;
	struct place at = place_first(rd);
	uint32_t n = 0;

	if (slot_size < rd->rec->block_size)
		return 0;
	for (uint32_t i = rd->first; i <= rd->last; i++) {
		uint32_t fs, fe, slot, pos = place_next(rd, i, slot_size, &at, &slot);

		if (slot == CHUNK_READ_VECS)
			return 0;
		block_range(rd, i, &fs, &fe);
		if (slot == n)
			vec[n++] = (struct slot_vec){NULL, pos + fs, 0};
		vec[slot].len += goes_packed(rd, i) ? block_space(block_at(rd, i)) : fe - fs;
	}
	return n;
}

/* Takes space in the shared slot, for all requested blocks. The caller fills in the bytes after
 * the chunk's end. */
static int share_slot(struct reader *rd)
{
	struct chunk_read *r = rd->r;
	struct read_space *room = r->space;
	uint32_t bs = rd->rec->block_size;
	uint64_t len = (((uint64_t)r->off + r->len - 1) / bs - rd->first + 1) * bs;

	if (len > room->slot->size - room->used)
		return -LE_TOO_BIG;
	rd->base = room->used;
	room->used += (uint32_t)len;
	if (plan_slots(rd, room->slot->size) != 1)
		return -LE_TOO_BIG;
	r->vec[0].slot = slot_ref(room->slot);
	r->n_vec = 1;
	return 0;
}

static int get_slots(struct reader *rd)
{
	struct chunk_store *s = rd->s;
	struct chunk_read *r = rd->r;
	struct slot_pool *pool = s->small_pool;
	uint32_t n = plan_slots(rd, slot_pool_size(pool));
	int rc = 0;

	if (n != 1) {
		pool = s->read_pool;
		n = plan_slots(rd, slot_pool_size(pool));
	}
	if (n == 0 || n > slot_pool_total(pool) - 1)
		return -LE_TOO_BIG;
	if (n > 1)
		fmutex_lock(&s->many_slots);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		rc = get_slot(rd, pool, &r->vec[i].slot);
		r->n_vec += rc == 0;
	}
	if (n > 1)
		fmutex_unlock(&s->many_slots);
	if (rc < 0)
		drop_slots(r);
	return rc;
}

static int zero_slots(struct reader *rd)
{
	struct chunk_read *r = rd->r;

	for (uint32_t left = rd->end - r->off; left;) {
		struct slot *z = rd->s->zero;
		uint32_t len = left < z->size ? left : z->size;

		if (r->n_vec == CHUNK_READ_VECS) {
			drop_slots(r);
			return -LE_TOO_BIG;
		}
		r->vec[r->n_vec++] = (struct slot_vec){slot_ref(z), 0, len};
		left -= len;
	}
	return 0;
}

/* ---- disk ---- */

static void run_read(void *arg)
{
	struct run *run = arg;

	run->rc = env_file_pread(run->s->data.f, run->buf, run->len, run->off);
}

static int flush_runs(struct reader *rd)
{
	int rc = 0;

	if (rd->n_runs == 1)
		run_read(&rd->runs[0]);
	else if (rd->n_runs)
		fiber_parallel("read-run", run_read, rd->runs, sizeof(rd->runs[0]), rd->n_runs,
			       RUNS_WIDTH);
	for (uint32_t i = 0; i < rd->n_runs && rc == 0; i++) {
		const struct run *run = &rd->runs[i];

		if (run->rc == -LE_NODATA)
			rc = store_corrupt(rd->s, &rd->r->id, run->block, block_at(rd, run->block));
		else if (run->rc < 0)
			log_error("inode=%llu gen=%u chunk=%llu block=%u target=%u: reading %u "
				  "bytes at %llu: %s",
				  (unsigned long long)rd->r->id.ino.v, rd->r->id.gen,
				  (unsigned long long)rd->r->id.idx, run->block,
				  rd->s->super.target, run->len, (unsigned long long)run->off,
				  status_text(run->rc));
		rc = rc < 0 ? rc : run->rc;
	}
	rd->n_runs = 0;
	return rc;
}

static int read_blocks(struct reader *rd)
{
	struct place at = place_first(rd);

	for (uint32_t i = rd->first; i <= rd->last; i++) {
		const struct chunk_block *b = block_at(rd, i);
		struct run *run = rd->n_runs ? &rd->runs[rd->n_runs - 1] : NULL;
		uint8_t *buf = block_buf(rd, i, &at);
		uint32_t len = block_units(b) * UNIT_SIZE;

		if (!b->len)
			continue;
		if (run && run->buf + run->len == buf && run->off + run->len == block_file_off(b)) {
			run->len += len;
			continue;
		}
		if (rd->n_runs == RUNS_MAX)
			TRY(flush_runs(rd));
		rd->runs[rd->n_runs++] = (struct run){rd->s, buf, block_file_off(b), len, i, 0};
	}
	return flush_runs(rd);
}

/* ---- pieces ---- */

static int add_piece(struct reader *rd, const struct piece *p)
{
	struct chunk_read *r = rd->r;

	if (r->n_pieces == r->n_pieces_max)
		return -LE_TOO_BIG;
	r->pieces[r->n_pieces++] = *p;
	return 0;
}

static int packed_piece(struct reader *rd, uint32_t i, const uint8_t *buf)
{
	const struct chunk_block *b = block_at(rd, i);
	struct piece p = block_piece(b, i * rd->rec->block_size);

	if (rd->r->verify && !chunk_block_good(b, buf))
		return store_corrupt(rd->s, &rd->r->id, i, b);
	return add_piece(rd, &p);
}

/* buf: position of the block; NULL: all blocks are holes. */
static int block_pieces(struct reader *rd, uint32_t i, uint8_t *buf)
{
	const struct chunk_block *b = block_at(rd, i);
	uint32_t begin = i * rd->rec->block_size, fs, fe, data_end;

	block_range(rd, i, &fs, &fe);
	data_end = b->len < fe ? b->len : fe;
	if (goes_packed(rd, i))
		return packed_piece(rd, i, buf);
	if (fs < data_end) {
		bool whole = fs == 0 && data_end == b->len;
		struct piece p = {begin + fs, data_end - fs, data_end - fs, 0, b->sum, 0};

		if (!whole || rd->r->verify || (b->flags & BLOCK_LZ4))
			TRY(store_block_unpack(rd->s, &rd->r->id, i, b, buf));
		if (!whole) {
			p.flags = PIECE_FRAGMENT;
			p.stored_sum = b->sum;
			p.sum = checksum64(buf + fs, data_end - fs);
		}
		TRY(add_piece(rd, &p));
	}
	if (data_end < fs)
		data_end = fs;
	if (data_end < fe) {
		struct piece p = {begin + data_end, fe - data_end, 0, PIECE_HOLE, 0, 0};

		if (buf)
			memset(buf + data_end, 0, fe - data_end);
		TRY(add_piece(rd, &p));
	}
	return 0;
}

static bool has_data(const struct reader *rd)
{
	for (uint32_t i = rd->first; i <= rd->last && i < rd->rec->n_blocks; i++)
		if (rd->rec->blocks[i].len)
			return true;
	return false;
}

static int read_record(struct reader *rd)
{
	struct chunk_read *r = rd->r;
	struct place at;
	bool zeros;
	int rc = 0;

	rd->first = r->off / rd->rec->block_size;
	rd->last = (rd->end - 1) / rd->rec->block_size;
	zeros = !has_data(rd);
	if (zeros)
		TRY(zero_slots(rd));
	else
		TRY(r->space ? share_slot(rd) : get_slots(rd));
	if (!rd->pinned && seen(rd) != rd->rec) {
		drop_slots(r);
		return REPLACED;
	}
	if (!rd->pinned)
		read_pin_begin(&rd->s->space, &rd->pin);
	rd->pinned = true;
	at = place_first(rd);
	if (!zeros)
		rc = read_blocks(rd);
	for (uint32_t i = rd->first; i <= rd->last && rc == 0; i++)
		rc = block_pieces(rd, i, zeros ? NULL : block_buf(rd, i, &at));
	if (rc < 0)
		drop_slots(r);
	return rc;
}

/* Reads the record that the chunk has now. */
static int read_once(struct reader *rd)
{
	struct chunk_store *s = rd->s;
	struct chunk_read *r = rd->r;
	struct chunk_record *rec;
	int rc = 0;

	TRY(store_ent_load(s, rd->ent));
	if (r->admit)
		TRY(r->admit(r->admit_arg));
	if (r->quiet && rd->ent->n_pend)
		return -LE_PENDING;
	/* A pending record can hide that the committed one is unreadable. */
	if (r->committed && !store_ent_readable(rd->ent))
		return -LE_CORRUPT;
	rec = seen(rd);
	r->n_pieces = 0;
	r->version = rec ? rec->version : 0;
	r->end = rec ? rec->end : 0;
	r->mtime_ns = rec ? rec->mtime_ns : 0;
	if (!rec || r->len == 0 || r->off >= rec->end)
		return 0;
	rd->rec = chunk_record_ref(rec);
	rd->end = r->len < rec->end - r->off ? r->off + r->len : rec->end;
	read_pin_begin(&s->space, &rd->pin);
	rd->pinned = true;
	rc = read_record(rd);
	if (rd->pinned)
		read_pin_end(&s->space, &rd->pin);
	chunk_record_unref(&s->cache, rec);
	if (rc == 0) {
		metric_add(&s->metrics->reads, 1);
		metric_add(&s->metrics->read_bytes, rd->end - r->off);
	}
	return rc;
}

int chunk_read(struct chunk_store *s, struct chunk_read *r)
{
	struct reader rd = {.s = s, .r = r};
	int rc;

	r->n_vec = 0;
	if (r->len > s->p->bulk_max)
		return -LE_TOO_BIG;
	rd.ent = chunk_ent_get(&s->cache, &r->id);
	if (!rd.ent)
		return -LE_NOMEM;
	do {
		rc = read_once(&rd);
	} while (rc == REPLACED);
	chunk_ent_put(&s->cache, rd.ent);
	return rc;
}

static int read_held(struct chunk_store *s, const struct chunk_key *id,
		     const struct chunk_record *rec, uint32_t i, struct slot_vec *v)
{
	const struct chunk_block *b = &rec->blocks[i];

	TRY(store_stored_read(s, id, rec, i, v->slot->data + v->off + v->len));
	v->len += block_space(b);
	return 0;
}

int chunk_tx_read(const struct chunk_tx *tx, uint32_t first, uint32_t last,
		  struct slot_vec vec[CHUNK_READ_VECS], uint32_t *ret_n)
{
	struct chunk_store *s = tx->s;
	struct chunk_key id = tx->ent->id;
	struct chunk_record *rec = chunk_record_ref(tx->rec);
	uint32_t per_slot = slot_pool_size(s->read_pool) / rec->block_size, n = 0, got = 0;
	uint32_t want = (last - first + per_slot) / per_slot;
	struct read_pin pin;
	int rc = want > CHUNK_READ_VECS || want >= slot_pool_total(s->read_pool) ? -LE_TOO_BIG : 0;

	if (want > 1)
		fmutex_lock(&s->many_slots);
	for (; got < want && rc == 0; got += rc == 0) {
		vec[got] = (struct slot_vec){0};
		rc = slot_get(s->read_pool, fiber_deadline(), &vec[got].slot);
	}
	if (want > 1)
		fmutex_unlock(&s->many_slots);
	/* The pin begins only here, as waiting for slots may be long. Until the tx ends its blocks
	 * belong to the chunk; from now on the pin keeps them. */
	if (rc == 0 && tx->rec != rec)
		rc = -LE_STALE;
	read_pin_begin(&s->space, &pin);
	for (uint32_t i = first; i <= last && rc == 0; i++) {
		n = (i - first) / per_slot;
		rc = read_held(s, &id, rec, i, &vec[n]);
	}
	read_pin_end(&s->space, &pin);
	chunk_record_unref(&s->cache, rec);
	for (uint32_t i = 0; i < got && rc < 0; i++)
		slot_unref(vec[i].slot);
	if (rc == 0)
		*ret_n = want;
	return rc;
}

uint32_t chunk_record_pieces(const struct chunk_record *r, struct piece *pieces, uint32_t max)
{
	uint32_t n = 0, pos = 0;

	while (pos < r->end && n + 2 <= max) {
		uint32_t i = pos / r->block_size, begin = pos;
		uint32_t limit = r->end - begin < r->block_size ? r->end - begin : r->block_size;
		uint32_t len = i < r->n_blocks ? r->blocks[i].len : 0;

		if (len) {
			pieces[n++] = block_piece(&r->blocks[i], begin);
		}
		if (len < limit)
			pieces[n++] = (struct piece){begin + len, limit - len, 0, PIECE_HOLE, 0, 0};
		pos += limit;
	}
	return n;
}
