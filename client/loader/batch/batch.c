/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/batch/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/layout/block_sums.h"
#include "client/loader/batch/batch_check.h"
#include "client/loader/batch/decode.h"
#include "client/loader/gpu/cuda.h"
#include "client/loader/source/last_error.h"
#include "client/loader/source/peer.h"
#include "client/loader/source/unpacked.h"
#include "common/base/assert.h"
#include "common/base/crc32c.h"
#include "common/base/inflate.h"
#include "common/base/planted_bug.h"
#include "common/base/state_machine.h"
#include "common/base/status.h"
#include "common/rpc/transport/transport.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define READS_AT_ONCE 32u
#define MANY_LEN_MAX  (16u << 10) /* reads up to this size are batched */
#define MANY_MAX      1024u
/* Most blocks that a batched read touches. */
#define MANY_BLOCKS (MANY_LEN_MAX / MANIFEST_BLOCK_DEFAULT + 1)
/* Bytes that are copied before their checksum is computed: they are still in the processor's
 * cache. */
#define STEP     (256u << 10)
#define TURN_MAX (4u << 20) /* bytes that are copied before the fiber yields */
#define GROW     (2u << 20)

#define TO(state) (1u << BATCH_##state)
STATE_MACHINE(batch_moves, "batch", N_BATCH_STATES,
	   .states = {"free", "planned", "fill", "ready", "error", "held"},
	   .allowed = {
		   [BATCH_FREE] = TO(PLANNED) | TO(HELD), /* HELD: leat_dataset_read made it */
		   [BATCH_PLANNED] = TO(FILL) | TO(FREE),
		   [BATCH_FILL] = TO(READY) | TO(ERROR) | TO(FREE),
		   [BATCH_READY] = TO(HELD) | TO(FREE),
		   [BATCH_ERROR] = TO(FREE),
		   [BATCH_HELD] = TO(FREE),
	   })

void batch_move(struct leat_batch *b, enum batch_state to)
{
	b->state = (enum batch_state)state_machine_move(&batch_moves, (int)b->state, (int)to);
}

int field_set_init(struct field_set *s, const struct leat_dataset *ds, const char *const *names)
{
	*s = (struct field_set){.n = names ? 0 : ds->x->n_fields};
	if (!names)
		return 0;
	s->place = malloc(((size_t)ds->x->n_fields + 1) * sizeof(*s->place));
	if (!s->place)
		return error_say(-LE_NOMEM, "out of memory");
	memset(s->place, 0xff, ds->x->n_fields * sizeof(*s->place));
	for (; *names; names++) {
		int f = index_field(ds->x, *names);
		if (f < 0)
			return error_say(-LE_NOENT, "no sample has the field %s", *names);
		if (s->place[f] < 0)
			s->place[f] = (int32_t)s->n++;
	}
	return 0;
}

void field_set_fini(struct field_set *s)
{
	free(s->place);
	*s = (struct field_set){0};
}

int batch_init(struct leat_batch *b, struct leat_dataset *ds, const struct field_set *set,
	       uint32_t cap)
{
	*b = (struct leat_batch){.magic = BATCH_MAGIC, .ds = ds, .set = set, .cap = cap, .fd = -1};
	size_t n = cap ? cap : 1;
	b->cap_rows = 1 + (set->n < BATCH_ROWS ? set->n : BATCH_ROWS);
	b->ids = calloc(n, sizeof(*b->ids));
	b->labels = calloc(n, sizeof(*b->labels));
	b->off = calloc(n * b->cap_rows, sizeof(*b->off));
	b->len = calloc(n * b->cap_rows, sizeof(*b->len));
	b->lost = calloc(n, sizeof(*b->lost));
	b->row_of = calloc((size_t)set->n + 1, sizeof(*b->row_of));
	b->place_of = calloc(b->cap_rows, sizeof(*b->place_of));
	b->decoded = calloc(b->cap_rows, sizeof(*b->decoded));
	b->n_rows = 1;
	return b->ids && b->labels && b->off && b->len && b->lost && b->row_of && b->place_of &&
			       b->decoded
		       ? 0
		       : -LE_NOMEM;
}

void batch_fini(struct leat_batch *b)
{
	free(b->ids);
	free(b->labels);
	free(b->off);
	free(b->len);
	free(b->pieces);
	free(b->runs);
	free(b->jobs);
	free(b->bad);
	free(b->decodes);
	free(b->lost);
	free(b->row_of);
	free(b->place_of);
	free(b->decoded);
	field_set_fini(&b->own_set);
	cuda_slot_destroy(b->cuda);
	ASSERT(!b->user_memory); /* loader_stop took the registration back */
	ASSERT(b->state != BATCH_FILL && !b->reader);
	if (b->base)
		munmap(b->base, b->mapped);
	if (b->fd >= 0)
		close(b->fd);
	b->magic = 0;
}

/* ---- memory ---- */

static void register_slot(void *arg)
{
	struct leat_batch *b = CAST_OBJ(arg, struct leat_batch, BATCH_MAGIC);
	/* transport_register has logged a failure; data is then received in slots of the client and
	 * copied. */
	b->not_registered =
		transport_register(b->registered_with, b->base, b->mapped, &b->user_memory) < 0;
}

void batch_register(struct leat_batch *b, struct transport *t)
{
	if (b->user_memory || b->not_registered || !b->mapped ||
	    transport_lands(t, b->base, b->mapped))
		return;
	b->registered_with = t;
	/* Pinning the memory blocks, so a worker does it. */
	if (env_offload(loop_env(loop_self()), register_slot, b) < 0)
		b->not_registered = true;
}

void batch_unregister(struct leat_batch *b)
{
	if (b->user_memory)
		transport_unregister(b->registered_with, b->user_memory);
	b->user_memory = NULL;
}

uint64_t batch_memory_for(uint64_t need)
{
	return (need + GROW - 1) / GROW * GROW;
}

/* Extends the mapping; pages that exist stay. */
static int grow_memory(struct leat_batch *b, uint64_t bytes)
{
	if (ftruncate(b->fd, (off_t)bytes) < 0)
		return -LE_NOMEM;
	void *p = b->base ? mremap(b->base, b->mapped, bytes, MREMAP_MAYMOVE)
			  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (p == MAP_FAILED)
		return -LE_NOMEM;
	b->base = p;
	b->mapped = bytes;
	/* Uses huge pages where the system has them for shared memory. */
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	return 0;
}

int batch_set_memory(struct leat_batch *b, uint64_t bytes)
{
	cuda_slot_detach(b->cuda);
	batch_unregister(b);
	if (b->fd < 0)
		b->fd = memfd_create("leat-batch", MFD_CLOEXEC);
	if (b->fd < 0)
		return -LE_NOMEM;
	if (bytes > b->mapped)
		return grow_memory(b, bytes);
	if (b->base)
		munmap(b->base, b->mapped);
	b->base = NULL;
	b->mapped = 0;
	/* First truncates to zero, which frees the pages of the previous batch. */
	if (ftruncate(b->fd, 0) < 0)
		return -LE_NOMEM;
	return bytes ? grow_memory(b, bytes) : 0;
}

/* ---- fill ---- */

/* Computes the key of the piece in the disk cache; false if it is not cached, as for staged
 * copies. */
static bool cached_as(const struct leat_batch *b, const struct piece_io *p,
		      struct cache_use *ret_use)
{
	uint32_t unused;
	if (!b->cache || dataset_is_near(dataset_of_file(b->ds, p->file, &unused)))
		return false;
	*ret_use = (struct cache_use){.key = {p->file, p->len, p->off},
				      .sample = b->ids[p->sample],
				      .time = b->time + p->sample};
	return true;
}

/* ---- members: unpack, check ---- */

struct inflating {
	const struct member_job *j;
	uint8_t *dst;
	int rc;
};

/* Runs on a worker thread. */
static void inflate_member(void *arg)
{
	struct inflating *w = arg;
	const struct index_member *m = w->j->m;
	w->rc = inflate_raw(w->j->b->base + w->j->src, m->len, w->dst, m->raw);
}

static bool check_is_right(const struct member_job *j, const uint8_t *data)
{
	const struct index_member *m = j->m;
	if (m->check == INDEX_CRC32C)
		return crc32c_more(j->sum, data + j->summed, m->raw - j->summed) == m->crc;
	return m->check != INDEX_CRC32 || crc32_zip(data, m->raw) == m->crc;
}

static void fail_member(const struct member_job *j, uint64_t dst, int rc, const char *what)
{
	struct leat_batch *b = j->b;
	const struct index_sample *s = &b->ds->x->samples[b->ids[j->sample]];
	struct piece_io p = {.file = s->file, .off = j->m->off, .dst = dst};
	char text[200];
	snprintf(text, sizeof(text), "%s: %s", what, status_text(rc));
	batch_fail(b, &p, rc, j->m->off, j->m->raw, text);
	b->lost[j->sample] = 1;
	for (uint32_t i = 0; i < b->n_pieces; i++) {
		struct cache_use use;
		if (b->pieces[i].sample == j->sample && cached_as(b, &b->pieces[i], &use))
			cache_drop(b->cache, &use.key);
	}
}

static void do_job(struct member_job *j)
{
	struct leat_batch *b = j->b;
	uint64_t dst = b->off[batch_at(b, j->row, j->sample)];
	if (batch_is_bad(b, j->src, j->m->len)) {
		/* The bytes as read are bad: the sample is lost. */
		b->lost[j->sample] = 1;
		if (dst != j->src)
			batch_add_bad(b, dst, j->m->raw);
		return;
	}
	if (j->m->codec == INDEX_DEFLATED) {
		struct inflating w = {j, b->base + dst, 0};
		int rc = env_offload(loop_env(loop_self()), inflate_member, &w);
		rc = rc < 0 ? rc : w.rc;
		if (rc < 0) {
			fail_member(j, dst, rc, "cannot unpack it");
			return;
		}
	}
	/* A batch of only empty members has no memory. */
	if (!check_is_right(j, b->base ? b->base + dst : (const uint8_t *)""))
		fail_member(j, dst, -LE_CORRUPT, "its checksum does not match that in the file");
}

static void do_jobs(struct leat_batch *b, uint32_t from, uint32_t end)
{
	b->phase = PHASE_VERIFY;
	ASSERT(from <= end && end <= b->n_jobs);
	for (; from < end && (b->d.rc == 0 || b->skip_bad); from++)
		do_job(&b->jobs[from]);
}

/* Counts a piece as complete; the last piece of a run completes its members. */
static void finish_piece(struct leat_batch *b, const struct piece_io *p)
{
	struct batch_run *r = &b->runs[p->run];
	ASSERT(p->run < b->n_runs && r->left > 0);
	if (--r->left == 0)
		do_jobs(b, r[0].first_job, r[1].first_job);
}

/* ---- reading ---- */

/* The origin of bytes, and whether they are verified already. */
struct came {
	enum detail_origin from;
	bool right;
};

static struct came from_file(const struct leat_dataset *from)
{
	return (struct came){from->vol->origin, false};
}

/* Accounts for the next len bytes of the piece, and compares them unless they are verified. */
static void take_bytes(struct leat_batch *b, struct piece_io *p, uint32_t len, struct came how)
{
	uint32_t unused;
	const struct leat_dataset *from = dataset_of_file(b->ds, p->file, &unused);
	const struct batch_bytes c = {p, p->off + p->len, b->base + p->dst, p->off};
	uint64_t at = p->off + p->got;
	ASSERT(len <= p->len - p->got && p->dst + p->len <= b->mapped);
	*(how.from == ORIGIN_PEER     ? &b->bytes_peer
	  : how.from == ORIGIN_SERVER ? &b->bytes_server
				      : &b->bytes_local) += len;
	b->phase = PHASE_VERIFY;
	if (from->m && !how.right)
		(void)!batch_check(b, &c, at, at + len);
	else if (from->m || how.from == ORIGIN_SERVER)
		b->bytes_verified += len;
	p->got += len;
}

/* Accounts for the rest of the piece and offers the piece to the cache. */
static void take_piece(struct leat_batch *b, struct piece_io *p, struct came how)
{
	struct cache_use use;
	take_bytes(b, p, p->len - p->got, how);
	bool right = b->d.rc == 0 || (b->skip_bad && !batch_is_bad(b, p->dst, p->len));
	if (right && cached_as(b, p, &use))
		cache_put(b->cache, &use, b->base + p->dst);
}

/* Reads a range from another node, if a node may serve it. */
static bool fetch_from_peer(struct leat_batch *b, const struct piece_io *p, uint64_t off,
			    uint64_t len)
{
	struct peer_range r = {.off = off, .len = len};
	const struct leat_dataset *from = dataset_of_file(b->ds, p->file, &r.file);
	if (!from->peers || !peer_may_serve(from->peers, &r))
		return false;
	b->phase = PHASE_PEER;
	return peer_read(from->peers, &r, b->base + p->dst + (off - p->off));
}

/* Reads a range of the piece's file. */
static int read_file(struct leat_batch *b, const struct batch_bytes *want)
{
	struct reader_file *f;
	TRY(reader_get(b->reader, want->p->file, &f));
	b->phase = PHASE_READ;
	int rc = vol_pread_all(f->file, want->mem, want->end - want->base, want->base);
	reader_put(b->reader, f);
	return rc;
}

/* ---- comparison with the manifest by the block checksums of the servers ---- */

static struct block_sums sums_for(const struct leat_batch *b, const struct piece_io *p,
				  uint64_t off, uint64_t *sum, uint32_t n)
{
	uint32_t block = batch_manifest_file(b, p)->block;
	return (struct block_sums){block, n, off / block, sum};
}

/* Reads the whole block [lo, hi) of the file again and compares it, though only some of its
 * bytes are needed. */
static void read_block(struct leat_batch *b, const struct batch_bytes *want, uint64_t lo,
		       uint64_t hi)
{
	struct batch_bytes c = {want->p, hi, malloc(hi - lo), lo};
	uint64_t len = want->end - want->base;
	int rc = c.mem ? read_file(b, &c) : -LE_NOMEM;
	if (rc == 0) {
		c.end = want->end;
		(void)!batch_check(b, &c, lo, hi); /* batch_check notes a failure */
		memcpy(want->mem, c.mem + (want->base - lo), len);
	} else if (!batch_mend(b, want->p, want->base, len, want->mem)) {
		batch_fail_read(b, want->p, rc, want->base, len);
	}
	free(c.mem);
}

/* Compares the bytes of each block, unless the servers have sent the manifest's checksum for it.
 * Wrong bytes are replaced, or noted as a failure. */
static void look_closer(struct leat_batch *b, const struct batch_bytes *want,
			const struct block_sums *sums)
{
	const struct manifest_file *f = batch_manifest_file(b, want->p);
	uint64_t at = want->base;
	while (at < want->end && (b->d.rc == 0 || b->skip_bad)) {
		uint64_t i = at / f->block, lo = i * f->block, hi = lo + f->block;
		hi = hi < f->size ? hi : f->size;
		const struct batch_bytes part = {want->p, hi < want->end ? hi : want->end,
						 want->mem + (at - want->base), at};
		if (batch_sum_is_right(b, want->p, sums, i))
			;
		else if (lo == part.base && hi == part.end)
			(void)!batch_check(b, &part, lo, hi); /* batch_check notes a failure */
		else
			read_block(b, &part, lo, hi);
		at = part.end;
	}
}

static int read_compared(struct leat_batch *b, const struct batch_bytes *want)
{
	struct reader_file *f;
	uint64_t sum[PIECE_MAX / MANIFEST_BLOCK_DEFAULT + 1], len = want->end - want->base;
	struct block_sums sums = sums_for(b, want->p, want->base, sum, ARRAY_SIZE(sum));
	if (want->end > batch_manifest_file(b, want->p)->size)
		return -LE_NODATA;
	TRY(reader_get(b->reader, want->p->file, &f));
	struct vol_read r = {f->file, want->mem, want->base, (uint32_t)len, 0, &sums};
	b->phase = PHASE_READ;
	vol_pread_batch(f->file->vol, &r, 1);
	reader_put(b->reader, f);
	if (r.done != (int64_t)len)
		return r.done < 0 ? (int)r.done : -LE_NODATA;
	b->phase = PHASE_VERIFY;
	look_closer(b, want, &sums);
	return 0;
}

/* Reads a range from another node, else from the file. */
static int read_range(struct leat_batch *b, const struct batch_bytes *want, struct came *ret_how)
{
	uint32_t unused;
	const struct leat_dataset *from = dataset_of_file(b->ds, want->p->file, &unused);
	*ret_how = from_file(from);
	if (fetch_from_peer(b, want->p, want->base, want->end - want->base)) {
		*ret_how = (struct came){ORIGIN_PEER, true};
		return 0;
	}
	if (!dataset_has_sums(from))
		return read_file(b, want);
	ret_how->right = true; /* except for failures, which are noted */
	return read_compared(b, want);
}

/* Reads a piece of the unpacked bytes of a file. */
static void fetch_unpacked(struct leat_batch *b, struct piece_io *p)
{
	struct unpacked_range r = {.off = p->off, .len = p->len};
	struct leat_dataset *from = dataset_of_file(b->ds, p->file, &r.file);
	struct detail *d = calloc(1, sizeof(*d)); /* too large for the stack of a fiber */
	int rc = -LE_NOMEM;
	b->phase = PHASE_READ;
	if (d)
		rc = unpacked_read(from, b->ds, &r, b->base + p->dst, d);
	if (rc < 0)
		batch_fail(b, p, rc, p->off, p->len, d ? d->what : status_text(rc));
	else
		take_piece(b, p, (struct came){from->vol->origin, true});
	free(d);
}

/* Reads n pieces that follow each other in file and memory, with the gaps between them. */
static void fetch(struct leat_batch *b, struct piece_io *p, uint32_t n)
{
	struct came how;
	uint32_t got = p->got; /* of the first one */
	if (dataset_is_packed(b->ds, p->file)) {
		for (uint32_t i = 0; i < n; i++)
			fetch_unpacked(b, p + i);
		return;
	}
	const struct batch_bytes want = {p, p[n - 1].off + p[n - 1].len, b->base + p->dst + got,
					 p->off + got};
	uint64_t len = want.end - want.base;
	int rc = read_range(b, &want, &how);
	/* Reads each piece alone to find the one that fails. */
	if (rc < 0 && n > 1) {
		for (uint32_t i = 0; i < n; i++)
			fetch(b, p + i, 1);
		return;
	}
	if (rc < 0 && batch_mend(b, p, want.base, len, want.mem)) {
		how.right = true;
		rc = 0;
	}
	if (rc < 0)
		batch_fail_read(b, p, rc, want.base, len);
	else
		for (uint32_t i = 0; i < n; i++)
			take_piece(b, p + i, how);
}

/* Reads the piece from the cache, if it has it. Yields. */
static bool is_cached(struct leat_batch *b, const struct piece_io *p)
{
	struct cache_use use;
	if (!cached_as(b, p, &use) || !cache_get(b->cache, &use, b->base + p->dst))
		return false;
	b->bytes_verified += b->verified ? p->len : 0;
	return true;
}

/* Reads the next piece, together with following pieces of its run that are not in the cache. */
static void read_next(struct leat_batch *b)
{
	uint32_t first = b->next_piece++, n = 1;
	struct piece_io *p = &b->pieces[first];
	bool more = false;
	if (p->got == p->len)
		return;
	if (is_cached(b, p)) {
		finish_piece(b, p);
		return;
	}
	/* is_cached yields, so another fiber may take the next piece meanwhile. */
	while (b->cache && b->next_piece == first + n && first + n < b->n_pieces &&
	       p[n].run == p->run && p[n].off + p[n].len - p->off <= PIECE_MAX) {
		b->next_piece++;
		more = is_cached(b, &p[n]);
		if (more)
			break;
		n++;
	}
	fetch(b, p, n);
	for (uint32_t i = 0; i < n + more; i++)
		finish_piece(b, p + i);
}

static void read_pieces(void *arg)
{
	struct leat_batch *b = *(struct leat_batch **)arg;
	while (b->next_piece < b->n_pieces && (b->d.rc == 0 || b->skip_bad))
		read_next(b);
}

/* Extends the checksums of the run's members to the bytes before `end`, which are complete. */
static void sum_members(struct leat_batch *b, struct batch_run *r, uint64_t end)
{
	for (; r->next_sum < r[1].first_job; r->next_sum++) {
		struct member_job *j = &b->jobs[r->next_sum];
		uint64_t at = j->src + j->summed, stop = j->src + j->m->len;
		if (j->m->codec != INDEX_PLAIN || j->m->check != INDEX_CRC32C)
			continue;
		if (at < end) {
			uint64_t n = (stop < end ? stop : end) - at;
			j->sum = crc32c_more(j->sum, b->base + at, n);
			j->summed += n;
		}
		if (stop > end)
			return;
	}
}

/* Reads bytes that need no wait, up to len, and returns how many. */
static uint32_t read_step(struct reader_file *f, uint8_t *to, uint32_t len, uint64_t off)
{
	uint32_t got = 0;
	while (got < len) {
		int64_t n = vol_pread_now(f->file, to + got, len - got, off + got);
		if (n <= 0)
			break;
		got += (uint32_t)n;
	}
	return got;
}

/* Reads the next piece if all of it is in this machine's memory. One fiber does this alone: the
 * bytes are in the processor's cache when they are checked. */
static bool read_now(struct leat_batch *b)
{
	struct piece_io *p = &b->pieces[b->next_piece];
	struct reader_file *f;
	uint32_t unused;
	const struct leat_dataset *from = dataset_of_file(b->ds, p->file, &unused);
	if (dataset_is_packed(b->ds, p->file) || reader_get(b->reader, p->file, &f) < 0)
		return false; /* the ordinary read reports the failure */
	while (p->got < p->len) {
		uint32_t left = p->len - p->got, want = left < STEP ? left : STEP;
		b->phase = PHASE_READ;
		if (read_step(f, b->base + p->dst + p->got, want, p->off + p->got) < want)
			break;
		take_bytes(b, p, want, from_file(from));
		sum_members(b, &b->runs[p->run], p->dst + p->got);
	}
	reader_put(b->reader, f);
	if (p->got < p->len)
		return false;
	b->next_piece++;
	finish_piece(b, p);
	return true;
}

/* ---- small pieces from servers, many in one request ---- */

struct many {
	struct vol *vol;
	struct vol_read reads[MANY_MAX];
	struct reader_file *files[MANY_MAX];
	uint32_t piece[MANY_MAX], n;
	struct block_sums sums[MANY_MAX];
	uint64_t sum[MANY_MAX][MANY_BLOCKS];
};

static struct vol *vol_of(const struct leat_batch *b, const struct piece_io *p)
{
	uint32_t unused;
	return dataset_vol(b->ds, dataset_of_file(b->ds, p->file, &unused));
}

/* Prepares space for the block checksums of the next read; NULL if they are not needed. */
static struct block_sums *sums_of_small(const struct leat_batch *b, const struct piece_io *p,
					struct many *m)
{
	uint32_t unused;
	if (!dataset_has_sums(dataset_of_file(b->ds, p->file, &unused)))
		return NULL;
	m->sums[m->n] = sums_for(b, p, p->off, m->sum[m->n], MANY_BLOCKS);
	return &m->sums[m->n];
}

/* Collects small pieces of one volume from b->pieces[*at] on, and opens their files. */
static void collect(struct leat_batch *b, uint32_t *at, struct many *m)
{
	m->n = 0;
	for (; *at < b->n_pieces && m->n < MANY_MAX; (*at)++) {
		const struct piece_io *p = &b->pieces[*at];
		struct vol *vol = vol_of(b, p);
		if (p->len > MANY_LEN_MAX || !vol_reads_batches(vol) ||
		    dataset_is_packed(b->ds, p->file))
			continue;
		if (m->n > 0 && vol != m->vol)
			break;
		m->vol = vol;
		if (reader_get(b->reader, p->file, &m->files[m->n]) < 0)
			continue; /* the ordinary read reports the failure */
		m->piece[m->n] = *at;
		m->reads[m->n] = (struct vol_read){
			m->files[m->n]->file,  b->base + p->dst, p->off, p->len, 0,
			sums_of_small(b, p, m)};
		m->n++;
	}
}

static void read_many(struct leat_batch *b, struct many *m)
{
	uint32_t unused;
	b->phase = PHASE_READ;
	vol_pread_batch(m->vol, m->reads, m->n);
	for (uint32_t i = 0; i < m->n; i++) {
		struct piece_io *p = &b->pieces[m->piece[i]];
		struct came how = from_file(dataset_of_file(b->ds, p->file, &unused));
		reader_put(b->reader, m->files[i]);
		/* A piece that failed, or that has other blocks, is read alone later, which
		 * reports the reason. */
		if (m->reads[i].done != (int64_t)p->len || (b->d.rc && !b->skip_bad))
			continue;
		how.right = m->reads[i].sums != NULL;
		if (how.right && !batch_sums_are_right(b, p, m->reads[i].sums))
			continue;
		take_piece(b, p, how);
		finish_piece(b, p);
	}
}

/* Reads the small pieces in batches; read_pieces reads the others. */
static void read_small(struct leat_batch *b)
{
	uint32_t at = b->next_piece;
	struct many *m = malloc(sizeof(*m));
	while (m && at < b->n_pieces && (b->d.rc == 0 || b->skip_bad)) {
		collect(b, &at, m);
		if (m->n > 0)
			read_many(b, m);
	}
	free(m);
}

static bool touches(const struct leat_batch *b, uint32_t sample, const struct bad_range *r)
{
	for (uint32_t row = 1; row < b->n_rows; row++) {
		size_t at = batch_at(b, row, sample);
		uint64_t off = b->off[at], len = b->len[at];
		if (off != UINT64_MAX && len && off < r->dst + r->len && off + len > r->dst)
			return true;
	}
	return false;
}

static bool sample_is_bad(const struct leat_batch *b, uint32_t sample)
{
	if (b->lost[sample])
		return true;
	for (uint32_t i = 0; i < b->n_bad; i++) {
		if (touches(b, sample, &b->bad[i]))
			return true;
	}
	return false;
}

/* Removes bad samples from the batch, which becomes shorter. */
static void leave_out_bad(struct leat_batch *b)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < b->n; i++) {
		if (sample_is_bad(b, i))
			continue;
		b->ids[kept] = b->ids[i];
		b->labels[kept] = b->labels[i];
		for (uint32_t r = 1; r < b->n_rows; r++) {
			b->off[batch_at(b, r, kept)] = b->off[batch_at(b, r, i)];
			b->len[batch_at(b, r, kept)] = b->len[batch_at(b, r, i)];
		}
		kept++;
	}
	b->n_skipped = b->n - kept;
	b->n = kept;
}

void batch_fill(struct leat_batch *b, struct reader *r)
{
	struct leat_batch *bs[READS_AT_ONCE];
	b->reader = r;
	b->phase = PHASE_OPEN;
	b->next_piece = PLANTED_BUG(LOADER_UNFILLED) ? b->n_pieces : 0;
	/* Empty members that come before all runs. */
	do_jobs(b, 0, b->runs[0].first_job);
	uint64_t turn = 0, began = loop_now_us();
	while (!b->cache && b->next_piece < b->n_pieces && (b->d.rc == 0 || b->skip_bad)) {
		turn += b->pieces[b->next_piece].len;
		if (!read_now(b))
			break;
		if (turn >= TURN_MAX) {
			fiber_yield();
			turn = 0;
		}
	}
	b->at_hand_us = loop_now_us() - began;
	if (!b->cache)
		read_small(b);
	uint32_t left = 0;
	for (uint32_t i = b->next_piece; i < b->n_pieces; i++)
		left += b->pieces[i].got < b->pieces[i].len;
	uint32_t width = left < READS_AT_ONCE ? left : READS_AT_ONCE;
	for (uint32_t i = 0; i < width; i++)
		bs[i] = b;
	if (width)
		fiber_parallel("read_pieces", read_pieces, bs, sizeof(bs[0]), width, width);
	b->reader = NULL;
	for (uint32_t i = 0; i < b->n_runs && (b->d.rc == 0 || b->skip_bad); i++)
		ASSERT(b->runs[i].left == 0);
	if (b->n_decodes && (b->d.rc == 0 || b->skip_bad))
		decode_batch(b);
	if (b->d.rc && b->skip_bad) {
		leave_out_bad(b);
		b->d.rc = 0;
	}
	b->rc = b->d.rc;
}

/* ---- the public views ---- */

uint32_t leat_batch_len(const struct leat_batch *b)
{
	return b->n;
}

uint64_t leat_batch_epoch(const struct leat_batch *b)
{
	return b->epoch;
}

uint64_t leat_batch_step(const struct leat_batch *b)
{
	return b->step;
}

const uint64_t *leat_batch_ids(const struct leat_batch *b)
{
	return b->ids;
}

const int64_t *leat_batch_labels(const struct leat_batch *b)
{
	return b->labels;
}

int leat_batch_field(const struct leat_batch *b, const char *field, struct leat_view *ret_view)
{
	int f = index_field(b->ds->x, field);
	int32_t place = f < 0 ? -1 : field_place(b->set, (uint32_t)f);
	if (place < 0)
		return error_say(-LE_NOENT, "the batch has no field %s", field);
	size_t at = batch_at(b, b->row_of[place], 0), size = ret_view->size;
	struct leat_view v = {.size = size,
			      .base = b->direct ? NULL : b->base,
			      .offsets = b->off + at,
			      .lengths = b->len + at,
			      .n = b->n,
			      .verified = b->verified};
	memcpy(ret_view, &v, size < sizeof(v) ? size : sizeof(v));
	return 0;
}

void leat_batch_info(const struct leat_batch *b, struct leat_batch_info *ret_info)
{
	size_t size = ret_info->size;
	struct leat_batch_info i = {.size = size,
				    .n = b->n,
				    .epoch = b->epoch,
				    .step = b->step,
				    .ids = b->ids,
				    .labels = b->labels,
				    .base = b->direct ? NULL : b->base,
				    .len = b->direct ? 0 : b->mapped,
				    .offsets = b->off + b->cap,
				    .lengths = b->len + b->cap,
				    .stride = b->cap,
				    .n_fields = b->n_rows - 1,
				    .fields = b->place_of + 1,
				    .fd = b->fd,
				    .verified = b->verified};
	memcpy(ret_info, &i, size < sizeof(i) ? size : sizeof(i));
}

void leat_batch_memory(const struct leat_batch *b, const void **ret_base, uint64_t *ret_len,
		       int *ret_fd)
{
	*ret_base = b->direct ? NULL : b->base;
	*ret_len = b->direct ? 0 : b->mapped;
	*ret_fd = b->fd;
}
