/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/mend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/loader/source/dataset_facts.h"
#include "client/loader/source/peer.h"
#include "client/stage/heal.h"
#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define AT_ONCE  256u     /* chunks that are repaired under one lock of the copy */
#define AGAIN_US 1000000u /* retry interval while another process holds the copy's lock */
#define CLOSE_US 10000000u

#define MEND_MAGIC 0x4c4d4e44u /* LMND */

struct mend {
	uint32_t magic;
	bool ask_peers;
	struct leat_dataset *ds;
	struct fmutex lock;        /* for making peers, on the only loop: that of fs */
	struct peer_source *peers; /* for a copy, made at the first damage */

	pthread_mutex_t books; /* guards the two members below: any loop reports damage */
	uint8_t *damaged;      /* a bit for each chunk of the copy; NULL: none so far */
	uint64_t n_damaged;
	struct mail mail;
	_Atomic bool posted;
	_Atomic uint64_t healed;
	/* Owned by io.loop. */
	bool begun, closing, told;
	uint64_t close_us;
	struct waitq wake;
	struct latch fiber;
};

static void on_damage(struct mail *m);

int mend_create(struct leat_dataset *ds, bool ask_peers, struct mend **ret_mend)
{
	struct mend *x = calloc(1, sizeof(*x));
	if (!x)
		return -LE_NOMEM;
	x->magic = MEND_MAGIC;
	x->ds = ds;
	x->ask_peers = ask_peers && ds->io.fs;
	fmutex_init(&x->lock);
	pthread_mutex_init(&x->books, NULL);
	x->mail.fn = on_damage;
	waitq_init(&x->wake);
	latch_init(&x->fiber, 0);
	*ret_mend = x;
	return 0;
}

void mend_destroy(struct mend *x)
{
	if (!x)
		return;
	x->closing = true;
	x->close_us = loop_now_us() + CLOSE_US;
	waitq_wake_all(&x->wake);
	latch_wait(&x->fiber);
	peer_destroy(x->peers);
	pthread_mutex_destroy(&x->books);
	free(x->damaged);
	x->magic = 0;
	free(x);
}

/* ---- from other nodes ---- */

/* For a copy, connects to other nodes only when damage is found. */
static struct peer_source *peers_of(struct mend *x)
{
	struct peer_options o = {.fs = x->ds->io.fs, .m = x->ds->m};
	if (!x->ask_peers || x->ds->peers)
		return x->ds->peers;
	fmutex_lock(&x->lock);
	if (!x->peers && peer_create(&o, &x->peers) < 0)
		x->peers = NULL;
	fmutex_unlock(&x->lock);
	return x->peers;
}

static bool read_peers(struct mend *x, const struct mend_range *r, uint8_t *to)
{
	const struct peer_range want = {r->file, r->off, r->len};
	struct peer_source *p = peers_of(x);
	return p && peer_read(p, &want, to);
}

/* ---- from the source of the copy ---- */

/* Returns the volume of the copy's source; NULL: the data set is not connected to that cluster. */
static struct vol *source_of(const struct leat_dataset *ds, const struct leat_dataset *via)
{
	const struct uuid here = io_cluster(&ds->io);
	if (uuid_is_zero(&ds->m->cluster))
		return via->io.local;
	return uuid_equal(&ds->m->cluster, &here) ? via->io.remote : NULL;
}

/* Reads a range within one chunk: whole blocks into buf, and from there the requested bytes to
 * `to`. */
static int read_chunk(const struct leat_dataset *ds, struct vol_file *file,
		      const struct mend_range *r, uint8_t *buf, uint8_t *to)
{
	const struct manifest_file *f = &ds->m->files[r->file];
	uint64_t lo = r->off / f->block * f->block;
	uint64_t hi = (r->off + r->len + f->block - 1) / f->block * f->block;
	if (hi > f->size)
		hi = f->size;
	TRY(vol_pread_all(file, buf, hi - lo, lo));
	if (manifest_check(ds->m, f, lo, buf, hi - lo) >= 0)
		return -LE_STALE;
	memcpy(to, buf + (r->off - lo), r->len);
	return 0;
}

static int read_source(const struct leat_dataset *ds, struct vol *v, const struct mend_range *r,
		       uint8_t *to)
{
	char path[4096];
	struct vol_file *file;
	TRY(manifest_source_path(ds->m, &ds->m->files[r->file], path));
	TRY(vol_open_for_parts(v, path, &file));
	uint8_t *buf = malloc(MANIFEST_CHUNK);
	int rc = buf ? 0 : -LE_NOMEM;
	for (uint64_t at = r->off, end = r->off + r->len; at < end && rc == 0;) {
		uint64_t stop = (at / MANIFEST_CHUNK + 1) * MANIFEST_CHUNK;
		stop = stop < end ? stop : end;
		const struct mend_range part = {r->file, at, stop - at};
		rc = read_chunk(ds, file, &part, buf, to + (at - r->off));
		at = stop;
	}
	free(buf);
	vol_close(file);
	return rc;
}

static enum detail_origin read_elsewhere(struct leat_dataset *ds, const struct leat_dataset *via,
					 const struct mend_range *r, uint8_t *to)
{
	if (read_peers(ds->mend, r, to))
		return ORIGIN_PEER;
	struct vol *v = ds->is_copy ? source_of(ds, via) : NULL;
	return v && read_source(ds, v, r, to) == 0 ? v->origin : ORIGIN_NONE;
}

/* ---- repair ---- */

/* Moves up to AT_ONCE damaged chunks from the bitmap to `chunks`. */
static uint32_t take_damaged(struct mend *x, uint64_t *chunks)
{
	uint32_t n = 0;
	pthread_mutex_lock(&x->books);
	for (uint64_t c = 0; x->n_damaged && n < AT_ONCE && c < x->ds->m->n_chunks; c++) {
		if (!(x->damaged[c / 8] >> (c % 8) & 1))
			continue;
		x->damaged[c / 8] &= (uint8_t) ~(1u << c % 8);
		x->n_damaged--;
		chunks[n++] = c;
	}
	pthread_mutex_unlock(&x->books);
	return n;
}

static void add_damaged(struct mend *x, uint64_t first, uint64_t last)
{
	pthread_mutex_lock(&x->books);
	if (!x->damaged)
		x->damaged = calloc(1, x->ds->m->n_chunks / 8 + 1);
	ASSERT(first <= last && last < x->ds->m->n_chunks);
	for (uint64_t c = first; x->damaged && c <= last; c++) {
		x->n_damaged += !(x->damaged[c / 8] >> (c % 8) & 1);
		x->damaged[c / 8] |= (uint8_t)(1u << c % 8);
	}
	pthread_mutex_unlock(&x->books);
}

static int read_right(void *arg, uint32_t file, uint64_t off, uint64_t len, void *ret_bytes)
{
	struct leat_dataset *ds = CAST_OBJ(arg, struct leat_dataset, DATASET_MAGIC);
	const struct mend_range r = {file, off, len};
	return read_elsewhere(ds, ds, &r, ret_bytes) == ORIGIN_NONE ? -LE_CORRUPT : 0;
}

/* Computes the copy's directory: ds->root is DIR/.leat/ID/data. */
static bool dir_of(const struct leat_dataset *ds, char ret_to[4096])
{
	char end[sizeof("/.leat/") + MANIFEST_ID_SIZE + sizeof("/data")];
	snprintf(end, sizeof(end), "/.leat/%s/data", ds->m->id);
	size_t len = strlen(ds->root), n = strlen(end);
	if (len < n || strcmp(ds->root + len - n, end) != 0)
		return false;
	snprintf(ret_to, 4096, "%.*s", len == n ? 1 : (int)(len - n), len == n ? "/" : ds->root);
	return true;
}

/* Reports chunks to the agent, for a process that may not write to the copy. Chunks that were
 * not reported stay in `chunks`; -LE_BUSY: the agent must check others first. */
static int report_to_agent(struct mend *x, uint64_t *chunks, uint32_t *n)
{
	struct peer_source *p = peers_of(x);
	int rc = p ? 0 : -LE_NOENT;
	uint32_t told = 0;
	while (told < *n && rc == 0) {
		rc = peer_report_damage(p, chunks[told]);
		told += rc == 0;
	}
	*n -= told;
	memmove(chunks, chunks + told, *n * sizeof(*chunks));
	return rc;
}

/* Repairs chunks. -LE_BUSY: the chunks that stay in `chunks` must be tried again later. */
static int heal(struct mend *x, uint64_t *chunks, uint32_t *n)
{
	struct leat_dataset *ds = x->ds;
	char to[4096];
	struct heal_report r;
	if (!dir_of(ds, to))
		return -LE_NOENT;
	const struct heal_options o = {.env = ds->io.env,
				       .to = to,
				       .id = ds->m->id,
				       .m = ds->m,
				       .read = read_right,
				       .arg = ds};
	int rc = copy_heal(&o, chunks, *n, &r);
	x->healed += r.healed;
	if (r.healed)
		log_warn("%s/.leat/%.12s: %u damaged chunks have been put right", to, ds->m->id,
			 r.healed);
	if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_ROFS) {
		int told = report_to_agent(x, chunks, n);
		rc = told == 0 || told == -LE_BUSY ? told : rc;
	}
	/* Logs once: each further read finds the damage again. */
	if (((rc < 0 && rc != -LE_BUSY) || r.left) && !x->told) {
		x->told = true;
		log_warn("%s/.leat/%.12s is damaged, and this process cannot repair all of it "
			 "(%s): run leat stage in",
			 to, ds->m->id,
			 rc < 0     ? status_text(rc)
			 : r.why[0] ? r.why
				    : "files are incomplete");
	}
	return rc;
}

static void heal_fiber(void *arg)
{
	struct mend *x = CAST_OBJ(arg, struct mend, MEND_MAGIC);
	uint64_t *chunks = malloc(AT_ONCE * sizeof(*chunks));
	bool hopeless = false;
	while (chunks && !hopeless && !(x->closing && loop_now_us() >= x->close_us)) {
		uint32_t n = take_damaged(x, chunks), left = n;
		if (n == 0 && x->closing)
			break;
		int rc = n ? heal(x, chunks, &left) : 0;
		if (rc == -LE_BUSY) {
			for (uint32_t i = 0; i < left; i++)
				add_damaged(x, chunks[i], chunks[i]);
			/* The holder of the lock may be repairing them. */
			if (x->closing)
				break;
		}
		hopeless = rc < 0 && rc != -LE_BUSY;
		if (n == 0 || rc == -LE_BUSY) {
			int woken =
				waitq_wait(&x->wake, n ? loop_now_us() + AGAIN_US : NO_DEADLINE);
			(void)woken;
		}
	}
	free(chunks);
	latch_done(&x->fiber);
}

static void on_damage(struct mail *m)
{
	struct mend *x = container_of(m, struct mend, mail);
	atomic_store(&x->posted, false);
	if (!x->begun && !x->closing) {
		x->begun = true;
		latch_add(&x->fiber, 1);
		if (fiber_spawn("heal", heal_fiber, x) < 0) {
			x->begun = false;
			latch_done(&x->fiber);
		}
	}
	waitq_wake_all(&x->wake);
}

static void note_damage(struct mend *x, const struct mend_range *r)
{
	const struct manifest_file *f = &x->ds->m->files[r->file];
	if (r->len == 0)
		return;
	add_damaged(x, f->first_chunk + r->off / MANIFEST_CHUNK,
		    f->first_chunk + (r->off + r->len - 1) / MANIFEST_CHUNK);
	if (!atomic_exchange(&x->posted, true))
		loop_post(x->ds->io.loop, &x->mail);
}

void mend_tell(const struct mend *x, struct leat_loader_metrics *m)
{
	m->chunks_healed += x->healed;
}

enum detail_origin mend_read(struct leat_dataset *ds, const struct leat_dataset *via,
			     const struct mend_range *r, uint8_t *to)
{
	if (!ds->mend)
		return ORIGIN_NONE;
	enum detail_origin from = read_elsewhere(ds, via, r, to);
	if (from != ORIGIN_NONE && ds->is_copy)
		note_damage(ds->mend, r);
	return from;
}
