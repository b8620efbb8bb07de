#include "client/loader/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/loader/cuda.h"
#include "client/loader/decode.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/crc32c.h"
#include "common/base/inflate.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define READS_AT_ONCE 32u
#define PIECE_MAX     (4u << 20)  /* a multiple of every block size */
#define GAP_MAX       (16u << 10) /* read what lies between rather than twice */
#define RUN_MAX       (64u << 20)
#define ALIGN         64u /* memory and file agree modulo this */
#define GROW          (2u << 20)

int field_set_init(struct field_set *s, const struct leat_dataset *ds, const char *const *names)
{
	memset(s, 0, sizeof(*s));
	for (uint32_t f = 0; f < INDEX_FIELDS_MAX; f++)
		s->place[f] = -1;
	if (!names) {
		for (uint32_t f = 0; f < ds->x->n_fields; f++) {
			s->place[f] = (int32_t)f;
			s->fields[s->n++] = f;
		}
		return 0;
	}
	for (; *names; names++) {
		int f = index_field(ds->x, *names);
		if (f < 0)
			return error_say(-LE_NOENT, "no sample has the field %s", *names);
		if (s->place[f] >= 0)
			continue;
		s->place[f] = (int32_t)s->n;
		s->fields[s->n++] = (uint32_t)f;
	}
	return 0;
}

int batch_init(struct leat_batch *b, struct leat_dataset *ds, const struct field_set *set,
	       uint32_t cap)
{
	*b = (struct leat_batch){.magic = BATCH_MAGIC, .ds = ds, .set = set, .cap = cap, .fd = -1};
	size_t n = cap ? cap : 1, fields = set->n ? set->n : 1;
	b->ids = calloc(n, sizeof(*b->ids));
	b->labels = calloc(n, sizeof(*b->labels));
	b->off = calloc(n * fields, sizeof(*b->off));
	b->len = calloc(n * fields, sizeof(*b->len));
	return b->ids && b->labels && b->off && b->len ? 0 : -LE_NOMEM;
}

void batch_fini(struct leat_batch *b)
{
	free(b->ids);
	free(b->labels);
	free(b->off);
	free(b->len);
	free(b->pieces);
	free(b->jobs);
	free(b->bad);
	free(b->decodes);
	free(b->undecoded);
	cuda_slot_destroy(b->cuda);
	if (b->base)
		munmap(b->base, b->mapped);
	if (b->fd >= 0)
		close(b->fd);
	b->magic = 0;
}

/* ---- plan ---- */

/* A run: bytes [lo, hi) of a file that land in a row at dst. */
struct run {
	uint32_t file, sample;
	uint64_t lo, hi, dst;
};

static int add_piece(struct leat_batch *b, const struct run *r, uint64_t off, uint32_t len)
{
	if (b->n_pieces == b->cap_pieces) {
		uint32_t cap = b->cap_pieces ? b->cap_pieces * 2 : 64;
		struct piece_io *more = realloc(b->pieces, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		b->pieces = more;
		b->cap_pieces = cap;
	}
	b->pieces[b->n_pieces++] =
		(struct piece_io){b, r->file, len, off, r->dst + (off - r->lo), r->sample};
	return 0;
}

/* Cut at multiples of PIECE_MAX in the file, hence between blocks. */
static int end_run(struct leat_batch *b, struct run *r)
{
	for (uint64_t at = r->lo; at < r->hi;) {
		uint64_t end = (at / PIECE_MAX + 1) * PIECE_MAX;
		if (end > r->hi)
			end = r->hi;
		TRY(add_piece(b, r, at, (uint32_t)(end - at)));
		at = end;
	}
	r->lo = r->hi = 0;
	return 0;
}

/* Whole blocks, if any of them has never been verified: a block can only be verified as a whole. */
static void widen(struct leat_dataset *whole, uint32_t file, uint64_t *lo, uint64_t *hi)
{
	const struct leat_dataset *ds = dataset_of_file(whole, file, &file);
	if (!ds->m)
		return;
	const struct manifest_file *f = &ds->m->files[ds->manifest_file[file]];
	uint64_t first = *lo / f->block, last = (*hi - 1) / f->block, i;
	for (i = first; i <= last && dataset_block_verified(ds, f->first_sum + i); i++)
		;
	if (i > last)
		return;
	*lo = first * f->block;
	*hi = (last + 1) * f->block < f->size ? (last + 1) * f->block : f->size;
}

static int plan_member(struct leat_batch *b, struct run *r, uint32_t sample,
		       const struct index_member *m, uint64_t *ret_off)
{
	uint32_t file = b->ds->x->samples[b->ids[sample]].file;
	uint64_t lo = m->off, hi = m->off + m->len;
	if (m->len == 0) {
		*ret_off = 0;
		return 0;
	}
	widen(b->ds, file, &lo, &hi);
	/* What is cached belongs to one sample, whatever stands beside it in this epoch. */
	bool join = r->hi > 0 && r->file == file && (!b->cache || r->sample == sample) &&
		    lo >= r->lo && lo <= r->hi + GAP_MAX && hi - r->lo <= RUN_MAX;
	if (!join) {
		TRY(end_run(b, r));
		uint64_t dst = (b->need + ALIGN - 1) / ALIGN * ALIGN + lo % ALIGN;
		*r = (struct run){file, sample, lo, hi, dst};
	} else if (hi > r->hi) {
		r->hi = hi;
	}
	b->need = r->dst + (r->hi - r->lo);
	*ret_off = r->dst + (m->off - r->lo);
	return 0;
}

static int add_job(struct leat_batch *b, const struct index_member *m, uint32_t sample,
		   uint32_t place)
{
	if (m->codec == INDEX_PLAIN && m->check == INDEX_UNCHECKED)
		return 0;
	if (b->n_jobs == b->cap_jobs) {
		uint32_t cap = b->cap_jobs ? b->cap_jobs * 2 : 64;
		struct member_job *more = realloc(b->jobs, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		b->jobs = more;
		b->cap_jobs = cap;
	}
	uint64_t src = b->off[(size_t)place * b->cap + sample];
	b->jobs[b->n_jobs++] = (struct member_job){b, m, src, sample, place};
	return 0;
}

/* Behind everything that is read: the room for what is unpacked. */
static void plan_unpacked(struct leat_batch *b)
{
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		const struct member_job *j = &b->jobs[i];
		if (j->m->codec == INDEX_PLAIN)
			continue;
		uint64_t dst = (b->need + ALIGN - 1) / ALIGN * ALIGN;
		b->off[(size_t)j->place * b->cap + j->sample] = dst;
		b->need = dst + j->m->raw;
	}
}

int batch_plan(struct leat_batch *b)
{
	const struct sample_index *x = b->ds->x;
	struct run r = {0};
	b->n_pieces = b->n_jobs = 0;
	b->need = 0;
	b->rc = 0;
	b->d.rc = 0;
	b->n_bad = 0;
	b->n_skipped = 0;
	b->bytes_local = b->bytes_server = b->bytes_verified = 0;
	b->verified = dataset_is_verified(b->ds);
	for (uint32_t i = 0; i < b->n; i++) {
		const struct index_sample *s = &x->samples[b->ids[i]];
		b->labels[i] = s->label;
		for (uint32_t f = 0; f < b->set->n; f++) {
			b->off[(size_t)f * b->cap + i] = UINT64_MAX;
			b->len[(size_t)f * b->cap + i] = 0;
		}
		for (uint64_t k = s[0].first; k < s[1].first; k++) {
			const struct index_member *m = &x->members[k];
			int32_t place = b->set->place[m->field];
			if (place < 0)
				continue;
			TRY(plan_member(b, &r, i, m, &b->off[(size_t)place * b->cap + i]));
			b->len[(size_t)place * b->cap + i] = m->raw;
			TRY(add_job(b, m, i, (uint32_t)place));
		}
	}
	TRY(end_run(b, &r));
	plan_unpacked(b);
	return decode_plan(b);
}

/* ---- memory ---- */

uint64_t batch_memory_for(uint64_t need)
{
	return (need + GROW - 1) / GROW * GROW;
}

int batch_set_memory(struct leat_batch *b, uint64_t bytes)
{
	cuda_slot_detach(b->cuda);
	if (b->base)
		munmap(b->base, b->mapped);
	b->base = NULL;
	b->mapped = 0;
	if (b->fd < 0)
		b->fd = memfd_create("leat-batch", MFD_CLOEXEC);
	if (b->fd < 0)
		return -LE_NOMEM;
	/* Down to nothing first: what a former batch left there is given back. */
	if (ftruncate(b->fd, 0) < 0 || ftruncate(b->fd, (off_t)bytes) < 0)
		return -LE_NOMEM;
	if (bytes == 0)
		return 0;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (p == MAP_FAILED)
		return -LE_NOMEM;
	b->base = p;
	b->mapped = bytes;
	return 0;
}

/* ---- fill ---- */

static void add_bad(struct leat_batch *b, uint64_t dst, uint64_t len)
{
	if (b->n_bad == b->cap_bad) {
		uint32_t cap = b->cap_bad ? b->cap_bad * 2 : 16;
		struct bad_range *more = realloc(b->bad, cap * sizeof(*more));
		if (!more) {
			b->skip_bad = false; /* then the whole batch fails */
			return;
		}
		b->bad = more;
		b->cap_bad = cap;
	}
	b->bad[b->n_bad++] = (struct bad_range){dst, len};
}

/* Bytes [off, off + len) of the piece's file cannot be had. */
static void fail_piece(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off,
		       uint64_t len, const char *what)
{
	struct leat_dataset *ds = b->ds;
	uint32_t unused;
	add_bad(b, p->dst + (off - p->off), len);
	if (b->d.rc == 0) {
		b->d.origin = dataset_of_file(ds, p->file, &unused)->vol->origin;
		b->d.what[0] = 0;
		detail_set(&b->d, rc, index_string(ds->x, ds->x->files[p->file].path), off,
			   "%s: %s", what, status_text(rc));
	}
}

/* The blocks that lie wholly inside and were never verified. */
static void verify_piece(struct leat_batch *b, const struct piece_io *p)
{
	uint32_t file;
	struct leat_dataset *ds = dataset_of_file(b->ds, p->file, &file);
	const struct manifest_file *f = &ds->m->files[ds->manifest_file[file]];
	uint64_t end = p->off + p->len;
	for (uint64_t i = (p->off + f->block - 1) / f->block; i * f->block < end; i++) {
		uint64_t at = i * f->block,
			 stop = at + f->block < f->size ? at + f->block : f->size;
		if (stop > end)
			break;
		if (dataset_block_verified(ds, f->first_sum + i))
			continue;
		if (checksum64(b->base + p->dst + (at - p->off), stop - at) !=
		    ds->m->sums[f->first_sum + i]) {
			fail_piece(b, p, -LE_CORRUPT, at, stop - at, "the copy is damaged");
			if (!b->skip_bad)
				return;
			continue;
		}
		dataset_set_verified(ds, f->first_sum + i);
		b->bytes_verified += stop - at;
	}
}

/* Which piece of the cache it is. Of staged copies there is none. */
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

static void read_piece(struct leat_batch *b, struct piece_io *p)
{
	struct reader_file *f;
	struct cache_use use;
	bool cached = cached_as(b, p, &use);
	if (cached && cache_get(b->cache, &use, b->base + p->dst)) {
		b->bytes_verified += b->verified ? p->len : 0;
		return;
	}
	int rc = reader_get(b->reader, p->file, &f);
	if (rc < 0) {
		fail_piece(b, p, rc, p->off, p->len, "cannot open it");
		return;
	}
	b->phase = PHASE_READ;
	rc = vol_pread_all(f->file, b->base + p->dst, p->len, p->off);
	reader_put(b->reader, f);
	if (rc < 0) {
		fail_piece(b, p, rc, p->off, p->len,
			   rc == -LE_NODATA ? "the file is shorter than it was" : "cannot read it");
		return;
	}
	uint32_t unused;
	const struct leat_dataset *from = dataset_of_file(b->ds, p->file, &unused);
	bool remote = from->vol->origin == ORIGIN_SERVER;
	*(remote ? &b->bytes_server : &b->bytes_local) += p->len;
	b->phase = PHASE_VERIFY;
	if (from->m)
		verify_piece(b, p);
	else if (remote)
		b->bytes_verified += p->len;
	if (cached)
		cache_put(b->cache, &use, b->base + p->dst);
}

static void read_pieces(void *arg)
{
	struct leat_batch *b = *(struct leat_batch **)arg;
	while (b->next_piece < b->n_pieces && (b->d.rc == 0 || b->skip_bad))
		read_piece(b, &b->pieces[b->next_piece++]);
}

/* ---- members: unpacked, checked ---- */

bool batch_is_bad(const struct leat_batch *b, uint64_t off, uint64_t len)
{
	for (uint32_t i = 0; i < b->n_bad; i++) {
		if (off < b->bad[i].dst + b->bad[i].len && off + len > b->bad[i].dst)
			return true;
	}
	return false;
}

struct inflating {
	const struct member_job *j;
	uint8_t *dst;
	int rc;
};

/* On a worker thread. */
static void inflate_member(void *arg)
{
	struct inflating *w = arg;
	const struct index_member *m = w->j->m;
	w->rc = inflate_raw(w->j->b->base + w->j->src, m->len, w->dst, m->raw);
}

static bool check_is_right(const struct index_member *m, const uint8_t *data)
{
	if (m->check == INDEX_CRC32C)
		return crc32c(data, m->raw) == m->crc;
	return m->check != INDEX_CRC32 || crc32_zip(data, m->raw) == m->crc;
}

static void fail_member(const struct member_job *j, uint64_t dst, int rc, const char *what)
{
	struct leat_batch *b = j->b;
	const struct index_sample *s = &b->ds->x->samples[b->ids[j->sample]];
	struct piece_io p = {.b = b, .file = s->file, .off = j->m->off, .dst = dst};
	fail_piece(b, &p, rc, j->m->off, j->m->raw ? j->m->raw : 1, what);
	for (uint32_t i = 0; i < b->n_pieces; i++) {
		struct cache_use use;
		if (b->pieces[i].sample == j->sample && cached_as(b, &b->pieces[i], &use))
			cache_drop(b->cache, &use.key);
	}
}

static void do_job(struct member_job *j)
{
	struct leat_batch *b = j->b;
	uint64_t dst = b->off[(size_t)j->place * b->cap + j->sample];
	if (batch_is_bad(b, j->src, j->m->len)) {
		/* Its sample goes, whose bytes these are not. */
		if (dst != j->src)
			add_bad(b, dst, j->m->raw);
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
	if (!check_is_right(j->m, b->base + dst))
		fail_member(j, dst, -LE_CORRUPT, "the checksum in the file is another");
}

static void do_jobs(void *arg)
{
	struct leat_batch *b = *(struct leat_batch **)arg;
	b->phase = PHASE_VERIFY;
	while (b->next_job < b->n_jobs && (b->d.rc == 0 || b->skip_bad))
		do_job(&b->jobs[b->next_job++]);
}

static bool touches(const struct leat_batch *b, uint32_t sample, const struct bad_range *r)
{
	for (uint32_t f = 0; f < b->set->n; f++) {
		uint64_t off = b->off[(size_t)f * b->cap + sample],
			 len = b->len[(size_t)f * b->cap + sample];
		if (off != UINT64_MAX && len && off < r->dst + r->len && off + len > r->dst)
			return true;
	}
	return false;
}

static bool sample_is_bad(const struct leat_batch *b, uint32_t sample)
{
	if (b->n_decodes && b->undecoded[sample])
		return true;
	for (uint32_t i = 0; i < b->n_bad; i++) {
		if (touches(b, sample, &b->bad[i]))
			return true;
	}
	return false;
}

/* The others move up: a skipped sample shortens its batch. */
static void leave_out_bad(struct leat_batch *b)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < b->n; i++) {
		if (sample_is_bad(b, i))
			continue;
		b->ids[kept] = b->ids[i];
		b->labels[kept] = b->labels[i];
		for (uint32_t f = 0; f < b->set->n; f++) {
			b->off[(size_t)f * b->cap + kept] = b->off[(size_t)f * b->cap + i];
			b->len[(size_t)f * b->cap + kept] = b->len[(size_t)f * b->cap + i];
		}
		kept++;
	}
	b->n_skipped = b->n - kept;
	b->n = kept;
}

void batch_fill(struct leat_batch *b, struct reader *r)
{
	struct leat_batch *bs[READS_AT_ONCE];
	uint32_t width = b->n_pieces < READS_AT_ONCE ? b->n_pieces : READS_AT_ONCE;
	b->reader = r;
	b->phase = PHASE_OPEN;
	b->next_piece = 0;
	for (uint32_t i = 0; i < width; i++)
		bs[i] = b;
	if (width)
		fiber_parallel("read_pieces", read_pieces, bs, sizeof(bs[0]), width, width);
	b->next_job = 0;
	width = b->n_jobs < READS_AT_ONCE ? b->n_jobs : READS_AT_ONCE;
	for (uint32_t i = 0; i < width; i++)
		bs[i] = b;
	if (width)
		fiber_parallel("unpack", do_jobs, bs, sizeof(bs[0]), width, width);
	b->reader = NULL;
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
	if (f < 0 || b->set->place[f] < 0)
		return error_say(-LE_NOENT, "the batch has no field %s", field);
	size_t at = (size_t)b->set->place[f] * b->cap, size = ret_view->size;
	struct leat_view v = {.size = size,
			      .base = b->base,
			      .offsets = b->off + at,
			      .lengths = b->len + at,
			      .n = b->n,
			      .verified = b->verified};
	memcpy(ret_view, &v, size < sizeof(v) ? size : sizeof(v));
	return 0;
}

void leat_batch_memory(const struct leat_batch *b, const void **ret_base, uint64_t *ret_len,
		       int *ret_fd)
{
	*ret_base = b->base;
	*ret_len = b->mapped;
	*ret_fd = b->fd;
}
