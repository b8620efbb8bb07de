/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunk store over a simulated disk: fixed cases, then random changes against arrays of bytes,
 * by several fibers, with crashes. Acknowledged writes survive, writes in flight survive completely
 * or not at all, and the check finds nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "ossd/chunk/chunk_files.h"
#include "ossd/chunk/chunk_read.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "tests/lib/sealed.h"
#include "tests/unit/ossd/chunk/store_rig.h"

#define CS (256u << 10)
#define BS 16384u

static void fill(uint8_t *p, uint32_t len, uint64_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)hash_u64(seed + i / 7) + (uint8_t)i;
}

static void run_fresh(uint64_t seed, void (*fn)(struct rig *r, void *arg), void *arg)
{
	struct rig r;

	rig_init(&r, seed);
	rig_run(&r, fn, arg);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

/* ---- fixed cases ---- */

static void write_and_read(struct rig *r, void *arg)
{
	struct chunk_key id = {1, {5}, 1, 0};
	static uint8_t data[CS], got[CS];

	(void)arg;
	assert_int_equal(rig_read(r, &id, 0, got, CS, false), 0);
	fill(data, CS, 1);
	assert_int_equal(rig_write(r, &id, CS, 0, data, CS, 0), 0);
	assert_int_equal(rig_read(r, &id, 0, got, CS, false), CS);
	assert_memory_equal(data, got, CS);
	/* a small part, then an unaligned fragment across a block boundary */
	assert_int_equal(rig_read(r, &id, 20000, got, 4096, false), 4096);
	assert_memory_equal(data + 20000, got, 4096);
	fill(data + BS - 100, 300, 2);
	assert_int_equal(rig_write(r, &id, CS, BS - 100, data + BS - 100, 300, 13), 0);
	assert_int_equal(rig_read(r, &id, 0, got, CS, true), CS);
	assert_memory_equal(data, got, CS);
	assert_int_equal(metric_get(&r->metrics.merges), 2);
}

static void test_write_and_read(void **state)
{
	(void)state;
	run_fresh(1, write_and_read, NULL);
}

static void holes_and_short_blocks(struct rig *r, void *arg)
{
	struct chunk_key id = {1, {5}, 1, 4};
	static uint8_t want[CS], got[CS];
	struct chunk_stat st;

	(void)arg;
	memset(want, 0, sizeof(want));
	fill(want, 100, 1);
	assert_int_equal(rig_write(r, &id, CS, 0, want, 100, 0), 0);
	fill(want + 3 * BS + 50, 10, 2);
	assert_int_equal(rig_write(r, &id, CS, 3 * BS + 50, want + 3 * BS + 50, 10, 0), 0);
	assert_int_equal(rig_read(r, &id, 0, got, CS, true), 3 * BS + 60);
	assert_memory_equal(want, got, 3 * BS + 60);
	assert_int_equal(rig_read(r, &id, BS + 5, got, 77, true), 77);
	assert_memory_equal(want + BS + 5, got, 77);
	assert_int_equal(rig_read(r, &id, 90, got, 20, true), 20);
	assert_memory_equal(want + 90, got, 20);
	assert_int_equal(chunk_stat(r->store, &id, CS, NULL, &st), 0);
	assert_int_equal(st.size, 4 * CS + 3 * BS + 60);
	assert_int_equal(st.used, 2 * UNIT_SIZE);
	assert_int_equal(st.n_chunks, 1);
	/* covered: stored units inside the preallocated ranges, also parts of a unit */
	struct ranges all = {1, {{0, 5 * CS}}};
	struct ranges some = {2, {{0, 4 * CS + 100}, {4 * CS + 3 * BS, 6 * CS}}};
	assert_int_equal(chunk_stat(r->store, &id, CS, &all, &st), 0);
	assert_int_equal(st.covered, 2 * UNIT_SIZE);
	assert_int_equal(chunk_stat(r->store, &id, CS, &some, &st), 0);
	assert_int_equal(st.covered, 100 + UNIT_SIZE);
	/* append to the short block */
	fill(want + 100, 200, 3);
	assert_int_equal(rig_write(r, &id, CS, 100, want + 100, 200, 0), 0);
	assert_int_equal(rig_read(r, &id, 0, got, CS, true), 3 * BS + 60);
	assert_memory_equal(want, got, 3 * BS + 60);
}

static void test_holes_and_short_blocks(void **state)
{
	(void)state;
	run_fresh(2, holes_and_short_blocks, NULL);
}

static void bad_writes(struct rig *r, void *arg)
{
	struct chunk_key id = {1, {5}, 1, 0};
	static uint8_t data[BS];
	uint8_t pieces[2 * PIECE_WIRE_SIZE];
	struct piece p = {0, BS, BS, 0, 1, 0};
	struct slot_vec v = {.len = BS};
	struct chunk_write w = {.id = id,
				.chunk_size = CS,
				.len = BS,
				.bulk = &v,
				.n_bulk = 1,
				.pieces = bytes_of(pieces, PIECE_WIRE_SIZE)};
	struct chunk_tx tx;

	(void)arg;
	assert_int_equal(slot_get(r->pool, NO_DEADLINE, &v.slot), 0);
	piece_encode(&p, pieces);
	assert_int_equal(chunk_write_begin(r->store, &w, &tx), -LE_CORRUPT_WIRE);
	p.len = 100;
	piece_encode(&p, pieces);
	assert_int_equal(chunk_write_begin(r->store, &w, &tx), -LE_INVAL);
	w.len = BS + 1;
	assert_int_equal(chunk_write_begin(r->store, &w, &tx), -LE_INVAL);
	w.len = BS;
	w.off = CS;
	assert_int_equal(chunk_write_begin(r->store, &w, &tx), -LE_INVAL);
	w.off = 0;
	w.chunk_size = 1000;
	assert_int_equal(chunk_write_begin(r->store, &w, &tx), -LE_INVAL);
	w.chunk_size = CS;
	w.id.idx = UINT64_MAX;
	assert_int_equal(chunk_write_begin(r->store, &w, &tx), -LE_FBIG);
	slot_unref(v.slot);
	/* another chunk size than at creation */
	assert_int_equal(rig_write(r, &id, CS, 0, data, BS, 0), 0);
	assert_int_equal(rig_write(r, &id, 2 * CS, 0, data, BS, 0), -LE_INVAL);
}

static void test_bad_writes_are_refused(void **state)
{
	(void)state;
	run_fresh(3, bad_writes, NULL);
}

static void trim_and_remove(struct rig *r, void *arg)
{
	static uint8_t want[CS], got[CS];
	struct ino ino = {77};
	uint64_t n, before = r->store->space.alloc.free;
	struct chunk_key other = {1, {78}, 1, 0}, elsewhere = {2, ino, 2, 3};

	(void)arg;
	fill(want, CS, 9);
	for (uint64_t i = 0; i < 40; i++) {
		struct chunk_key id = {1, ino, 2, i};

		assert_int_equal(rig_write(r, &id, CS, 0, want, CS, 0), 0);
	}
	assert_int_equal(rig_write(r, &other, CS, 0, want, BS, 0), 0);
	assert_int_equal(rig_write(r, &elsewhere, CS, 0, want, BS, 0), 0);
	struct chunk_key id = {1, ino, 2, 38};
	assert_int_equal(chunk_trim_file(r->store, NULL, &id, CS, 38 * CS + BS + 10, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(rig_read(r, &id, 0, got, CS, true), BS + 10);
	assert_memory_equal(want, got, BS + 10);
	assert_int_equal(
		chunk_punch_file(r->store, NULL, &(struct chunk_punch){id, CS, 100, 3 * CS}, &n),
		0);
	assert_int_equal(n, 4);
	id.idx = 3;
	assert_int_equal(rig_read(r, &id, 0, got, CS, true), CS);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(got[i], 0);
	assert_memory_equal(want + 100, got + 100, CS - 100);
	assert_int_equal(chunk_remove_file(r->store, NULL, &id, &n), 0);
	assert_int_equal(n, 39);
	assert_int_equal(chunk_remove_file(r->store, NULL, &id, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(rig_read(r, &other, 0, got, CS, true), BS);
	assert_int_equal(chunk_remove_file(r->store, NULL, &other, &n), 0);
	/* chunks of the file on another chain are separate */
	assert_int_equal(rig_read(r, &elsewhere, 0, got, CS, true), BS);
	assert_int_equal(chunk_remove_file(r->store, NULL, &elsewhere, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(space_used(&r->store->space), 0);
	assert_true(r->store->space.alloc.free >= before);
}

static void test_trim_punch_remove(void **state)
{
	(void)state;
	run_fresh(4, trim_and_remove, NULL);
}

#define MANY_FILES 150u

/* Some inodes have no chunk; one has more than one batch of changes holds. */
static uint64_t many_chunks(uint64_t ino)
{
	return ino == 70 ? 3 * CHUNK_EDITS_MAX + 1 : (ino * 7 % 5) * (ino % 2);
}

/* Removes the remaining files of every step-th inode. */
static uint64_t remove_every(struct rig *r, bool *gone, uint32_t step, uint32_t gen)
{
	struct chunk_key files[MANY_FILES];
	uint32_t n = 0;
	uint64_t want = 0, removed;

	for (uint64_t ino = 1; ino <= MANY_FILES; ino += step) {
		files[n++] = (struct chunk_key){1, {ino}, gen, 0};
		want += gone[ino] || gen != 1 ? 0 : many_chunks(ino);
		gone[ino] |= gen == 1;
	}
	assert_int_equal(chunk_remove_files(r->store, NULL, files, n, &removed), 0);
	assert_int_equal(removed, want);
	return removed;
}

static void remove_many(struct rig *r, void *arg)
{
	static const uint32_t steps[] = {40, 13, 2, 1, 1};
	static uint8_t data[100];
	bool gone[MANY_FILES + 1] = {false};
	uint64_t n;

	(void)arg;
	for (uint64_t ino = 1; ino <= MANY_FILES; ino++)
		for (uint64_t i = 0; i < many_chunks(ino); i++) {
			struct chunk_key id = {1, {ino}, 1, i * i};

			assert_int_equal(rig_write(r, &id, CS, 0, data, sizeof(data), 0), 0);
		}
	assert_int_equal(chunk_remove_files(r->store, NULL, NULL, 0, &n), 0);
	assert_int_equal(n, 0);
	for (uint32_t k = 0; k < ARRAY_SIZE(steps); k++) {
		remove_every(r, gone, steps[k], 2); /* another generation */
		remove_every(r, gone, steps[k], 1);
		for (uint64_t ino = 1; ino <= MANY_FILES; ino++) {
			struct chunk_key file = {1, {ino}, 1, 0};
			struct chunk_stat st;

			assert_int_equal(chunk_stat(r->store, &file, CS, NULL, &st), 0);
			assert_int_equal(st.n_chunks, gone[ino] ? 0 : many_chunks(ino));
		}
	}
	assert_int_equal(space_used(&r->store->space), 0);
}

static void test_many_files_are_removed(void **state)
{
	(void)state;
	run_fresh(5, remove_many, NULL);
}

/* ---- a full disk ---- */

static void full(struct rig *r, void *arg)
{
	static uint8_t data[CS], got[CS];
	uint64_t i = 0, n, granted;
	int rc = 0;

	(void)arg;
	fill(data, CS, 3);
	granted = space_grant(&r->store->space, 7, 2 << 20, 1);
	assert_true(granted >= 1 << 20);
	/* session 8 writes: no write of it may use the grant of session 7 */
	space_grant(&r->store->space, 7, 0, 1);
	space_grant(&r->store->space, 8, 2 << 20, 1);
	for (; rc == 0; i++) {
		struct chunk_key id = {1, {9}, 1, i};

		rc = rig_write(r, &id, CS, 0, data, CS, 0);
	}
	assert_int_equal(rc, -LE_NOSPC);
	assert_in_range(i, 30, 64);
	/* reads and overwrites continue */
	for (uint64_t k = 0; k < i - 1; k++) {
		struct chunk_key id = {1, {9}, 1, k};

		assert_int_equal(rig_write(r, &id, CS, 0, data, CS, 0), 0);
		assert_int_equal(rig_read(r, &id, 0, got, CS, true), CS);
	}
	/* a granted write fits as long as the session has the grant */
	space_grant(&r->store->space, 8, 0, 1);
	assert_true(space_grant(&r->store->space, 7, CS, 1) > 0);
	assert_int_equal(chunk_remove_file(r->store, NULL, &(struct chunk_key){1, {9}, 1, 0}, &n),
			 0);
	assert_int_equal(n, i - 1);
	assert_int_equal(space_used(&r->store->space), 0);
}

static void test_full_disk(void **state)
{
	(void)state;
	run_fresh(5, full, NULL);
}

static uint32_t syncs_refused;

/* Like the kernel, it reports the error to the first sync only. */
static int refuse_one_sync(struct env_file *f)
{
	(void)f;
	return syncs_refused++ ? 0 : -LE_IO;
}

/* The sync of newly zeroed space fails: data that is written meanwhile may be lost with it. */
static void lost_sync(struct rig *r, void *arg)
{
	static struct env_ops ops;
	const struct env_ops *real = r->store->env->ops;
	const struct chunk_key id = {1, {5}, 1, 0};
	uint8_t data[100] = {1};

	(void)arg;
	ops = *real;
	ops.file_datasync = refuse_one_sync;
	r->store->env->ops = &ops;
	(void)!fiber_sleep_us(2000000);
	assert_int_equal(syncs_refused, 1);
	assert_int_equal(rig_write(r, &id, CS, 0, data, sizeof(data), 0), -LE_IO);
	assert_int_equal(chunk_store_status(r->store), -LE_IO);
	r->store->env->ops = real;
}

static void test_lost_sync(void **state)
{
	(void)state;
	run_fresh(6, lost_sync, NULL);
}

static void fill_up(struct rig *r, void *arg)
{
	static uint8_t data[CS];
	uint64_t i = 0;
	int rc = 0;

	(void)arg;
	for (; rc == 0; i++) {
		struct chunk_key id = {1, {9}, 1, i};

		rc = rig_write(r, &id, CS, 0, data, CS, 0);
	}
	assert_int_equal(rc, -LE_NOSPC);
}

/* The underlying file system is smaller than the capacity. */
static void test_file_system_below_is_full(void **state)
{
	struct rig r;
	uint64_t n;

	(void)state;
	(void)n;
	rig_init(&r, 6);
	sim_proc_disk_full(r.proc, false);
	rig_run(&r, fill_up, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

static int64_t beyond_quota(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off)
{
	(void)f, (void)iov, (void)n_iov, (void)off;
	return -LE_DQUOT;
}

/* The owner of the store's files has reached a quota: that counts as a full disk, not as a failed
 * one. */
static void quota_below(struct rig *r, void *arg)
{
	static struct env_ops ops;
	const struct env_ops *real = r->store->env->ops;
	const struct chunk_key id = {1, {5}, 1, 0};
	uint8_t data[100] = {1};

	(void)arg;
	ops = *real;
	ops.file_pwritev = beyond_quota;
	r->store->env->ops = &ops;
	assert_int_equal(rig_write(r, &id, CS, 0, data, sizeof(data), 0), -LE_NOSPC);
	assert_int_equal(chunk_store_status(r->store), 0);
	r->store->env->ops = real;
	assert_int_equal(rig_write(r, &id, CS, 0, data, sizeof(data), 0), 0);
}

static void test_quota_below(void **state)
{
	(void)state;
	run_fresh(10, quota_below, NULL);
}

/* ---- damage ---- */

static void write_one(struct rig *r, void *arg)
{
	struct chunk_key id = {1, {5}, 1, 0};
	static uint8_t data[CS];

	(void)arg;
	fill(data, CS, 8);
	assert_int_equal(rig_write(r, &id, CS, 0, data, CS, 0), 0);
}

static void read_damaged(struct rig *r, void *arg)
{
	struct chunk_key id = {1, {5}, 1, 0};
	static uint8_t got[CS], data[CS];

	(void)arg;
	fill(data, CS, 8);
	assert_int_equal(rig_read(r, &id, 0, got, CS, true), -LE_CORRUPT);
	assert_int_equal(rig_read(r, &id, 10, got, 100, false), -LE_CORRUPT);
	assert_int_equal(metric_get(&r->metrics.corrupt), 2);
	/* a part of a damaged block cannot be written, the whole block can */
	assert_int_equal(rig_write(r, &id, CS, 10, data, 100, 0), -LE_CORRUPT);
	assert_int_equal(rig_read(r, &id, BS, got, BS, true), BS);
	assert_memory_equal(data + BS, got, BS);
	assert_int_equal(rig_write(r, &id, CS, 0, data, BS, 0), 0);
	assert_int_equal(rig_read(r, &id, 0, got, CS, true), CS);
}

static void test_damage_is_found(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 7);
	rig_run(&r, write_one, NULL);
	assert_int_equal(sim_proc_corrupt(r.proc, RIG_DIR "/data", 0, BS), 0);
	assert_int_equal(rig_check(&r, true), 1);
	rig_run(&r, read_damaged, NULL);
	assert_int_equal(rig_check(&r, true), 0);
	rig_fini(&r);
}

/* ---- reading an uncommitted change ---- */

struct tx_reader {
	const struct chunk_tx *tx;
	int rc;
};

static void tx_reader_main(void *arg)
{
	struct tx_reader *a = arg;
	struct slot_vec vec[CHUNK_READ_VECS];
	uint32_t n = 0;

	a->rc = chunk_tx_read(a->tx, 0, 0, vec, &n);
	for (uint32_t i = 0; a->rc == 0 && i < n; i++)
		slot_unref(vec[i].slot);
}

static void durable(struct chunk_tx *tx, int status)
{
	(void)tx;
	assert_int_equal(status, 0);
}

/* While the reader waits for a slot, freed blocks may be reused. It then reads its own blocks, or
 * fails because they were committed since. */
static void waits_for_slots(struct rig *r, void *arg)
{
	struct chunk_store *s = r->store;
	const struct chunk_key id = {1, {5}, 1, 0};
	uint8_t pieces[PIECE_WIRE_SIZE], data[BS] = {1};
	struct slot_vec v = {.len = BS};
	struct chunk_write w = {.id = id,
				.chunk_size = CS,
				.len = BS,
				.session = 7,
				.pieces = bytes_of(pieces, 0),
				.bulk = &v,
				.n_bulk = 1};

	(void)arg;
	assert_int_equal(slot_get(r->pool, NO_DEADLINE, &v.slot), 0);
	v.len = sealed_cut(CS, 0, data, BS, false, v.slot->data, &w.pieces);
	for (uint32_t ends = 0; ends < 2; ends++) {
		struct tx_reader a = {.rc = 1};
		struct slot *held[8];
		struct chunk_tx tx;
		uint32_t n = 0;

		assert_int_equal(chunk_write_begin(s, &w, &tx), 0);
		tx.held = durable;
		chunk_tx_join(&tx);
		assert_int_equal(group_commit_barrier(&s->gc), 0);
		while (n < 8 && (held[n] = slot_try_get(s->read_pool)) != NULL)
			n++;
		a.tx = &tx;
		assert_int_equal(fiber_spawn("reader", tx_reader_main, &a), 0);
		(void)!fiber_sleep_us(10000);
		assert_int_equal(a.rc, 1);
		assert_true(list_empty(&s->space.pins));
		if (ends)
			chunk_tx_commit(&tx);
		while (n)
			slot_unref(held[--n]);
		while (a.rc == 1)
			(void)!fiber_sleep_us(1000);
		assert_int_equal(a.rc, ends ? -LE_STALE : 0);
		if (!ends)
			chunk_tx_commit(&tx);
	}
	slot_unref(v.slot);
}

static void test_waits_for_slots(void **state)
{
	(void)state;
	run_fresh(9, waits_for_slots, NULL);
}

/* ---- exactly once ---- */

struct twice {
	struct chunk_store *s;
	struct latch *latch;
	int rc;
	struct replay_ent *ent;
};

static int begin(struct chunk_store *s, uint64_t session, uint64_t seq, uint16_t op,
		 struct replay_ent **ret_ent)
{
	struct replay_key key = {.chain = 1, .slot = 1, .session = session};

	return replay_begin(&s->replay, &key, seq, op, ret_ent);
}

static void second(void *arg)
{
	struct twice *t = arg;

	t->rc = begin(t->s, 3, 5, 0x202, &t->ent);
	latch_done(t->latch);
}

static void answer(struct chunk_store *s, struct replay_ent *e, const char *text)
{
	replay_join(e, group_commit_batch(&s->gc), text, (uint32_t)strlen(text));
	assert_int_equal(group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, false)), 0);
	replay_end(e, e->run, true);
}

static void exactly_once(struct rig *r, void *arg)
{
	struct chunk_store *s = r->store;
	struct replay_ent *e;
	struct latch l;
	struct twice t = {s, &l, -1, NULL};

	(void)arg;
	assert_int_equal(begin(s, 3, 5, 0x202, &e), 0);
	latch_init(&l, 1);
	assert_int_equal(fiber_spawn("second", second, &t), 0);
	fiber_yield();
	assert_int_equal(t.rc, -1); /* waits for the first */
	answer(s, e, "five");
	latch_wait(&l);
	assert_int_equal(t.rc, 1);
	assert_memory_equal(t.ent->reply, "five", 4);
	assert_int_equal(begin(s, 3, 4, 0x202, &e), -LE_STALE_SEQ);
	/* a request that fails leaves the previous reply */
	assert_int_equal(begin(s, 3, 6, 0x202, &e), 0);
	replay_end(e, e->run, false);
	assert_int_equal(begin(s, 3, 5, 0x202, &e), 1);
	assert_int_equal(begin(s, 4, 9, 0x203, &e), 0);
	answer(s, e, "nine");
}

/* A head has begun a request, stops being the head, and gets the change back from the next head
 * before its own attempt ends: that end does not end the change that came back. */
static void ends_late(struct rig *r, void *arg)
{
	struct replay_key key = {.chain = 1, .slot = 1, .session = 5};
	struct chunk_store *s = r->store;
	struct replay_ent *e, *again;
	uint64_t run;

	(void)arg;
	assert_int_equal(begin(s, 5, 1, 0x202, &e), 0);
	run = e->run;
	assert_int_equal(replay_apply(&s->replay, &key, 1, 0x202, &again), 0);
	assert_ptr_equal(again, e);
	replay_end(e, run, false);
	assert_int_equal(e->seqs.running, 1);
	replay_join(e, group_commit_batch(&s->gc), "once", 4);
	assert_int_equal(group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, false)), 0);
	replay_settle(e, 1, true);
	assert_int_equal(begin(s, 5, 1, 0x202, &e), 1);
	assert_memory_equal(e->reply, "once", 4);
	/* The end of the earlier attempt does not end a later request either. */
	assert_int_equal(begin(s, 5, 2, 0x202, &e), 0);
	run = e->run;
	assert_int_equal(replay_apply(&s->replay, &key, 3, 0x202, &e), 0);
	replay_end(e, run, true);
	assert_int_equal(e->seqs.last, 1);
	assert_int_equal(e->seqs.running, 3);
	replay_settle(e, 3, false);
}

static void test_ends_late(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 8);
	rig_run(&r, ends_late, NULL);
	rig_fini(&r);
}

static bool only_four(void *arg, uint64_t session)
{
	(void)arg;
	return session == 4;
}

static void after_restart(struct rig *r, void *arg)
{
	struct chunk_store *s = r->store;
	struct replay_ent *e;

	(void)arg;
	assert_int_equal(begin(s, 3, 5, 0x202, &e), 1);
	assert_memory_equal(e->reply, "five", 4);
	assert_int_equal(begin(s, 3, 4, 0x202, &e), -LE_STALE_SEQ);
	assert_int_equal(begin(s, 4, 9, 0x203, &e), 1);
	assert_int_equal(replay_expire(&s->replay, group_commit_batch(&s->gc), UINT64_MAX, 10,
				       only_four, NULL),
			 1);
	assert_int_equal(group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, false)), 0);
}

static void after_expiry(struct rig *r, void *arg)
{
	(void)arg;
	assert_int_equal(r->store->replay.map.n, 1);
}

static void test_exactly_once(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 8);
	rig_run(&r, exactly_once, NULL);
	rig_run(&r, after_restart, NULL);
	rig_run(&r, after_expiry, NULL);
	rig_fini(&r);
}

/* A filled member has replies that its source does not have, of its own changes. */
static void import(struct chunk_store *s, uint64_t session, uint64_t seq)
{
	struct replay_key key = {.chain = 1, .slot = 1, .session = session};
	struct replay_row row = {seq, 0, 0x202, bytes_of("true", 4)};

	assert_int_equal(replay_import(&s->replay, &key, &row, group_commit_batch(&s->gc)), 0);
}

static void unconfirmed(struct rig *r, void *arg)
{
	struct chunk_store *s = r->store;
	struct replay_key newer = {.chain = 1, .slot = 1, .session = 6};
	struct replay_key held = {.chain = 1, .slot = 1, .session = 7};
	struct replay_row pending = {8, 0, 0x202, bytes_of("held", 4)};
	struct replay_ent *e;

	(void)arg;
	/* A change is still pending when the source has sent only the one before it: it may be
	 * committed nevertheless. */
	assert_int_equal(begin(s, 7, 8, 0x202, &e), 0);
	replay_join(e, group_commit_batch(&s->gc), "held", 4);
	assert_int_equal(group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, false)), 0);
	for (uint64_t session = 3; session <= 6; session++) {
		assert_int_equal(begin(s, session, 7, 0x202, &e), 0);
		answer(s, e, "lost");
	}
	replay_mark_unconfirmed(&s->replay, 1);
	import(s, 3, 6);
	import(s, 4, 7);
	assert_int_equal(replay_apply(&s->replay, &newer, 8, 0x202, &e), 0);
	import(s, 7, 7);
	replay_keep(&s->replay, &held, &pending, group_commit_batch(&s->gc));
	import(s, 6, 7); /* arrives late: a newer change has arrived meanwhile */
	replay_join(e, group_commit_batch(&s->gc), "next", 4);
	replay_settle(e, 8, true);
	replay_forget_unconfirmed(&s->replay, 1, group_commit_batch(&s->gc));
	assert_int_equal(group_commit_wait(&s->gc, group_commit_join(&s->gc, NULL, false)), 0);
}

static void after_doubt(struct rig *r, void *arg)
{
	struct chunk_store *s = r->store;
	struct replay_ent *e;

	(void)arg;
	assert_int_equal(begin(s, 3, 6, 0x202, &e), 1);
	assert_memory_equal(e->reply, "true", 4);
	assert_int_equal(begin(s, 3, 7, 0x202, &e), 0);
	replay_end(e, e->run, false);
	assert_int_equal(begin(s, 4, 7, 0x202, &e), 1);
	assert_memory_equal(e->reply, "true", 4);
	assert_int_equal(begin(s, 5, 7, 0x202, &e), 0);
	replay_end(e, e->run, false);
	assert_int_equal(begin(s, 6, 8, 0x202, &e), 1);
	assert_memory_equal(e->reply, "next", 4);
	assert_int_equal(begin(s, 7, 8, 0x202, &e), 1);
	assert_memory_equal(e->reply, "held", 4);
}

static void test_answers_in_doubt(void **state)
{
	struct rig r;

	(void)state;
	rig_init(&r, 9);
	rig_run(&r, unconfirmed, NULL);
	rig_run(&r, after_doubt, NULL);
	rig_fini(&r);
}

/* ---- random, with crashes ---- */

#define N_CHUNKS 6u

struct model {
	uint8_t data[CS];
	uint32_t end;
};

struct world {
	struct rig rig;
	struct model now[N_CHUNKS];  /* acknowledged content */
	struct model next[N_CHUNKS]; /* content after the change in flight */
	bool in_flight[N_CHUNKS];
	bool verified;
	uint64_t ops;
	struct latch latch;
};

struct writer {
	struct world *w;
	uint32_t chunk;
};

static uint32_t below(struct world *w, uint64_t n)
{
	return (uint32_t)sim_random_below(w->rig.sim, n);
}

static struct chunk_key id_of(uint32_t k)
{
	return (struct chunk_key){1, {100 + k / 3}, 1, k % 3};
}

static void compare(struct world *w, uint32_t k, const struct model *m)
{
	static uint8_t got[N_CHUNKS][CS];
	struct chunk_key id = id_of(k);
	uint32_t off = below(w, CS), len = 1 + below(w, CS - off);

	if (below(w, 2)) {
		off = 0;
		len = CS;
	}
	int64_t n = rig_read(&w->rig, &id, off, got[k], len, below(w, 2));
	assert_int_equal(n, off < m->end ? (m->end - off < len ? m->end - off : len) : 0);
	if (n)
		assert_memory_equal(got[k], m->data + off, n);
}

/* With compression: blocks that compress, and blocks that do not. */
static void fill_some(struct world *w, uint8_t *p, uint32_t len)
{
	uint64_t seed = sim_random(w->rig.sim);
	uint32_t cut = below(w, len);

	if (!w->rig.pack) {
		fill(p, len, seed);
	} else if (below(w, 2)) {
		fill_words(p, len, seed);
	} else {
		fill_noise(p, cut, seed);
		fill_words(p + cut, len - cut, seed);
	}
}

static int change(struct world *w, uint32_t k)
{
	struct model *m = &w->next[k];
	struct chunk_key id = id_of(k);
	uint32_t off = below(w, CS), len = 1 + below(w, below(w, 3) ? 20000 : CS);
	uint32_t kind = below(w, 20);
	struct chunk_tx tx;
	int rc;

	if (below(w, 2))
		off = off / BS * BS;
	len = len < CS - off ? len : CS - off;
	if (kind < 16) {
		fill_some(w, m->data + off, len);
		m->end = off + len > m->end ? off + len : m->end;
		w->in_flight[k] = true;
		return rig_write(&w->rig, &id, CS, off, m->data + off, len, below(w, 3) ? 0 : 100);
	}
	if (kind < 18) {
		off = below(w, 4) ? off : 0;
		memset(m->data + off, 0, CS - off);
		m->end = off < m->end ? off : m->end;
		w->in_flight[k] = true;
		rc = chunk_trim_begin(w->rig.store, &id, off, &tx);
	} else {
		memset(m->data + off, 0, len);
		w->in_flight[k] = true;
		rc = chunk_punch_begin(w->rig.store, &id, off, len, &tx);
	}
	if (rc == 0 && tx.changes) {
		tx.lazy = below(w, 2);
		chunk_tx_join(&tx);
		compare(w, k, m);
		rc = chunk_tx_wait(&tx);
	}
	return rc;
}

/* Readers get the data before it is durable. */
static void joined(void *arg, const struct chunk_key *id)
{
	struct world *w = arg;

	for (uint32_t k = 0; k < N_CHUNKS; k++) {
		struct chunk_key own = id_of(k);

		if (own.ino.v == id->ino.v && own.gen == id->gen && own.idx == id->idx)
			compare(w, k, &w->next[k]);
	}
}

static void writer(void *arg)
{
	struct writer *wr = arg;
	struct world *w = wr->w;
	uint32_t k = wr->chunk;

	for (uint32_t i = 0; i < 60; i++) {
		w->next[k] = w->now[k];
		int rc = change(w, k);
		assert_int_equal(rc, 0);
		w->now[k] = w->next[k];
		w->in_flight[k] = false;
		w->ops++;
		if (below(w, 3) == 0)
			compare(w, k, &w->now[k]);
	}
	latch_done(&w->latch);
}

/* After a restart: a change in flight has happened, or not. */
static void settle(struct world *w)
{
	static uint8_t got[CS];

	for (uint32_t k = 0; k < N_CHUNKS; k++) {
		struct chunk_key id = id_of(k);
		int64_t n = rig_read(&w->rig, &id, 0, got, CS, true);

		assert_true(n >= 0);
		if (w->in_flight[k] && n == w->next[k].end &&
		    memcmp(got, w->next[k].data, (size_t)n) == 0)
			w->now[k] = w->next[k];
		w->in_flight[k] = false;
		assert_int_equal(n, w->now[k].end);
		assert_memory_equal(got, w->now[k].data, (size_t)n);
	}
}

static void storm(struct rig *r, void *arg)
{
	struct world *w = arg;
	struct writer writers[N_CHUNKS];

	r->joined = joined;
	r->joined_arg = w;
	settle(w);
	latch_init(&w->latch, N_CHUNKS);
	for (uint32_t k = 0; k < N_CHUNKS; k++) {
		writers[k] = (struct writer){w, k};
		assert_int_equal(fiber_spawn("writer", writer, &writers[k]), 0);
	}
	latch_wait(&w->latch);
}

static void check_settled(struct rig *r, void *arg)
{
	(void)r;
	settle(arg);
}

struct tally {
	uint64_t crashes, ops, packed, unpacks;
};

static void one_seed(uint64_t seed, struct tally *t)
{
	struct world *w = calloc(1, sizeof(*w));

	rig_init(&w->rig, seed);
	w->rig.pack = seed % 2;
	for (int round = 0; round < 4; round++)
		t->crashes +=
			rig_run_crash(&w->rig, storm, w, 60 + sim_random_below(w->rig.sim, 3000));
	rig_run(&w->rig, check_settled, w);
	assert_int_equal(rig_check(&w->rig, true), 0);
	rig_run(&w->rig, storm, w);
	assert_int_equal(rig_check(&w->rig, true), 0);
	t->ops += w->ops;
	t->packed += metric_get(&w->rig.metrics.packed);
	t->unpacks += metric_get(&w->rig.metrics.unpacks);
	rig_fini(&w->rig);
	free(w);
}

/* Runs in a child process: the memory of crashed processes is not freed. */
static void test_random_with_crashes(void **state)
{
	struct tally t = {0};
	int pipe_fds[2], status = 0;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		for (uint64_t seed = 1; seed <= 12; seed++)
			one_seed(seed, &t);
		_exit(write(pipe_fds[1], &t, sizeof(t)) == (ssize_t)sizeof(t) ? 0 : 1);
	}
	close(pipe_fds[1]);
	assert_int_equal(read(pipe_fds[0], &t, sizeof(t)), sizeof(t));
	close(pipe_fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	print_message("%llu changes acknowledged, %llu crashes, %llu blocks compressed, %llu "
		      "unpacked\n",
		      (unsigned long long)t.ops, (unsigned long long)t.crashes,
		      (unsigned long long)t.packed, (unsigned long long)t.unpacks);
	assert_true(t.crashes > 20);
	assert_true(t.packed > 1000 && t.unpacks > 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_and_read),
		cmocka_unit_test(test_holes_and_short_blocks),
		cmocka_unit_test(test_bad_writes_are_refused),
		cmocka_unit_test(test_trim_punch_remove),
		cmocka_unit_test(test_many_files_are_removed),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_lost_sync),
		cmocka_unit_test(test_file_system_below_is_full),
		cmocka_unit_test(test_quota_below),
		cmocka_unit_test(test_damage_is_found),
		cmocka_unit_test(test_waits_for_slots),
		cmocka_unit_test(test_exactly_once), cmocka_unit_test(test_ends_late),
		cmocka_unit_test(test_answers_in_doubt),
		cmocka_unit_test(test_random_with_crashes),
	};

	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
