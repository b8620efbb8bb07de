/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oss_readv: many reads of a chain in one request return what as many oss_read would return, each
 * with its own status. Malformed and too large requests are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/checksum.h"
#include "common/rpc/cap.h"
#include "common/rpc/transport/transport_sim.h"
#include "ossd/chunk/store_record.h"
#include "tests/unit/ossd/chain/chain_rig.h"

#define SESSION 8u
#define FILES   3u
#define END     200000u /* of chunk 0 of each file */

static uint8_t data[FILES][RIG_CS];

struct ask {
	struct cap caps[READV_PARTS_MAX + 1];
	struct readv_part parts[READV_PARTS_MAX + 1];
	uint32_t n_caps, n_parts;
	uint32_t cut_parts; /* bytes missing at the end of the last part */
	uint64_t session;
	/* reply */
	struct readv_result res[READV_PARTS_MAX];
	struct piece pieces[READV_PARTS_MAX][4];
	uint8_t got[READV_BULK_MAX];
	uint32_t n_res, bulk_len;
};

static void decode(struct ask *a, const struct oss_readv_rep *rep)
{
	const uint8_t *p = rep->pieces.data;
	uint32_t left = rep->pieces.len / PIECE_WIRE_SIZE;
	struct wire_r w;

	wire_r_init(&w, rep->results.data, rep->results.len);
	for (a->n_res = 0; !wire_r_end(&w); a->n_res++) {
		struct readv_result *res = &a->res[a->n_res];

		assert_true(a->n_res < READV_PARTS_MAX);
		wire_get_readv_result(&w, res);
		assert_true(res->n_pieces <= left && res->n_pieces <= 4);
		for (uint32_t k = 0; k < res->n_pieces; k++, p += PIECE_WIRE_SIZE)
			piece_decode(p, &a->pieces[a->n_res][k]);
		left -= res->n_pieces;
	}
	assert_int_equal(w.status, 0);
	assert_int_equal(left, 0);
}

static int ask(struct chain_rig *r, struct rpc_client *c, uint32_t member, struct ask *a)
{
	static uint8_t caps[(READV_PARTS_MAX + 1) * 64], parts[(READV_PARTS_MAX + 1) * 32];
	struct oss_readv_req req;
	struct oss_readv_rep rep = {0};
	struct slot_vec v = {.len = READV_BULK_MAX};
	struct rpc_call call = {.op = OP_oss_readv,
				.req = &req,
				.rep = &rep,
				.session = a->session,
				.target = member + 1,
				.chain = RIG_CHAIN,
				.epoch = r->epoch,
				.deadline_us = loop_deadline_ms(20000),
				.bulk_in = &v,
				.n_bulk_in = 1};
	struct wire_w w;
	int rc;

	wire_w_init(&w, caps, sizeof(caps));
	for (uint32_t i = 0; i < a->n_caps; i++)
		wire_put_cap(&w, &a->caps[i]);
	req.caps = bytes_of(caps, (uint32_t)w.len);
	wire_w_init(&w, parts, sizeof(parts));
	for (uint32_t i = 0; i < a->n_parts; i++)
		wire_put_readv_part(&w, &a->parts[i]);
	req.parts = bytes_of(parts, (uint32_t)w.len - a->cut_parts);
	assert_int_equal(slot_get(r->pool, NO_DEADLINE, &v.slot), 0);
	rc = rpc_call(c, &call);
	if (rc == 0) {
		decode(a, &rep);
		a->bulk_len = call.ret_bulk_len;
		memcpy(a->got, v.slot->data, a->bulk_len);
	}
	rpc_call_fini(&call);
	slot_unref(v.slot);
	return rc;
}

static struct ask *new_ask(void)
{
	struct ask *a = calloc(1, sizeof(*a));

	assert_non_null(a);
	a->session = SESSION;
	for (uint32_t i = 0; i < FILES; i++)
		a->caps[a->n_caps++] = (struct cap){.ino = {10 + i},
						    .gen = 1,
						    .rights = CAP_READ,
						    .session = SESSION,
						    .expiry_s = INT64_MAX};
	return a;
}

static void add(struct ask *a, uint32_t cap, uint64_t idx, uint32_t off, uint32_t len)
{
	a->parts[a->n_parts++] = (struct readv_part){cap, idx, off, len};
}

/* Writes END bytes to chunk 0 of each file. */
static void write_files(struct chain_rig *r)
{
	for (uint32_t i = 0; i < FILES; i++) {
		struct crig_write w = {{{10 + i}, 1, 0},   0,           END, data[i],
				       .session = SESSION, .seq = i + 1};

		for (uint32_t k = 0; k < RIG_CS; k++)
			data[i][k] = (uint8_t)hash_u64(i * RIG_CS + k / 3);
		assert_int_equal(crig_write(r, 0, &w, 20000), 0);
	}
	crig_wait_quiet(r);
}

/* Checks that part i has the file's bytes with sums, up to the chunk's end, and zeros after it. */
static void check_part(const struct ask *a, uint32_t i)
{
	const struct readv_part *p = &a->parts[i];
	uint32_t at = 0, have = 0;

	for (uint32_t k = 0; k < i; k++)
		at += a->parts[k].len;
	if (p->idx == 0 && p->off < END)
		have = END - p->off < p->len ? END - p->off : p->len;
	assert_int_equal(a->res[i].status, 0);
	assert_int_equal(a->res[i].sent, have);
	assert_memory_equal(a->got + at, data[p->cap] + p->off, have);
	for (uint32_t k = have; k < p->len; k++)
		assert_int_equal(a->got[at + k], 0);
	for (uint32_t k = 0, pos = 0; k < a->res[i].n_pieces; k++) {
		const struct piece *pc = &a->pieces[i][k];

		assert_int_equal(pc->off, p->off + pos);
		assert_true(pc->sum == checksum64(a->got + at + pos, pc->len));
		pos += pc->len;
		assert_true(k + 1 < a->res[i].n_pieces || pos == have);
	}
	assert_true((a->res[i].n_pieces > 0) == (have > 0));
}

static void same_as_reads(struct chain_rig *r)
{
	struct ask *a = new_ask();
	uint32_t len = 0;

	write_files(r);
	add(a, 0, 0, 0, 4096);
	add(a, 2, 0, RIG_BS - 100, 300);      /* two blocks */
	add(a, 1, 0, END - 50, 4096);         /* across the end */
	add(a, 1, 0, END + RIG_BS, 512);      /* after the end */
	add(a, 1, 7, 0, 512);                 /* no such chunk */
	add(a, 0, 0, 3 * RIG_BS, RIG_BS);     /* a whole block */
	add(a, 0, 0, RIG_BS + 1, 2 * RIG_BS); /* three */
	while (a->n_parts < READV_PARTS_MAX - 20)
		add(a, a->n_parts % FILES, 0, a->n_parts * 3000, 4096);
	for (uint32_t i = 0; i < a->n_parts; i++)
		len += a->parts[i].len;
	for (uint32_t m = 0; m < r->n; m++) {
		assert_int_equal(ask(r, r->m[m].client, m, a), 0);
		assert_int_equal(a->n_res, a->n_parts);
		assert_int_equal(a->bulk_len, len);
		for (uint32_t i = 0; i < a->n_parts; i++)
			check_part(a, i);
		assert_int_equal(slot_pool_free(r->m[m].target.store->small_pool),
				 slot_pool_total(r->m[m].target.store->small_pool));
	}
	free(a);
}

static void test_same_as_reads(void **state)
{
	(void)state;
	chain_rig_run(1, 1, same_as_reads);
	chain_rig_run(2, 3, same_as_reads);
}

/* More blocks than fit into one slot: each part that does not fit is refused, and the others are
 * returned. */
static void room_ends(struct chain_rig *r)
{
	struct ask *a = new_ask();
	uint32_t n_big = 0;

	write_files(r);
	for (uint32_t i = 0; i < READV_PARTS_MAX; i++)
		add(a, i % FILES, 0, i % 12 * RIG_BS + RIG_BS - 8, 16);
	assert_int_equal(ask(r, r->m[0].client, 0, a), 0);
	for (uint32_t i = 0; i < a->n_parts; i++) {
		if (a->res[i].status == -LE_TOO_BIG) {
			n_big++;
			assert_int_equal(a->res[i].n_pieces + a->res[i].sent, 0);
			assert_int_equal(a->got[i * 16], 0);
		} else {
			check_part(a, i);
		}
	}
	assert_int_equal(n_big, READV_PARTS_MAX - OSSD_SLOT_SIZE / (2 * RIG_BS));
	free(a);
}

static void test_room_ends(void **state)
{
	(void)state;
	chain_rig_run(3, 1, room_ends);
}

/* A block that does not match its sum: only its part fails. */
static void damage(struct chain_rig *r)
{
	struct chunk_key k = {RIG_CHAIN, {11}, 1, 0};
	struct member *m = &r->m[0];
	struct ask *a = new_ask();
	struct chunk_record *rec;
	char path[1100];

	write_files(r);
	assert_int_equal(chunk_store_record(m->target.store, &k, &rec), 0);
	snprintf(path, sizeof(path), "%s/data", m->params.data_dir);
	assert_int_equal(sim_proc_corrupt(m->proc, path, (uint64_t)rec->blocks[2].unit * UNIT_SIZE,
					  rec->blocks[2].len),
			 0);
	chunk_record_unref(&m->target.store->cache, rec);
	add(a, 1, 0, 0, 4096);
	add(a, 1, 0, 2 * RIG_BS, 4096);
	add(a, 0, 0, 2 * RIG_BS, 4096);
	assert_int_equal(ask(r, m->client, 0, a), 0);
	assert_int_equal(a->res[1].status, -LE_CORRUPT);
	assert_int_equal(a->res[1].n_pieces + a->res[1].sent, 0);
	for (uint32_t i = 0; i < 4096; i++)
		assert_int_equal(a->got[4096 + i], 0);
	check_part(a, 0);
	check_part(a, 2);
	free(a);
}

static void test_damage(void **state)
{
	(void)state;
	chain_rig_run(4, 1, damage);
}

/* ---- pending versions ---- */

struct writing {
	struct chain_rig *r;
	struct crig_write w;
	int rc;
	bool ended;
};

static void write_main(void *arg)
{
	struct writing *a = arg;

	a->rc = crig_write(a->r, 0, &a->w, 20000);
	a->ended = true;
}

static void pending(struct chain_rig *r)
{
	struct ask *a = new_ask();
	struct writing w = {.r = r, .w = {{{11}, 1, 0}, 0, 4096, data[0], .session = 9, .seq = 1}};

	write_files(r);
	add(a, 0, 0, 0, 4096);
	add(a, 1, 0, RIG_BS, 4096);
	transport_sim_partition(r->transport, r->m[1].name, r->m[2].name, true);
	assert_int_equal(fiber_spawn("write", write_main, &w), 0);
	(void)!fiber_sleep_us(100000);
	/* Not the head: the part with the pending chunk gets LE_PENDING. */
	assert_int_equal(ask(r, r->m[1].client, 1, a), 0);
	assert_int_equal(a->res[1].status, -LE_PENDING);
	check_part(a, 0);
	transport_sim_partition(r->transport, r->m[1].name, r->m[2].name, false);
	while (!w.ended)
		(void)!fiber_sleep_us(1000);
	assert_int_equal(w.rc, 0);
	/* Epoch, target and target lease are checked as for one read. */
	r->epoch++;
	assert_int_equal(ask(r, r->m[0].client, 0, a), -LE_STALE_EPOCH);
	r->epoch--;
	assert_int_equal(ask(r, r->m[0].client, 1, a), -LE_NO_TARGET);
	r->lease_ms = 0;
	(void)!fiber_sleep_us(3000000);
	assert_int_equal(ask(r, r->m[0].client, 0, a), -LE_NO_LEASE);
	free(a);
}

static void test_pending(void **state)
{
	(void)state;
	chain_rig_run(5, 3, pending);
}

/* ---- capabilities ---- */

static void rights(struct chain_rig *r)
{
	struct rpc_client_options o = {.transport = r->transport,
				       .addrs = r->m[0].params.listen,
				       .name = "stranger",
				       .role = ROLE_CLIENT,
				       .cluster = {{7, 7}},
				       .key = r->key};
	struct ask *a = new_ask();
	struct rpc_client *c;
	struct cap_key key;

	write_files(r);
	cap_key_derive(&r->key, &key);
	for (uint32_t i = 0; i < FILES; i++) {
		cap_sign(&key, &a->caps[i]);
		add(a, i, 0, 0, 100);
	}
	a->caps[1].mac_lo ^= 1;
	assert_int_equal(rpc_client_create(&o, &c), 0);
	assert_int_equal(ask(r, c, 0, a), 0);
	check_part(a, 0);
	assert_int_equal(a->res[1].status, -LE_BAD_CAP);
	assert_int_equal(a->res[1].sent + a->res[1].n_pieces, 0);
	assert_int_equal(a->got[100], 0);
	check_part(a, 2);
	rpc_client_destroy(c);
	free(a);
}

static void test_rights(void **state)
{
	(void)state;
	chain_rig_run(6, 1, rights);
}

static void refusals(struct chain_rig *r)
{
	struct rpc_client *c = r->m[0].client;
	struct ask *a = new_ask();

	write_files(r);
	/* No parts. */
	assert_int_equal(ask(r, c, 0, a), 0);
	assert_int_equal(a->n_res + a->bulk_len, 0);
	/* No such capability. */
	add(a, FILES, 0, 0, 16);
	assert_int_equal(ask(r, c, 0, a), -LE_BAD_MESSAGE);
	/* No bytes. */
	a->parts[0] = (struct readv_part){0, 0, 0, 0};
	assert_int_equal(ask(r, c, 0, a), -LE_BAD_MESSAGE);
	/* Half of an encoded part. */
	a->parts[0].len = 16;
	a->cut_parts = 3;
	assert_int_equal(ask(r, c, 0, a), -LE_BAD_MESSAGE);
	a->cut_parts = 0;
	/* Too many bytes, also if their sum exceeds 32 bits. */
	a->parts[0].len = READV_BULK_MAX;
	add(a, 0, 0, 0, 1);
	assert_int_equal(ask(r, c, 0, a), -LE_TOO_BIG);
	a->parts[0].len = UINT32_MAX;
	assert_int_equal(ask(r, c, 0, a), -LE_TOO_BIG);
	/* Offsets at the end of the range of numbers. */
	a->parts[0] = (struct readv_part){0, 0, UINT32_MAX, 16};
	a->parts[1] = (struct readv_part){0, UINT64_MAX, 0, 16};
	assert_int_equal(ask(r, c, 0, a), 0);
	assert_int_equal(a->res[0].sent + a->res[1].sent, 0);
	/* Too many parts, too many capabilities. */
	while (a->n_parts < READV_PARTS_MAX + 1)
		add(a, 0, 0, 0, 16);
	assert_int_equal(ask(r, c, 0, a), -LE_TOO_BIG);
	a->n_parts = 1;
	while (a->n_caps < READV_PARTS_MAX + 1)
		a->caps[a->n_caps++] = a->caps[0];
	assert_int_equal(ask(r, c, 0, a), -LE_TOO_BIG);
	free(a);
}

static void test_refusals(void **state)
{
	(void)state;
	chain_rig_run(7, 1, refusals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_reads), cmocka_unit_test(test_room_ends),
		cmocka_unit_test(test_damage),        cmocka_unit_test(test_pending),
		cmocka_unit_test(test_rights),        cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
