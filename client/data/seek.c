/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SEEK_DATA, SEEK_HOLE and block checksums of a file (ll_seek, ll_sums). The chains report where
 * data begins.
 */

#include <stdlib.h>
#include <unistd.h>

#include "client/cache/inode_cache.h"
#include "client/data/append.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/replica_select.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"

/* Chunks queried concurrently. A seek starts with one, because many callers only test one
 * offset. */
#define SUMS_WIDTH 8u
/* Pieces of a whole chunk. */
#define SUMS_MAX LEAT_BLOCKS_PER_CHUNK_MAX
/* Chains queried concurrently. */
#define NEXT_WIDTH 16u
#define HOLE_MAX   (1u << 30)
#define SEEK_PAGE  4096u

/* Why a walk over the pieces has ended early. */
enum walk_end {
	WALK_ENOUGH = 1, /* the callback has enough */
	WALK_MOVED = 2   /* the data has moved to another generation or layout */
};

struct sums_part {
	struct ll_file *f;
	uint64_t idx;
	int status;
	uint32_t n;
	struct piece pieces[SUMS_MAX];
};

static void sums_part(void *arg);

static int sums_decode(struct sums_part *p, struct bytes in)
{
	uint32_t at = 0;

	if (in.len % PIECE_WIRE_SIZE != 0 || in.len / PIECE_WIRE_SIZE > SUMS_MAX)
		return -LE_BAD_MESSAGE;
	p->n = in.len / PIECE_WIRE_SIZE;
	for (uint32_t i = 0; i < p->n; i++) {
		piece_decode((const uint8_t *)in.data + (size_t)i * PIECE_WIRE_SIZE, &p->pieces[i]);
		if (p->pieces[i].off != at || p->pieces[i].len == 0)
			return -LE_BAD_MESSAGE;
		at += p->pieces[i].len;
	}
	return 0;
}

static void sums_part(void *arg)
{
	struct sums_part *p = arg;
	struct oss_sums_req req = {.chunk = {.ino = p->f->inode->ino, .idx = p->idx}};
	struct oss_sums_rep rep;
	struct rpc_call call = {.op = OP_oss_sums, .req = &req, .rep = &rep};
	struct cap_auth auth = {.right = CAP_TO_READ, .cap = &req.cap, .gen = &req.chunk.gen};
	struct replica_route replica_route = {
		.hash = replica_hash(p->f->c, p->f->inode->ino, p->idx)};

	p->n = 0;
	p->status = cap_call(p->f->d, p->idx, &call, &auth, &replica_route);
	if (p->status >= 0)
		p->status = sums_decode(p, rep.pieces);
	rpc_call_fini(&call);
}

struct next_part {
	struct ll_file *f;
	uint64_t idx; /* a chunk of the chain that is queried */
	uint64_t from, last, next;
	uint32_t gen;
	int status;
};

static void next_part(void *arg)
{
	struct next_part *p = arg;
	struct oss_next_req req = {.ino = p->f->inode->ino, .from = p->from, .last = p->last};
	struct oss_next_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_next, .req = &req, .rep = &rep};
	struct cap_auth auth = {.right = CAP_TO_READ, .cap = &req.cap, .gen = &req.gen};
	struct replica_route replica_route = {0};

	p->status = cap_call(p->f->d, p->idx, &call, &auth, &replica_route);
	rpc_call_fini(&call);
	p->next = rep.next;
	p->gen = req.gen;
	if (p->status >= 0 && rep.next != COPY_NONE && (rep.next < p->from || rep.next > p->last))
		p->status = -LE_BAD_MESSAGE;
}

static bool same_reservation(const struct layout *a, const struct layout *b)
{
	return a->gen == b->gen && a->table == b->table && a->width == b->width &&
	       a->seed == b->seed && a->chunk_size == b->chunk_size;
}

/* Returns the first chunk in [from, last] that the file has or may have: queries all its chains
 * concurrently and takes the lowest. COPY_NONE: none. Returns 0, WALK_MOVED or an error. Yields. */
static int next_chunk(struct ll_file *f, uint64_t from, uint64_t last, uint64_t *ret_next)
{
	struct layout l = f->inode->attr.layout;
	uint64_t next = COPY_NONE, first = 0, width = map_width(f->c, &l);
	struct next_part parts[NEXT_WIDTH];
	struct cap cap;

	TRY(cap_get(f->d, CAP_TO_READ, &cap));
	/* The chunks from the first on cover all chains; a shorter range needs only the chains of
	 * its chunks. */
	if (last - from < width) {
		width = last - from + 1;
		first = from;
	}
	for (uint64_t at = 0, n; at < width; at += n) {
		n = width - at < NEXT_WIDTH ? width - at : NEXT_WIDTH;
		for (uint32_t i = 0; i < n; i++)
			parts[i] = (struct next_part){
				.f = f, .idx = first + at + i, .from = from, .last = last};
		fiber_parallel("oss_next", next_part, parts, sizeof(*parts), (uint32_t)n,
			       (uint32_t)n);
		for (uint32_t i = 0; i < n; i++) {
			TRY(parts[i].status);
			if (parts[i].gen != cap.gen)
				return WALK_MOVED;
			next = parts[i].next < next ? parts[i].next : next;
		}
	}
	if (!same_reservation(&l, &f->inode->attr.layout))
		return WALK_MOVED;
	*ret_next = next;
	return 0;
}

/* A walk over the file's pieces: calls each() for every piece in order, until a result is not 0. */
struct walk {
	struct ll_file *f;
	uint64_t chunk_size, size;
	int (*each)(void *arg, uint64_t off, uint64_t len, uint64_t sum, bool hole);
	void *arg;
	uint32_t width;      /* number of chunks queried first */
	bool damage_is_data; /* damaged data counts as data; else it is an error */
	struct sums_part *parts; /* SUMS_WIDTH of them, too large for a fiber's stack */
};

/* Reports one chunk to each(). The part without pieces is one hole. */
static int report_chunk(struct walk *w, const struct sums_part *p)
{
	uint64_t at = p->idx * w->chunk_size;
	uint64_t end = w->size - at < w->chunk_size ? w->size : at + w->chunk_size;
	int rc = 0;

	if (p->status == -LE_CORRUPT && w->damage_is_data)
		return w->each(w->arg, at, end - at, 0, false);
	TRY(p->status);
	for (uint32_t j = 0; j < p->n && rc == 0 && at < end; j++) {
		const struct piece *e = &p->pieces[j];

		rc = w->each(w->arg, at, e->len, e->sum, (e->flags & PIECE_HOLE) != 0);
		at += e->len;
	}
	return rc == 0 && at < end ? w->each(w->arg, at, end - at, 0, true) : rc;
}

/* Reports the hole before the next chunk from *idx on; *idx becomes that chunk. Yields. */
static int report_hole(struct walk *w, uint64_t *idx)
{
	uint64_t last = (w->size - 1) / w->chunk_size, at = *idx * w->chunk_size, next;

	TRY(next_chunk(w->f, *idx, last, &next));
	if (next > last)
		next = last + 1;
	if (next == *idx)
		return 0;
	*idx = next;
	return w->each(w->arg, at, (next > last ? w->size : next * w->chunk_size) - at, 0, true);
}

static int walk_from(struct walk *w, uint64_t idx)
{
	uint64_t n_chunks = (w->size + w->chunk_size - 1) / w->chunk_size;
	int rc = 0;

	for (uint32_t n, width = w->width; rc == 0 && idx < n_chunks; idx += n) {
		n = n_chunks - idx < width ? (uint32_t)(n_chunks - idx) : width;
		for (uint32_t i = 0; i < n; i++) {
			w->parts[i].f = w->f;
			w->parts[i].idx = idx + i;
		}
		fiber_parallel("oss_sums", sums_part, w->parts, sizeof(w->parts[0]), n, n);
		for (uint32_t i = 0; i < n && rc == 0; i++)
			rc = report_chunk(w, &w->parts[i]);
		width = width * 2 < SUMS_WIDTH ? width * 2 : SUMS_WIDTH;
		if (rc == 0 && w->parts[n - 1].status >= 0 && w->parts[n - 1].n == 0 &&
		    idx + n < n_chunks) {
			idx += n;
			n = 0;
			rc = report_hole(w, &idx);
		}
	}
	return rc;
}

/* Walks from the chunk that contains `from`. Returns 0, an enum walk_end or an error. Yields. */
static int each_piece(struct ll_file *f, uint64_t from, struct walk *w)
{
	int rc;

	w->f = f;
	w->chunk_size = f->inode->attr.layout.chunk_size;
	w->parts = calloc(SUMS_WIDTH, sizeof(*w->parts));
	if (w->parts == NULL)
		return -LE_NOMEM;
	rc = walk_from(w, from / w->chunk_size);
	free(w->parts);
	return rc;
}

struct seek {
	uint64_t off, found;
	uint64_t hole_end; /* end of the last piece, if it was a hole */
	bool want_hole, done;
};

static bool seek_range(struct seek *s, uint64_t off, uint64_t end, bool hole)
{
	if (end <= s->off || off == end || hole != s->want_hole)
		return false;
	s->found = off > s->off ? off : s->off;
	s->done = true;
	return true;
}

/* Data counts up to the end of its page, because a shorter hole would save nothing, and programs
 * take the end of the last block for the end of the data. */
static int seek_piece(void *arg, uint64_t off, uint64_t len, uint64_t sum, bool hole)
{
	struct seek *s = arg;
	uint64_t end = off + len, from = off;

	(void)sum;
	if (hole && off != s->hole_end) {
		from = (off + SEEK_PAGE - 1) / SEEK_PAGE * SEEK_PAGE;
		from = from < end ? from : end;
		if (seek_range(s, off, from, false))
			return WALK_ENOUGH;
	}
	if (hole)
		s->hole_end = end;
	return seek_range(s, from, end, hole) ? WALK_ENOUGH : 0;
}

/* Waits until all writes of this client are durable, and returns the true size. Yields. */
static int flushed_size(struct ll_file *f, uint64_t *ret_size)
{
	struct cred cred = cap_renew_cred(f->d);
	struct attr attr;

	TRY(wb_flush(f->d));
	TRY(size_get_attr(f->c, &cred, f->inode, &attr));
	if (attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_IO;
	*ret_size = attr.size;
	return 0;
}

void ll_leaves_pages(struct ll_file *file)
{
	CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC)->d->no_mapped = false;
}

bool ll_has_mapped(struct ll_file *file)
{
	struct inode_io *d = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC)->d;

	if (d->n_write == 0 || d->no_mapped)
		return false;
	d->no_mapped = true;
	return true;
}

/* One attempt. Returns 1 if the data has moved or the file was truncated meanwhile: an apparent
 * hole may be a result of the truncation (read.c). Yields. */
static int seek_once(struct ll_file *f, struct seek *s, struct trunc_patience *p)
{
	uint32_t n_truncations = f->inode->attr.n_truncations;
	uint64_t size;
	enum trunc_state truncated;
	int rc;

	s->done = false;
	s->hole_end = UINT64_MAX;
	TRY(flushed_size(f, &size));
	if (s->off >= size)
		return -LE_NXIO;
	rc = each_piece(f, s->off,
			&(struct walk){.size = size,
				       .each = seek_piece,
				       .arg = s,
				       .width = 1,
				       .damage_is_data = true});
	TRY(rc);
	if (rc == WALK_MOVED) {
		TRY(size_wait_untruncated(f->c, p));
		return 1;
	}
	TRY(size_truncated_since(f->c, f->inode, n_truncations, &truncated));
	if (truncated == TRUNC_ACTIVE)
		TRY(size_wait_untruncated(f->c, p));
	if (truncated != TRUNC_NONE)
		return 1;
	if (s->done && s->found < size)
		return 0;
	/* Every file ends with a hole. */
	s->found = size;
	return s->want_hole ? 0 : -LE_NXIO;
}

int64_t ll_seek(struct ll_file *file, uint64_t off, int whence)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct seek s = {.off = off, .want_hole = whence == SEEK_HOLE};
	struct trunc_patience patience = {0};
	int rc;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -LE_INVAL;
	do
		rc = seek_once(f, &s, &patience);
	while (rc > 0);
	return rc < 0 ? rc : (int64_t)s.found;
}

struct sums {
	int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole);
	void *arg;
};

static int sums_piece(void *arg, uint64_t off, uint64_t len, uint64_t sum, bool hole)
{
	const struct sums *s = arg;
	int rc = 0;

	for (uint64_t n; rc == 0 && len > 0; off += n, len -= n) {
		n = len < HOLE_MAX ? len : HOLE_MAX;
		rc = s->each(s->arg, off, (uint32_t)n, sum, hole);
	}
	return rc > 0 ? WALK_ENOUGH : rc;
}

int ll_sums(struct ll_file *file,
	    int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole), void *arg)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct sums s = {each, arg};
	uint64_t size;
	int rc;

	TRY(flushed_size(f, &size));
	rc = each_piece(f, 0,
			&(struct walk){
				.size = size, .each = sums_piece, .arg = &s, .width = SUMS_WIDTH});
	return rc == WALK_MOVED ? -LE_STALE : rc < 0 ? rc : 0;
}
