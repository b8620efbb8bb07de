/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/unpacked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/dataset/formats/unstream.h"
#include "client/loader/source/checked.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/base/state_machine.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define WAIT_US  1000u
#define AGAIN_US 5000000u /* retry interval after a failure */
#define STEP     (1u << 20)

enum shard_state {
	SHARD_NONE,
	SHARD_MAKING,
	SHARD_READY,
	N_SHARD_STATES
};

#define TO(state) (1u << SHARD_##state)
STATE_MACHINE(shard_moves, "shard", N_SHARD_STATES, .states = {"none", "making", "ready"},
	   .allowed = {
		   [SHARD_NONE] = TO(MAKING),
		   [SHARD_MAKING] = TO(READY) | TO(NONE),
		   [SHARD_READY] = TO(NONE),
	   })

struct shard {
	struct list link; /* in `idle` if READY and not being read */
	enum shard_state state;
	uint32_t refs;
	uint8_t *mem;
	int rc; /* of the last failure; failed_us is its time */
	uint64_t failed_us;
	char what[200];
};

struct unpacked {
	pthread_mutex_t lock;
	const struct sample_index *x;
	uint64_t limit, used;
	struct list idle; /* least recently read first */
	struct shard *shards;
};

int unpacked_create(const struct sample_index *x, uint64_t limit, struct unpacked **ret_unpacked,
		    struct detail *d)
{
	bool any = false;
	*ret_unpacked = NULL;
	limit = limit ? limit : UNPACK_BYTES_DEFAULT;
	for (uint32_t i = 0; i < x->n_files; i++) {
		const struct index_file *f = &x->files[i];
		any |= f->packing != PACKED_NOT;
		if (f->packing != PACKED_NOT && f->plain > limit)
			return detail_set(d, -LE_FBIG, index_string(x, f->path), UINT64_MAX,
					  "it has %llu unpacked bytes, more than unpack_bytes "
					  "(%llu): raise unpack_bytes, or unpack the file",
					  (unsigned long long)f->plain, (unsigned long long)limit);
	}
	if (!any)
		return 0;
	struct unpacked *u = calloc(1, sizeof(*u));
	if (u)
		u->shards = calloc((size_t)x->n_files + 1, sizeof(*u->shards));
	if (!u || !u->shards) {
		free(u);
		return -LE_NOMEM;
	}
	u->x = x;
	u->limit = limit;
	list_init(&u->idle);
	pthread_mutex_init(&u->lock, NULL);
	*ret_unpacked = u;
	return 0;
}

static void shard_move(struct shard *s, enum shard_state to)
{
	s->state = (enum shard_state)state_machine_move(&shard_moves, (int)s->state, (int)to);
}

static uint64_t size_of(const struct unpacked *u, const struct shard *s)
{
	return u->x->files[s - u->shards].plain;
}

static void let_go(struct unpacked *u, struct shard *s)
{
	ASSERT(s->refs == 0 && u->used >= size_of(u, s));
	if (s->mem)
		munmap(s->mem, size_of(u, s));
	s->mem = NULL;
	shard_move(s, SHARD_NONE);
	u->used -= size_of(u, s);
}

void unpacked_destroy(struct unpacked *u)
{
	struct list *l;
	if (!u)
		return;
	while ((l = list_pop(&u->idle)) != NULL)
		let_go(u, list_entry(l, struct shard, link));
	ASSERT(u->used == 0);
	pthread_mutex_destroy(&u->lock);
	free(u->shards);
	free(u);
}

/* ---- one shard ---- */

static int64_t read_packed(void *arg, void *buf, size_t len, uint64_t off)
{
	return vol_pread(arg, buf, len, off);
}

/* Unpacks the stream, which must yield exactly size bytes. */
static int unpack_all(struct unstream *s, uint8_t *mem, uint64_t size, struct format_fault *f)
{
	uint8_t more;
	for (uint64_t at = 0; at < size;) {
		int64_t n = unstream_next(s, mem + at, size - at < STEP ? size - at : STEP, f);
		if (n < 0)
			return (int)n;
		if (n == 0)
			return format_damaged(f, 0,
					      "its unpacked contents are shorter than when it was "
					      "indexed: it has changed");
		at += (uint64_t)n;
	}
	int64_t n = unstream_next(s, &more, 1, f);
	return n > 0 ? format_damaged(f, 0,
				      "its unpacked contents are longer than when it was indexed: "
				      "it has changed")
		     : (int)n;
}

static int unpack_file(const struct unpacked *u, struct vol_file *file, struct shard *s,
		       struct detail *d)
{
	const struct index_file *f = &u->x->files[s - u->shards];
	struct format_input in = {read_packed, file, f->size, NULL};
	struct format_fault fault = {UINT64_MAX, ""};
	struct unstream *stream;
	TRY(unstream_create((enum packing)f->packing, &in, &stream));
	void *mem = f->plain ? mmap(NULL, f->plain, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			     : NULL;
	int rc = mem == MAP_FAILED ? -LE_NOMEM : unpack_all(stream, mem, f->plain, &fault);
	unstream_destroy(stream);
	if (rc == 0)
		s->mem = mem;
	else if (mem && mem != MAP_FAILED)
		munmap(mem, f->plain);
	if (rc < 0 && fault.what[0])
		detail_set(d, rc, index_string(u->x, f->path), fault.off, "%s", fault.what);
	return rc;
}

static int make(struct leat_dataset *from, const struct leat_dataset *via, struct shard *s,
		struct detail *d)
{
	const struct unpacked *u = from->unpacked;
	const char *name = index_string(u->x, u->x->files[s - u->shards].path);
	struct vol *checked = NULL, *v = dataset_vol(via, from);
	struct vol_file *file;
	char path[4096];
	if (snprintf(path, sizeof(path), "%s/%s", from->root, name) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	if (from->m)
		TRY(checked_vol_create(from, d, &checked));
	int rc = vol_open(checked ? checked : v, path, &file);
	if (rc == 0) {
		rc = unpack_file(u, file, s, d);
		vol_close(file);
	}
	vol_destroy(checked);
	return rc < 0 ? detail_set(d, rc, name, UINT64_MAX, "cannot read it: %s", status_text(rc))
		      : 0;
}

/* ---- all shards ---- */

/* With the lock. Reserves size bytes; drops shards that are not being read. */
static bool make_space(struct unpacked *u, uint64_t size)
{
	ASSERT(u->used <= u->limit);
	while (size > u->limit - u->used) {
		struct list *l = list_pop(&u->idle);
		if (!l)
			return false;
		let_go(u, list_entry(l, struct shard, link));
	}
	u->used += size;
	return true;
}

/* With the lock, which is released while the shard is unpacked. */
static int make_one(struct leat_dataset *from, const struct leat_dataset *via, struct shard *s,
		    struct detail *d)
{
	struct unpacked *u = from->unpacked;
	shard_move(s, SHARD_MAKING);
	pthread_mutex_unlock(&u->lock);
	int rc = make(from, via, s, d);
	pthread_mutex_lock(&u->lock);
	s->rc = rc;
	if (rc == 0) {
		shard_move(s, SHARD_READY);
		return 0;
	}
	let_go(u, s);
	s->failed_us = loop_now_us();
	snprintf(s->what, sizeof(s->what), "%s", d->what);
	return rc;
}

/* With the lock. Returns 1 with a reference to the shard, or 0: try again later. */
static int look(struct leat_dataset *from, const struct leat_dataset *via, struct shard *s,
		struct detail *d)
{
	struct unpacked *u = from->unpacked;
	if (s->state == SHARD_READY) {
		if (s->refs == 0)
			list_remove(&s->link);
		s->refs++;
		return 1;
	}
	if (s->state == SHARD_MAKING)
		return 0;
	if (s->rc < 0 && loop_now_us() - s->failed_us < AGAIN_US)
		return detail_set(d, s->rc, index_string(u->x, u->x->files[s - u->shards].path),
				  UINT64_MAX, "%s", s->what);
	if (!make_space(u, size_of(u, s)))
		return 0;
	TRY(make_one(from, via, s, d));
	s->refs = 1;
	return 1;
}

int unpacked_read(struct leat_dataset *from, const struct leat_dataset *via,
		  const struct unpacked_range *r, uint8_t *to, struct detail *d)
{
	struct unpacked *u = from->unpacked;
	struct shard *s = &u->shards[r->file];
	int rc = 0;
	pthread_mutex_lock(&u->lock);
	while (rc == 0) {
		rc = look(from, via, s, d);
		if (rc != 0)
			break;
		pthread_mutex_unlock(&u->lock);
		rc = fiber_sleep_us(WAIT_US);
		pthread_mutex_lock(&u->lock);
	}
	pthread_mutex_unlock(&u->lock);
	if (rc < 0)
		return detail_set(d, rc, NULL, UINT64_MAX, "%s", status_text(rc));
	memcpy(to, s->mem + r->off, r->len);
	pthread_mutex_lock(&u->lock);
	ASSERT(s->state == SHARD_READY && s->refs > 0);
	if (--s->refs == 0)
		list_push(&u->idle, &s->link);
	pthread_mutex_unlock(&u->lock);
	return 0;
}
