/* SPDX-License-Identifier: Apache-2.0 */
/*
 * power_store run DIR MARK OPS [nosync|nodatasync]     workers change chunks of one store and mark
 *                                                      each acknowledgement
 * power_store verify DIR MARKS                         checks what a cut left: the store is sound,
 *                                                      each worker's bytes and recorded reply are
 *                                                      as its last acknowledged operation left
 *                                                      them, or the next; then each continues
 *
 * Worker w owns a file (inode 100 + w) and every WORKERS-th cell of one shared chunk, so that
 * fragments of different workers meet in one block. Operation n and the bytes after it follow from
 * (w, n). The replay row of a write is in the batch of the write, so row and bytes must agree
 * exactly; operations over many chunks may be done in part until they are acknowledged.
 */
#include "ossd/check.h"
#include "ossd/chunk/chunk_files.h"
#include "ossd/chunk/chunk_read.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/format.h"
#include "tests/fault/power.h"

#include "common/base/log.h"
#include "ossd/chunk/chunk_store.h"
#include "ossd/server.h"
#include "tests/lib/sealed.h"

#define WORKERS    6u
#define CHUNK      (64u << 10)
#define CHUNKS     3u
#define FILE_SIZE  (CHUNKS * CHUNK)
#define CELL       700u
#define CELLS      15u
#define SHARED_INO 99u
#define CAPACITY   "3M"

enum kind {
	WRITE,
	CELL_WRITE,
	PUNCH,
	TRIM,
	REMOVE
};

struct op {
	enum kind kind;
	uint32_t off, len; /* of the file, or of the shared chunk */
};

/* The bytes of one worker. */
struct state {
	uint8_t file[FILE_SIZE];
	uint8_t cells[CELLS][CELL];
};

struct run {
	const char *dir, *mark, *marks;
	unsigned int ops;
	bool nodatasync; /* syncs the index, but not its data */
	int mark_fd;
	struct ossd_params params;
	struct ossd_metrics metrics;
	struct chunk_store *store;
	struct slot_pool *pool;
	struct latch left;
};

struct worker {
	struct run *run;
	unsigned int who;
};

static struct op op_of(unsigned int who, unsigned int n)
{
	uint64_t h = power_hash(who, n, 1), pick = h % 100;
	struct op op = {.kind = WRITE};

	if (pick < 45) {
		uint32_t chunk = (uint32_t)(h >> 8) % CHUNKS * CHUNK,
			 at = (uint32_t)(h >> 16) % CHUNK;

		if (pick < 10) { /* whole blocks */
			at = at / LEAT_BLOCK_SIZE_MIN * LEAT_BLOCK_SIZE_MIN;
			op.len = LEAT_BLOCK_SIZE_MIN * (1 + (uint32_t)(h >> 40) % 2);
		} else {
			op.len = 1 + (uint32_t)(h >> 40) % (pick < 30 ? 600 : 22000);
		}
		if (op.len > CHUNK - at)
			op.len = CHUNK - at;
		op.off = chunk + at;
	} else if (pick < 70) {
		uint32_t cell = (uint32_t)(h >> 8) % CELLS;

		op = (struct op){CELL_WRITE, (cell * WORKERS + who) * CELL, CELL};
	} else if (pick < 82) {
		op = (struct op){PUNCH, (uint32_t)(h >> 8) % (FILE_SIZE - 1), 0};
		op.len = 1 + (uint32_t)(h >> 40) % 60000;
		if (op.len > FILE_SIZE - op.off)
			op.len = FILE_SIZE - op.off;
	} else {
		op = (struct op){pick < 95 ? TRIM : REMOVE, (uint32_t)(h >> 8) % FILE_SIZE, 0};
	}
	return op;
}

static void fill(uint8_t *to, uint32_t len, unsigned int who, unsigned int n)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] = (uint8_t)(power_hash(who, n, 2) >> (i % 7)) | 1;
}

static void state_apply(struct state *s, unsigned int who, unsigned int n)
{
	struct op op = op_of(who, n);

	switch (op.kind) {
	case WRITE:
		fill(s->file + op.off, op.len, who, n);
		break;
	case CELL_WRITE:
		fill(s->cells[op.off / CELL / WORKERS], CELL, who, n);
		break;
	case PUNCH:
		memset(s->file + op.off, 0, op.len);
		break;
	case TRIM:
		memset(s->file + op.off, 0, FILE_SIZE - op.off);
		break;
	case REMOVE:
		memset(s->file, 0, FILE_SIZE);
	}
}

/* ---- one operation on the store, as ossd/ops does it ---- */

static int begin_write(struct run *r, const struct chunk_write *w, struct replay_ent *e,
		       unsigned int n, struct chunk_tx *tx)
{
	TRY(chunk_write_begin(r->store, w, tx));
	replay_join(e, group_commit_batch(&r->store->gc), &n, sizeof(n));
	chunk_tx_join(tx);
	return chunk_tx_wait(tx);
}

static int do_write(struct run *r, unsigned int who, unsigned int n, const struct op *op,
		    struct replay_ent *e)
{
	bool cell = op->kind == CELL_WRITE;
	struct slot_vec vec = {.len = op->len};
	struct chunk_write w = {
		.id = {1, {cell ? SHARED_INO : 100 + who}, 1, cell ? 0 : op->off / CHUNK},
		.chunk_size = CHUNK,
		.off = op->off % CHUNK,
		.len = op->len,
		.pack = n % 2, /* every second one is compressed if it pays */
		.bulk = &vec,
		.n_bulk = 1,
	};
	uint8_t pieces[PIECE_WIRE_SIZE * 8], *plain = malloc(op->len);
	struct chunk_tx tx;
	int rc = plain ? 0 : -LE_NOMEM;

	must(rc, "memory");
	must(slot_get(r->pool, NO_DEADLINE, &vec.slot), "slot");
	fill(plain, op->len, who, n);
	w.pieces.data = pieces;
	vec.len = sealed_cut(CHUNK, w.off, plain, op->len, w.pack, vec.slot->data, &w.pieces);
	free(plain);
	rc = begin_write(r, &w, e, n, &tx);
	slot_unref(vec.slot);
	return rc;
}

static int begin_answer(struct replay *rp, unsigned int who, unsigned int n,
			struct replay_ent **ret_ent)
{
	struct replay_key key = {.chain = 1, .session = 1000 + who};

	return replay_begin(rp, &key, n, 1, ret_ent);
}

static int do_many(struct run *r, unsigned int who, unsigned int n, const struct op *op,
		   struct replay_ent *e)
{
	struct group_commit *g = &r->store->gc;
	struct chunk_key file = {1, {100 + who}, 1, 0};
	uint64_t n_chunks;

	if (op->kind == PUNCH)
		TRY(chunk_punch_file(r->store, NULL,
				     &(struct chunk_punch){file, CHUNK, op->off, op->len},
				     &n_chunks));
	else if (op->kind == TRIM)
		TRY(chunk_trim_file(r->store, NULL, &file, CHUNK, op->off, &n_chunks));
	else
		TRY(chunk_remove_file(r->store, NULL, &file, &n_chunks));
	replay_join(e, group_commit_batch(g), &n, sizeof(n));
	return group_commit_wait(g, group_commit_join(g, NULL, false));
}

static void do_op(struct run *r, unsigned int who, unsigned int n)
{
	struct op op = op_of(who, n);
	struct replay_ent *e;
	int rc = begin_answer(&r->store->replay, who, n, &e);

	if (rc != 0)
		die("worker %u: operation %u has been answered before (%d)", who, n, rc);
	for (int i = 0; i < 1000; i++) {
		rc = op.kind == WRITE || op.kind == CELL_WRITE ? do_write(r, who, n, &op, e)
							       : do_many(r, who, n, &op, e);
		if (rc != -LE_NOSPC)
			break;
		must(fiber_sleep_us(1000), "sleep"); /* until freed space may be used */
	}
	must(rc, "operation");
	replay_end(e, e->run, true);
}

/* ---- run ---- */

static void params_init(struct run *r, bool nosync)
{
	struct config_section s = {"ossd", ossd_param_table, n_ossd_params, &r->params};
	static const char *const values[][2] = {
		{"data_size", CAPACITY},
		{"zero_ahead", "0"},
		{"grow_step", "1M"},
		{"reserve", "256K"},
		{"kv_write_buffer_size", "64K"},
		{"cache_size", "1M"},
		{"read_slots", "8"},
		{"merge_slots", "8"},
		{"small_slots", "16"},
	};
	char err[256];

	config_defaults(&s, 1);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (config_set(&s, values[i][0], values[i][1], err, sizeof(err)) < 0)
			die("%s", err);
	snprintf(r->params.data_dir, sizeof(r->params.data_dir), "%s", r->dir);
	r->params.sync = !nosync;
}

static void open_store(struct env *env, struct run *r)
{
	must(slot_pool_create(CHUNK + UNIT_SIZE, 2 * WORKERS, &r->pool), "pool");
	must(chunk_store_open(env, &r->params, &r->metrics, &r->store), "opening the store");
	if (r->store->space.frozen)
		die("the store is damaged");
}

static void close_store(struct run *r)
{
	chunk_store_close(r->store);
	slot_pool_destroy(r->pool);
}

static void work(void *arg)
{
	struct worker *w = arg;

	for (unsigned int n = 1; n <= w->run->ops; n++) {
		do_op(w->run, w->who, n);
		power_mark(w->run->mark_fd, w->who, n);
		if (power_hash(w->who, n, 3) % 4 == 0)
			must(fiber_sleep_us(500), "sleep");
	}
	latch_done(&w->run->left);
}

static int no_datasync(struct env_file *f)
{
	(void)f;
	return 0;
}

static void run(struct env *env, void *arg)
{
	static struct env_ops ops;
	struct run *r = arg;
	struct worker w[WORKERS];

	must(ossd_format(env, &r->params, false), "format");
	r->mark_fd = power_mark_open(r->mark);
	if (r->nodatasync) {
		ops = *env->ops;
		ops.file_datasync = no_datasync;
		env->ops = &ops;
	}
	open_store(env, r);
	latch_init(&r->left, WORKERS);
	for (unsigned int i = 0; i < WORKERS; i++) {
		w[i] = (struct worker){r, i};
		must(fiber_spawn("worker", work, &w[i]), "spawn");
	}
	latch_wait(&r->left);
	close_store(r);
	close(r->mark_fd);
}

/* ---- verify ---- */

static void read_chunk(struct run *r, struct chunk_key id, uint8_t *to)
{
	struct piece pieces[16];
	struct chunk_read rd = {
		.id = id, .len = CHUNK, .verify = true, .pieces = pieces, .n_pieces_max = 16};
	static uint8_t bulk[CHUNK];
	uint32_t at = 0;
	int rc = chunk_read(r->store, &rd);

	if (rc < 0)
		die("inode %llu chunk %llu: %s", (unsigned long long)id.ino.v,
		    (unsigned long long)id.idx, status_text(rc));
	memset(to, 0, CHUNK);
	for (uint32_t i = 0; i < rd.n_vec; i++) {
		memcpy(bulk + at, rd.vec[i].slot->data + rd.vec[i].off, rd.vec[i].len);
		at += rd.vec[i].len;
		slot_unref(rd.vec[i].slot);
	}
	sealed_open(pieces, rd.n_pieces, bulk, at, to, CHUNK);
}

/* The last durable operation of the worker: the last acknowledged one, or the next. */
static unsigned int last_answered(struct run *r, unsigned int who, unsigned int acknowledged)
{
	struct replay *rp = &r->store->replay;
	unsigned int n = acknowledged + 1, reply;
	struct replay_ent *e;
	int rc = begin_answer(rp, who, n, &e);

	if (rc == 0) {
		replay_end(e, e->run, false);
		if (--n == 0)
			return 0;
		rc = begin_answer(rp, who, n, &e);
		if (rc == 0)
			replay_end(e, e->run, false);
	}
	if (rc != 1)
		die("worker %u: the answer to operation %u is lost (%d)", who, acknowledged, rc);
	memcpy(&reply, e->reply, sizeof(reply));
	if (e->reply_len != sizeof(reply) || reply != n)
		die("worker %u: wrong answer to operation %u", who, n);
	return n;
}

static void compare(const uint8_t *got, const uint8_t *now, const uint8_t *next, uint32_t len,
		    const char *what, unsigned int who, unsigned int n)
{
	if (memcmp(got, now, len) == 0 || (next && memcmp(got, next, len) == 0))
		return;
	for (uint32_t i = 0; i < len; i++)
		if (got[i] != now[i])
			die("worker %u after operation %u: %s, byte %u is %u, not %u%s", who, n,
			    what, i, got[i], now[i],
			    next ? ", and not as after the next operation either" : "");
}

static unsigned int verify_worker(struct run *r, unsigned int who, unsigned int acknowledged)
{
	static struct state now, next;
	static uint8_t got[CHUNK];
	unsigned int n = last_answered(r, who, acknowledged);
	enum kind kind = op_of(who, n + 1).kind;
	bool partly = kind == PUNCH || kind == TRIM || kind == REMOVE;
	char what[32];

	memset(&now, 0, sizeof(now));
	for (unsigned int i = 1; i <= n; i++)
		state_apply(&now, who, i);
	next = now;
	state_apply(&next, who, n + 1);
	for (unsigned int i = 0; i < CHUNKS; i++) {
		read_chunk(r, (struct chunk_key){1, {100 + who}, 1, i}, got);
		snprintf(what, sizeof(what), "chunk %u", i);
		compare(got, now.file + i * CHUNK, partly ? next.file + i * CHUNK : NULL, CHUNK,
			what, who, n);
	}
	read_chunk(r, (struct chunk_key){1, {SHARED_INO}, 1, 0}, got);
	for (unsigned int i = 0; i < CELLS; i++) {
		snprintf(what, sizeof(what), "shared cell %u", i);
		compare(got + (i * WORKERS + who) * CELL, now.cells[i], NULL, CELL, what, who, n);
	}
	return n;
}

static void verify(struct env *env, void *arg)
{
	struct run *r = arg;
	unsigned int last[WORKERS] = {0};
	uint64_t problems = 0;

	power_marks_read(r->marks, last, WORKERS);
	must(ossd_check(env, &r->params, true, stderr, &problems), "check");
	if (problems)
		die("the check found %llu problems", (unsigned long long)problems);
	open_store(env, r);
	for (unsigned int i = 0; i < WORKERS; i++)
		last[i] = verify_worker(r, i, last[i]);
	for (unsigned int i = 0; i < WORKERS; i++)
		do_op(r, i, ++last[i]);
	for (unsigned int i = 0; i < WORKERS; i++)
		verify_worker(r, i, last[i]);
	close_store(r);
}

int main(int argc, char **argv)
{
	static struct run r;

	log_init("power_store", LOG_ERROR);
	if (argc >= 5 && strcmp(argv[1], "run") == 0) {
		r = (struct run){
			.dir = argv[2], .mark = argv[3], .ops = (unsigned int)atoi(argv[4])};
		params_init(&r, argc > 5 && strcmp(argv[5], "nosync") == 0);
		r.nodatasync = argc > 5 && strcmp(argv[5], "nodatasync") == 0;
		power_run(run, &r);
		return 0;
	}
	if (argc == 4 && strcmp(argv[1], "verify") == 0) {
		r = (struct run){.dir = argv[2], .marks = argv[3]};
		params_init(&r, false);
		power_run(verify, &r);
		return 0;
	}
	fprintf(stderr,
		"usage: power_store run DIR MARK OPS [nosync|nodatasync] | verify DIR MARKS\n");
	return 2;
}
