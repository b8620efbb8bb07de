/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ossd/chunk/store_rig.h"

#include <stdlib.h>

#include "common/kv/kv.h"
#include "common/kv/kv_sim.h"
#include "ossd/check.h"
#include "ossd/chunk/chunk_read.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/format.h"
#include "tests/lib/sealed.h"

#define LIMIT_US (3600ULL * 1000000)

void rig_init(struct rig *r, uint64_t seed)
{
	struct sim_options so = {.kv_open = kv_sim_open};
	struct config_section s = {"ossd", ossd_param_table, n_ossd_params, &r->params};

	memset(r, 0, sizeof(*r));
	config_defaults(&s, 1);
	snprintf(r->params.data_dir, sizeof(r->params.data_dir), "%s", RIG_DIR);
	r->params.data_size = 16 << 20;
	r->params.grow_step = 1 << 20;
	r->params.zero_ahead = 1 << 20;
	r->params.cache_size = 1 << 16;
	r->params.read_slots = 4;
	r->params.small_slots = 16;
	r->params.merge_slots = 2;
	ASSERT(sim_create(seed, &so, &r->sim) == 0);
	r->proc = sim_proc_create(r->sim, "ossd");
}

void rig_fini(struct rig *r)
{
	sim_destroy(r->sim);
}

static void rig_main(struct loop *loop, void *arg)
{
	struct rig *r = arg;
	struct env *env = loop_env(loop);

	if (!r->formatted)
		ASSERT(ossd_format(env, &r->params, false) == 0);
	r->formatted = true;
	ASSERT(chunk_store_open(env, &r->params, &r->metrics, &r->store) == 0);
	ASSERT(slot_pool_create(OSSD_SLOT_SIZE, 8, &r->pool) == 0);
	r->fn(r, r->arg);
	slot_pool_destroy(r->pool);
	chunk_store_close(r->store);
	r->store = NULL;
	r->done = true;
}

static bool is_done(void *arg)
{
	return ((struct rig *)arg)->done;
}

void rig_run(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg)
{
	r->fn = fn;
	r->arg = arg;
	r->done = false;
	ASSERT(sim_proc_start(r->proc, rig_main, r) == 0);
	ASSERT(sim_run(r->sim, is_done, r, sim_now_us(r->sim) + LIMIT_US) == 0);
	sim_proc_crash(r->proc); /* the store is closed: nothing is lost */
}

bool rig_run_crash(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg, uint64_t events)
{
	bool crashed;

	r->fn = fn;
	r->arg = arg;
	r->done = false;
	ASSERT(sim_proc_start(r->proc, rig_main, r) == 0);
	while (events-- && !r->done)
		ASSERT(sim_step(r->sim));
	crashed = !r->done;
	sim_proc_crash(r->proc);
	r->store = NULL;
	return crashed;
}

struct check_run {
	struct rig *r;
	bool verify;
	uint64_t problems;
};

static void check_main(struct loop *loop, void *arg)
{
	struct check_run *c = arg;

	int rc = ossd_check(loop_env(loop), &c->r->params, c->verify, stderr, &c->problems);

	if (rc < 0)
		PANIC("check: %s", status_name(rc));
	c->r->done = true;
}

uint64_t rig_check(struct rig *r, bool verify)
{
	struct check_run c = {r, verify, 0};

	r->done = false;
	ASSERT(sim_proc_start(r->proc, check_main, &c) == 0);
	ASSERT(sim_run(r->sim, is_done, r, sim_now_us(r->sim) + LIMIT_US) == 0);
	sim_proc_crash(r->proc);
	return c.problems;
}

/* ---- data ---- */

int rig_write(struct rig *r, const struct chunk_key *id, uint32_t chunk_size, uint32_t off,
	      const void *data, uint32_t len, uint32_t shift)
{
	uint8_t pieces[(LEAT_BLOCKS_PER_CHUNK_MAX + 1) * PIECE_WIRE_SIZE];
	struct slot_vec v = {.off = shift, .len = len};
	struct chunk_write w = {.id = *id,
				.chunk_size = chunk_size,
				.off = off,
				.len = len,
				.session = 7,
				.pack = r->pack,
				.pieces = bytes_of(pieces, 0),
				.bulk = &v,
				.n_bulk = 1};
	struct chunk_tx tx;
	int rc;

	ASSERT(slot_get(r->pool, NO_DEADLINE, &v.slot) == 0);
	v.len = sealed_cut(chunk_size, off, data, len, r->pack, v.slot->data + shift, &w.pieces);
	rc = chunk_write_begin(r->store, &w, &tx);
	if (rc == 0) {
		tx.lazy = sim_random_below(r->sim, 2);
		chunk_tx_join(&tx);
		if (r->joined)
			r->joined(r->joined_arg, id);
		rc = chunk_tx_wait(&tx);
	}
	slot_unref(v.slot);
	return rc;
}

int64_t rig_read(struct rig *r, const struct chunk_key *id, uint32_t off, void *buf, uint32_t len,
		 bool verify)
{
	struct piece pieces[1024];
	struct chunk_read cr = {.id = *id,
				.off = off,
				.len = len,
				.verify = verify,
				.pieces = pieces,
				.n_pieces_max = chunk_read_pieces_max(len)};
	uint32_t n = 0, want;
	uint8_t *bulk;

	TRY(chunk_read(r->store, &cr));
	bulk = malloc(len);
	for (uint32_t i = 0; i < cr.n_vec; i++) {
		memcpy(bulk + n, cr.vec[i].slot->data + cr.vec[i].off, cr.vec[i].len);
		n += cr.vec[i].len;
		slot_unref(cr.vec[i].slot);
	}
	want = off < cr.end ? (cr.end - off < len ? cr.end - off : len) : 0;
	for (uint32_t i = 0, pos = off; i < cr.n_pieces; i++) {
		ASSERT(pieces[i].off == pos);
		pos += pieces[i].len;
	}
	ASSERT(sealed_open(pieces, cr.n_pieces, bulk, n, buf, len) == want);
	free(bulk);
	return want;
}
