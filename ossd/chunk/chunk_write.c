/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a part of a chunk: verify → lock → plan → merge → allocate → data to disk. The record
 * stays in the tx; joining a group and waiting make it durable.
 *
 * Whole blocks, compressed or not, are written directly from the slots in which they arrived. Only
 * two kinds are staged in a slot of this module: blocks that are unaligned in their slot, and
 * fragments. A fragment is merged with the old block (read, verified, unpacked, overlaid,
 * checksummed and possibly packed again) under the chunk's lock. Merging precedes the allocation,
 * because it determines how large the extents must be. Old extents are never overwritten. Any
 * failure frees the new extents.
 *
 * One request holds at most one staging slot, and takes it after the chunk's lock, so waiting for
 * slots cannot deadlock.
 */
#include "ossd/chunk/chunk_write.h"

#include "common/base/checksum.h"
#include "common/base/copy_counter.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/store_block.h"

#define WRITER_IOV 64
#define BULK_IOV   8

struct writer {
	struct chunk_store *s;
	struct chunk_tx *tx;
	const struct chunk_write *w; /* NULL: zeros (punch) */
	struct iovec iov[WRITER_IOV];
	int n_iov;
	uint64_t file_off, bytes;
	struct slot *stage;
	uint32_t stage_used, stage_kept; /* stage_kept: length of the merged blocks, at the start
	                                  * of the slot */
	struct chunk_merged merged[2];
	uint32_t n_merged;
};

/* ---- the incoming data ---- */

/* Describes bytes [pos, pos + len) of the bulk as at most max parts. Returns the number of parts,
 * 0: does not fit. */
static int bulk_iov(const struct chunk_write *w, uint32_t pos, uint32_t len, struct iovec *iov,
		    int max)
{
	int n = 0;

	for (uint32_t i = 0; i < w->n_bulk && len; i++) {
		const struct slot_vec *v = &w->bulk[i];
		uint32_t part;

		if (pos >= v->len) {
			pos -= v->len;
			continue;
		}
		if (n == max)
			return 0;
		part = v->len - pos < len ? v->len - pos : len;
		iov[n++] = (struct iovec){v->slot->data + v->off + pos, part};
		len -= part;
		pos = 0;
	}
	return len ? 0 : n;
}

static void bulk_copy(const struct chunk_write *w, uint32_t pos, uint32_t len, uint8_t *to)
{
	struct iovec iov[BULK_IOV];
	int n = bulk_iov(w, pos, len, iov, BULK_IOV);

	for (int i = 0; i < n; i++) {
		copy_counted(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
}

/* True if old equals bytes [pos, pos + len) of the bulk. */
static bool bulk_is(const struct chunk_write *w, uint32_t pos, const uint8_t *old, uint32_t len)
{
	struct iovec iov[BULK_IOV];
	int n = bulk_iov(w, pos, len, iov, BULK_IOV);

	for (int i = 0; i < n; i++) {
		if (memcmp(old, iov[i].iov_base, iov[i].iov_len) != 0)
			return false;
		old += iov[i].iov_len;
	}
	return n > 0;
}

static uint32_t bulk_len(const struct chunk_write *w)
{
	uint32_t len = 0;

	for (uint32_t i = 0; i < w->n_bulk; i++)
		len += w->bulk[i].len;
	return len;
}

/* True if the slot has space after the last bytes of the bulk to pad them to whole units. */
static bool pad_in_place(const struct chunk_write *w, uint32_t pos, uint32_t len, uint32_t pad)
{
	const struct slot_vec *v = &w->bulk[w->n_bulk - 1];

	return pos + len == bulk_len(w) && v->off + v->len + pad <= v->slot->size;
}

/* If the disk can write the block's bytes from where they arrived, describes them, padded. Returns
 * the number of parts, or 0. */
static int bulk_direct(const struct chunk_write *w, uint32_t pos, uint32_t len, struct iovec *iov)
{
	uint32_t pad = round_units(len) * UNIT_SIZE - len;
	int n = bulk_iov(w, pos, len, iov, BULK_IOV);

	for (int i = 0; i < n; i++) {
		bool last = i == n - 1;

		if ((uintptr_t)iov[i].iov_base % UNIT_SIZE != 0 ||
		    (!last && iov[i].iov_len % UNIT_SIZE != 0))
			return 0;
		if (last && pad) {
			if (!pad_in_place(w, pos, len, pad))
				return 0;
			memset((uint8_t *)iov[i].iov_base + iov[i].iov_len, 0, pad);
			iov[i].iov_len += pad;
		}
	}
	return n;
}

/* Compares the bytes at pos of the bulk with the checksum of their piece. */
static int bulk_check(const struct chunk_write *w, const struct piece *p, uint32_t pos)
{
	bool packed = p->flags & PIECE_LZ4;
	struct iovec iov[BULK_IOV];
	int n = bulk_iov(w, pos, piece_space(p), iov, BULK_IOV);

	if (n && packed)
		n = bulk_iov(w, pos, p->stored_len, iov, BULK_IOV);
	if (!n)
		return -LE_INVAL;
	return (n == 1 ? checksum64(iov[0].iov_base, iov[0].iov_len) : checksum64_iov(iov, n)) ==
			       (packed ? p->stored_sum : p->sum)
		       ? 0
		       : -LE_CORRUPT_WIRE;
}

static int pieces_check(const struct chunk_write *w, uint32_t bulk_len)
{
	uint32_t bs = chunk_block_size(w->chunk_size), pos = 0, bulk = 0;

	for (uint32_t i = 0; i < w->pieces.len / PIECE_WIRE_SIZE; i++) {
		uint32_t off = w->off + pos, space = bs - off % bs;
		struct piece p = chunk_write_piece(w, i);

		if (pos >= w->len || p.off != off || (p.flags & PIECE_HOLE) ||
		    p.len != (space < w->len - pos ? space : w->len - pos) ||
		    ((p.flags & PIECE_LZ4) && !piece_packed_check(&p, bs)))
			return -LE_INVAL;
		TRY(bulk_check(w, &p, bulk));
		pos += p.len;
		bulk += piece_space(&p);
	}
	return pos == w->len && bulk == bulk_len ? 0 : -LE_INVAL;
}

int chunk_write_check(const struct chunk_write *w)
{
	uint64_t bulk = 0;

	if (!chunk_size_valid(w->chunk_size) || w->len == 0 || w->off >= w->chunk_size ||
	    w->len > w->chunk_size - w->off || w->pieces.len % PIECE_WIRE_SIZE != 0)
		return -LE_INVAL;
	if (w->id.idx > LEAT_FILE_SIZE_MAX / w->chunk_size)
		return -LE_FBIG;
	for (uint32_t i = 0; i < w->n_bulk; i++)
		bulk += w->bulk[i].len;
	return bulk <= w->len ? pieces_check(w, (uint32_t)bulk) : -LE_INVAL;
}

/* ---- to the disk ---- */

static int writer_flush(struct writer *wr)
{
	int rc = 0;

	if (wr->n_iov)
		rc = store_data_write(wr->s, wr->iov, wr->n_iov, wr->file_off);
	wr->n_iov = 0;
	wr->bytes = 0;
	wr->stage_used = wr->stage_kept;
	return rc;
}

/* Flushes the pending bytes if bytes for file offset off cannot be appended to them. */
static int writer_space(struct writer *wr, uint64_t off, int n)
{
	if (wr->n_iov && (wr->file_off + wr->bytes != off || wr->n_iov + n > WRITER_IOV))
		TRY(writer_flush(wr));
	if (!wr->n_iov)
		wr->file_off = off;
	return 0;
}

static void writer_add(struct writer *wr, const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++) {
		struct iovec *last = wr->n_iov ? &wr->iov[wr->n_iov - 1] : NULL;

		if (last && (uint8_t *)last->iov_base + last->iov_len == iov[i].iov_base)
			last->iov_len += iov[i].iov_len;
		else
			wr->iov[wr->n_iov++] = iov[i];
		wr->bytes += iov[i].iov_len;
	}
	wr->tx->data = true;
}

static int writer_stage_get(struct writer *wr)
{
	return wr->stage ? 0 : slot_get(wr->s->merge_pool, fiber_deadline(), &wr->stage);
}

/* Returns size bytes (whole units) of the staging slot. */
static int writer_stage(struct writer *wr, uint32_t size, uint8_t **ret_buf)
{
	TRY(writer_stage_get(wr));
	if (wr->stage_used + size > wr->stage->size) {
		uint64_t next = wr->file_off + wr->bytes;

		TRY(writer_flush(wr));
		wr->file_off = next;
	}
	*ret_buf = wr->stage->data + wr->stage_used;
	wr->stage_used += size;
	return 0;
}

/* Compresses a whole block in buf, if that saves space. */
static void pack(struct chunk_store *s, struct chunk_block *b, uint8_t *buf)
{
	uint32_t n = compress_block(buf, b->len, s->block);

	if (n == 0)
		return;
	b->stored_len = n;
	b->stored_sum = checksum64(s->block, n);
	b->flags |= BLOCK_LZ4;
	copy_counted(buf, s->block, (size_t)block_units(b) * UNIT_SIZE);
}

/* True if [off, end) of the chunk was never written. */
static bool is_unwritten(const struct chunk_tx *tx, uint32_t off, uint32_t end)
{
	const struct chunk_record *o = tx->old;

	return !o || gaps_cover(chunk_record_gaps(o), o->n_gaps, o->end, off, end);
}

/* Builds in the stage: the old block, overlaid with bytes [fs, fe) from pos of the bulk, or with
 * zeros if there is no request. */
static int merge_block(struct writer *wr, uint32_t index, uint32_t fs, uint32_t fe, uint32_t pos)
{
	struct chunk_tx *tx = wr->tx;
	struct chunk_block *b = &tx->rec->blocks[index];
	const struct chunk_block *o =
		tx->old && index < tx->old->n_blocks ? &tx->old->blocks[index] : NULL;
	uint32_t old_len = o ? o->len : 0, bs = tx->rec->block_size;
	bool packed = (wr->w && wr->w->pack) || (o && (o->flags & BLOCK_LZ4));
	uint8_t *buf;

	TRY(writer_stage_get(wr));
	buf = wr->stage->data + wr->stage_kept;
	if (old_len)
		TRY(store_block_read(wr->s, &tx->ent->id, tx->old, index, buf));
	memset(buf + old_len, 0, bs - old_len);
	if (wr->w && wr->w->placed && !is_unwritten(tx, index * bs + fs, index * bs + fe) &&
	    !bulk_is(wr->w, pos, buf + fs, fe - fs))
		return -LE_EXIST;
	if (wr->w)
		bulk_copy(wr->w, pos, fe - fs, buf + fs);
	else
		memset(buf + fs, 0, fe - fs);
	*b = (struct chunk_block){.len = b->len, .stored_len = b->len, .flags = BLOCK_FRESH};
	b->sum = b->stored_sum = checksum64(buf, b->len);
	if (packed && b->len == bs)
		pack(wr->s, b, buf);
	wr->merged[wr->n_merged++] = (struct chunk_merged){index, wr->stage_kept};
	wr->stage_kept += bs;
	wr->stage_used = wr->stage_kept;
	metric_add(&wr->s->metrics->merges, 1);
	return 0;
}

static int write_merged(struct writer *wr, const struct chunk_merged *m)
{
	const struct chunk_block *b = &wr->tx->rec->blocks[m->block];
	struct iovec iov = {wr->stage->data + m->off, (size_t)block_units(b) * UNIT_SIZE};

	TRY(writer_space(wr, block_file_off(b), 1));
	writer_add(wr, &iov, 1);
	return 0;
}

/* Writes a block that arrived whole, or as the start of a block that has nothing after it. */
static int write_whole(struct writer *wr, uint32_t index, uint32_t pos)
{
	const struct chunk_block *b = &wr->tx->rec->blocks[index];
	uint32_t len = block_space(b);
	struct iovec iov[BULK_IOV];
	int n = bulk_direct(wr->w, pos, len, iov);

	TRY(writer_space(wr, block_file_off(b), n ? n : 1));
	if (!n) {
		uint32_t size = block_units(b) * UNIT_SIZE;
		uint8_t *buf;

		TRY(writer_stage(wr, size, &buf));
		bulk_copy(wr->w, pos, len, buf);
		memset(buf + len, 0, size - len);
		iov[0] = (struct iovec){buf, size};
		n = 1;
		metric_add(&wr->s->metrics->copies, 1);
	}
	writer_add(wr, iov, n);
	return 0;
}

/* ---- the plan ---- */

/* Returns the part of [off, end) that lies in block i, relative to the block. */
static void block_part(uint32_t bs, uint32_t off, uint32_t end, uint32_t i, uint32_t *ret_fs,
		       uint32_t *ret_fe)
{
	uint32_t begin = i * bs;

	*ret_fs = off > begin ? off - begin : 0;
	*ret_fe = end - begin < bs ? end - begin : bs;
}

static uint32_t old_block_len(const struct chunk_tx *tx, uint32_t i)
{
	return tx->old && i < tx->old->n_blocks ? tx->old->blocks[i].len : 0;
}

/* True if the write covers all that the block will contain. */
static bool comes_whole(const struct writer *wr, uint32_t i)
{
	const struct chunk_write *w = wr->w;
	uint32_t fs, fe;

	block_part(wr->tx->rec->block_size, w->off, w->off + w->len, i, &fs, &fe);
	return fs == 0 && fe >= old_block_len(wr->tx, i);
}

static void old_gaps(const struct chunk_tx *tx, struct chunk_gaps *g)
{
	g->n = tx->old ? tx->old->n_gaps : 0;
	if (g->n)
		memcpy(g->at, chunk_record_gaps(tx->old), g->n * sizeof(g->at[0]));
}

/* Makes the new record, except for what merging determines. */
static int plan_write(struct chunk_tx *tx, const struct chunk_write *w)
{
	uint32_t bs = chunk_block_size(w->chunk_size), end = w->off + w->len;
	uint32_t first = w->off / bs, last = (end - 1) / bs;
	uint32_t n_blocks = tx->old && tx->old->n_blocks > last ? tx->old->n_blocks : last + 1;
	struct chunk_gaps gaps;

	if (tx->old && tx->old->chunk_size != w->chunk_size)
		return -LE_INVAL;
	old_gaps(tx, &gaps);
	gaps_written(&gaps, tx->old ? tx->old->end : 0, w->off, end);
	TRY(tx_new_record(tx, w->chunk_size, n_blocks, w->gaps ? w->gaps : &gaps));
	if (tx->rec->end < end)
		tx->rec->end = end;
	for (uint32_t i = first; i <= last; i++) {
		struct chunk_block *b = &tx->rec->blocks[i];
		uint32_t old_len = old_block_len(tx, i), fs, fe;
		struct piece p = chunk_write_piece(w, i - first);

		block_part(bs, w->off, end, i, &fs, &fe);
		*b = (struct chunk_block){.sum = p.sum, .stored_sum = p.sum, .flags = BLOCK_FRESH};
		b->len = b->stored_len = fe > old_len ? fe : old_len;
		if (p.flags & PIECE_LZ4) {
			b->stored_len = p.stored_len;
			b->stored_sum = p.stored_sum;
			b->flags |= BLOCK_LZ4;
		}
	}
	return 0;
}

/* Checks a `placed` write that replaces a block as a whole by the bytes at pos of the bulk. A
 * packed block is equal if lengths and checksums of its plain and packed bytes are equal. Plain
 * bytes are compared, because a client could forge other bytes with the same checksum. */
static int check_placed(struct writer *wr, uint32_t index, uint32_t pos)
{
	struct chunk_tx *tx = wr->tx;
	const struct chunk_block *b = &tx->rec->blocks[index], *o;
	uint32_t off = index * tx->rec->block_size;
	uint8_t *buf;

	if (!wr->w->placed || is_unwritten(tx, off, off + b->len))
		return 0;
	if (old_block_len(tx, index) != b->len)
		return -LE_EXIST;
	o = &tx->old->blocks[index];
	if (b->flags & BLOCK_LZ4)
		return o->sum == b->sum && o->stored_len == b->stored_len &&
				       o->stored_sum == b->stored_sum
			       ? 0
			       : -LE_EXIST;
	TRY(writer_stage_get(wr));
	buf = wr->stage->data + wr->stage_kept;
	TRY(store_block_read(wr->s, &tx->ent->id, tx->old, index, buf));
	return bulk_is(wr->w, pos, buf, b->len) ? 0 : -LE_EXIST;
}

/* Only the first and the last block can be incomplete. */
static int merge_blocks(struct writer *wr)
{
	const struct chunk_write *w = wr->w;
	uint32_t bs = wr->tx->rec->block_size, end = w->off + w->len, pos = 0;

	for (uint32_t i = w->off / bs; i <= (end - 1) / bs; i++) {
		struct piece p = chunk_write_piece(w, i - w->off / bs);
		uint32_t fs = p.off - i * bs;

		if (!comes_whole(wr, i))
			TRY(merge_block(wr, i, fs, fs + p.len, pos));
		else
			TRY(check_placed(wr, i, pos));
		pos += piece_space(&p);
	}
	return 0;
}

static int allocate_write(struct chunk_tx *tx, const struct chunk_write *w)
{
	uint32_t bs = tx->rec->block_size;
	struct alloc_request a = {w->session, w->off / bs, (w->off + w->len - 1) / bs,
				  w->len,     0,           false};
	uint32_t take = 0, give = 0;

	for (uint32_t i = a.first; i <= a.last; i++) {
		take += block_units(&tx->rec->blocks[i]);
		if (old_block_len(tx, i))
			give += block_units(&tx->old->blocks[i]);
	}
	a.growth = take > give ? take - give : 0;
	return tx_allocate(tx, &a);
}

static int write_blocks(struct writer *wr)
{
	const struct chunk_write *w = wr->w;
	uint32_t bs = wr->tx->rec->block_size, end = w->off + w->len, pos = 0, n = 0;

	for (uint32_t i = w->off / bs; i <= (end - 1) / bs; i++) {
		struct piece p = chunk_write_piece(w, i - w->off / bs);
		bool merged = n < wr->n_merged && wr->merged[n].block == i;

		metric_add(&wr->s->metrics->packed, !!(wr->tx->rec->blocks[i].flags & BLOCK_LZ4));
		TRY(merged ? write_merged(wr, &wr->merged[n++]) : write_whole(wr, i, pos));
		pos += piece_space(&p);
	}
	return writer_flush(wr);
}

static int do_write(struct writer *wr)
{
	TRY(plan_write(wr->tx, wr->w));
	TRY(merge_blocks(wr));
	TRY(allocate_write(wr->tx, wr->w));
	return write_blocks(wr);
}

int chunk_tx_write(struct chunk_tx *tx, const struct chunk_write *w)
{
	struct chunk_store *s = tx->s;
	struct writer wr = {.s = s, .tx = tx, .w = w};
	int rc = do_write(&wr);

	if (rc == 0 && w->keep && wr.n_merged) {
		tx->stage = slot_ref(wr.stage);
		memcpy(tx->merged, wr.merged, sizeof(tx->merged));
		tx->n_merged = wr.n_merged;
	}
	slot_unref(wr.stage);
	if (rc < 0) {
		chunk_tx_abort(tx);
		return rc;
	}
	tx->changes = true;
	tx->change = CHANGE_WRITE;
	tx->session = w->session;
	tx->off = w->off;
	tx->len = w->len;
	metric_add(&s->metrics->writes, 1);
	metric_add(&s->metrics->write_bytes, w->len);
	return 0;
}

int chunk_write_begin(struct chunk_store *s, const struct chunk_write *w, struct chunk_tx *tx)
{
	TRY(chunk_write_check(w));
	TRY(chunk_tx_begin(s, &w->id, tx));
	return chunk_tx_write(tx, w);
}

/* ---- truncating and punching ---- */

/* Truncates a block to len bytes in place: only its record changes. A compressed block keeps all
 * its stored bytes, and fewer of them are unpacked. */
static int cut_block(struct writer *wr, uint32_t index, uint32_t len)
{
	struct chunk_tx *tx = wr->tx;
	struct chunk_block *b = &tx->rec->blocks[index];
	uint8_t *buf;

	if (b->len <= len)
		return 0;
	if (len == 0) {
		*b = (struct chunk_block){0};
		return 0;
	}
	TRY(writer_stage_get(wr));
	buf = wr->stage->data + wr->stage_kept;
	TRY(store_block_read(wr->s, &tx->ent->id, tx->old, index, buf));
	b->sum = checksum64(buf, len);
	b->len = len;
	if (!(b->flags & BLOCK_LZ4)) {
		b->stored_sum = b->sum;
		b->stored_len = len;
	}
	return 0;
}

static int trim_blocks(struct writer *wr, uint32_t end)
{
	struct chunk_tx *tx = wr->tx;
	uint32_t bs = tx->old->block_size, n = (end + bs - 1) / bs;
	struct chunk_gaps gaps;

	old_gaps(tx, &gaps);
	gaps_cut(&gaps, end);
	TRY(tx_new_record(tx, tx->old->chunk_size, tx->old->n_blocks < n ? tx->old->n_blocks : n,
			  &gaps));
	tx->rec->end = end;
	if (tx->rec->n_blocks == n && end % bs)
		return cut_block(wr, n - 1, end % bs);
	return 0;
}

/* Makes [off, end) zeros. A block that keeps bytes after the zeros is rewritten: that can only be
 * the last. */
static int punch_blocks(struct writer *wr, uint32_t off, uint32_t end)
{
	struct chunk_tx *tx = wr->tx;
	uint32_t bs = tx->old->block_size, n = tx->old->n_blocks, first = off / bs;
	struct alloc_request a = {.privileged = true};

	TRY(tx_new_record(tx, tx->old->chunk_size, n, NULL));
	for (uint32_t i = first; i < n && i <= (end - 1) / bs; i++) {
		struct chunk_block *b = &tx->rec->blocks[i];
		uint32_t fs, fe;

		block_part(bs, off, end, i, &fs, &fe);
		if (b->len <= fs)
			continue;
		if (fe >= b->len)
			TRY(cut_block(wr, i, fs));
		else
			TRY(merge_block(wr, i, fs, fe, 0));
	}
	if (wr->n_merged == 0)
		return 0;
	a.first = a.last = wr->merged[0].block;
	TRY(tx_allocate(tx, &a));
	TRY(write_merged(wr, &wr->merged[0]));
	return writer_flush(wr);
}

/* Ends a change: aborts the tx if rc is an error. */
static int edit_end(struct chunk_tx *tx, struct writer *wr, int rc)
{
	slot_unref(wr->stage);
	if (rc < 0) {
		chunk_tx_abort(tx);
		return rc;
	}
	tx->changes = true;
	metric_add(&tx->s->metrics->trims, 1);
	return 0;
}

int chunk_tx_remove(struct chunk_tx *tx)
{
	tx->changes = tx->old != NULL || tx->over;
	tx->change = CHANGE_REMOVE;
	if (!tx->changes)
		chunk_tx_cancel(tx);
	else
		metric_add(&tx->s->metrics->removes, 1);
	return 0;
}

int chunk_tx_trim(struct chunk_tx *tx, uint32_t end)
{
	struct writer wr = {.s = tx->s, .tx = tx};

	if (end == 0)
		return chunk_tx_remove(tx);
	tx->change = CHANGE_TRIM;
	if (!tx->old || tx->old->end <= end) {
		chunk_tx_cancel(tx);
		return 0;
	}
	return edit_end(tx, &wr, trim_blocks(&wr, end));
}

int chunk_tx_punch(struct chunk_tx *tx, uint32_t off, uint32_t len)
{
	struct writer wr = {.s = tx->s, .tx = tx};

	if (tx->over) /* the chunk cannot be read, so the caller removes it as a whole */
		return chunk_tx_remove(tx);
	tx->change = CHANGE_PUNCH;
	if (!tx->old || len == 0 || off >= tx->old->end) {
		chunk_tx_cancel(tx);
		return 0;
	}
	if (len > tx->old->end - off)
		len = tx->old->end - off;
	tx->off = off;
	tx->len = len;
	return edit_end(tx, &wr, punch_blocks(&wr, off, off + len));
}

int chunk_trim_begin(struct chunk_store *s, const struct chunk_key *id, uint32_t end,
		     struct chunk_tx *tx)
{
	TRY(chunk_tx_begin(s, id, tx));
	return chunk_tx_trim(tx, end);
}

int chunk_punch_begin(struct chunk_store *s, const struct chunk_key *id, uint32_t off, uint32_t len,
		      struct chunk_tx *tx)
{
	TRY(chunk_tx_begin(s, id, tx));
	return chunk_tx_punch(tx, off, len);
}
