#include "client/loader/mend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/loader/peer.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

struct mend {
	struct leat_dataset *ds;
	bool ask_peers;
	struct fmutex lock; /* of the first question: on the loop of fs, the only one there is */
	struct peer_source *peers; /* of a copy, from the first damage on */
};

int mend_create(struct leat_dataset *ds, bool ask_peers, struct mend **ret_mend)
{
	struct mend *x = calloc(1, sizeof(*x));
	if (!x)
		return -LE_NOMEM;
	x->ds = ds;
	x->ask_peers = ask_peers && ds->io.fs;
	fmutex_init(&x->lock);
	*ret_mend = x;
	return 0;
}

void mend_destroy(struct mend *x)
{
	if (!x)
		return;
	peer_destroy(x->peers);
	free(x);
}

/* ---- from other nodes ---- */

/* Of a copy nobody is asked before something is wrong with it. */
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

/* ---- from where the copy was made of ---- */

/* NULL: it is in a cluster that this data set is not connected to. */
static struct vol *source_of(const struct leat_dataset *ds, const struct leat_dataset *via)
{
	const struct uuid here = dataset_cluster(ds);
	if (uuid_is_zero(&ds->m->cluster))
		return via->io.local;
	return uuid_equal(&ds->m->cluster, &here) ? via->io.remote : NULL;
}

/* Bytes within one chunk: whole blocks into buf, what is wanted of them to `to`. */
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
	int n = snprintf(path, sizeof(path), "%s/%s", ds->m->source, ds->m->files[r->file].path);
	if (n >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
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

enum detail_origin mend_read(struct leat_dataset *ds, const struct leat_dataset *via,
			     const struct mend_range *r, uint8_t *to)
{
	if (!ds->mend)
		return ORIGIN_NONE;
	if (read_peers(ds->mend, r, to))
		return ORIGIN_PEER;
	struct vol *v = ds->is_copy ? source_of(ds, via) : NULL;
	return v && read_source(ds, v, r, to) == 0 ? v->origin : ORIGIN_NONE;
}
