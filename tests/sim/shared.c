/* SPDX-License-Identifier: Apache-2.0 */
/* See shared.h. */
#include "tests/sim/shared.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hmap.h"
#include "common/base/log.h"
#include "common/proto/mds_proto.h"
#include "tests/sim/linear.h"

/*
 * A cell is the smallest unit of writes: four make a block (16 KiB), so that most writes are
 * fragments and some whole blocks. The cells lie around the border of two chunks (64 KiB), so some
 * writes are two requests. They are few, so that clients conflict.
 */
#define FILES         3u
#define CELL          4096u
#define CELLS         12u
#define CELLS_AT_ONCE 8u
#define FIRST_CELL_AT (40u << 10)
#define FILE_SIZE     (FIRST_CELL_AT + (uint64_t)CELL * CELLS)
#define HOT_US        2000000u
#define WIDTH         4u /* concurrent operations of one client */
#define TAG_WORDS     64u
#define HOLD_US       4000000u
/* The names lie in two directories, so that some renames go from one to the other. */
#define NAME_DIRS 2u
/* Registers: the cells of all files, and one attribute. */
#define REG_ATTR (FILES * CELLS)

struct shared_client {
	struct client *client;
	struct ll_file *file[FILES];
	struct ino attr_ino, names_ino[NAME_DIRS];
	uint64_t synced[FILES]; /* when the last successful fsync began */
	bool syncing;
};

struct shared {
	struct cluster *c;
	uint64_t tick, value;
	uint32_t tag;
	struct reg_history regs;
	struct name_history names;
	struct shared_client client[CLIENTS_MAX + 1];
};

static const struct cred root = {.uid = 0, .gid = 0, .flags = CRED_CHECKED};

static uint64_t rnd(struct shared *s, uint64_t n)
{
	return sim_random_below(s->c->sim, n);
}

static bool expect(struct shared *s, const char *what, int64_t status, int64_t want)
{
	if (status == want || s->c->failed)
		return !s->c->failed;
	cluster_fail(s->c, "shared %s: %s (%lld), expected %lld", what,
		     status < 0 ? status_name((int)status) : "ok", (long long)status,
		     (long long)want);
	return false;
}

static struct bytes name_of(char buf[24], const char *prefix, uint32_t i)
{
	snprintf(buf, 24, "%s%u", prefix, i);
	return bytes_str(buf);
}

/* ---- cells: every word encodes the value and its position ---- */

static void cell_fill(uint8_t *cell, uint64_t value)
{
	memcpy(cell, &value, 8);
	for (uint32_t i = 8; i < CELL; i += 8) {
		uint64_t word = hash_u64_2(value, i);
		memcpy(cell + i, &word, 8);
	}
}

static bool cell_value(const uint8_t *cell, uint64_t *ret_value)
{
	uint64_t value, word;

	memcpy(&value, cell, 8);
	for (uint32_t i = 8; i < CELL; i += 8) {
		memcpy(&word, cell + i, 8);
		if (word != (value == 0 ? 0 : hash_u64_2(value, i)))
			return false;
	}
	*ret_value = value;
	return true;
}

/* ---- opening ---- */

static void open_file(struct shared *s, uint32_t index, uint32_t i)
{
	struct shared_client *sc = &s->client[index];
	struct attr a, set = {.size = FILE_SIZE};
	char name[24];
	int status;

	if (sc->file[i] != NULL)
		return;
	status = ll_create(sc->client, &root, s->c->shared_dir[i % s->c->n_shared_dirs],
			   name_of(name, "shared", i), 0644,
			   O_RDWR | O_CREAT | (s->c->plan.late ? 0 : O_DIRECT), &sc->file[i], &a);
	if (!expect(s, "open", status, 0))
		return;
	/* A client that finds the file short extends it; no client truncates it. */
	if (a.size < FILE_SIZE)
		expect(s, "set size",
		       ll_setattr(sc->client, &root, a.ino, sc->file[i], SET_SIZE, &set, &a), 0);
}

static void make(struct shared *s, struct client *client, const char *name, uint32_t mode,
		 struct ino *ret_ino)
{
	struct ino parent = s->c->shared_dir[0];
	struct attr a;
	int status = S_ISDIR(mode) ? ll_mkdir(client, &root, parent, bytes_str(name), 0755, &a)
				   : ll_mknod(client, &root, parent, bytes_str(name), mode, 0, &a);

	if (status == -LE_EXIST)
		status = ll_lookup(client, &root, parent, bytes_str(name), &a);
	if (expect(s, name, status, 0))
		*ret_ino = a.ino;
}

void shared_client_start(struct shared *s, uint32_t index, struct client *client)
{
	struct shared_client *sc = &s->client[index];

	/* What the client had not synced is lost if a server has crashed as well. */
	for (uint32_t i = 0; s->c->plan.late && i < FILES; i++)
		reg_lose(&s->regs, index, i * CELLS, CELLS, sc->synced[i]);
	*sc = (struct shared_client){.client = client};
	for (uint32_t i = 0; i < FILES; i++)
		sc->synced[i] = s->tick;
	make(s, client, "shared_attr", S_IFREG | 0644, &sc->attr_ino);
	for (uint32_t i = 0; i < NAME_DIRS; i++) {
		char name[24];

		snprintf(name, sizeof(name), "shared_names%u", i);
		make(s, client, name, S_IFDIR, &sc->names_ino[i]);
	}
}

void shared_client_end(struct shared *s, uint32_t index)
{
	struct shared_client *sc = &s->client[index];

	for (uint32_t i = 0; i < FILES; i++) {
		if (sc->file[i] != NULL)
			ll_release(sc->file[i]);
		sc->file[i] = NULL;
	}
}

/* ---- reading and writing cells ---- */

struct transfer {
	struct shared *s;
	uint32_t index, file, first, n;
	bool write;
	uint8_t *buf;
	size_t op[CELLS];
	int64_t done;
};

static void transfer_begin(struct transfer *t)
{
	struct shared *s = t->s;

	for (uint32_t i = 0; i < t->n; i++) {
		uint32_t reg = t->file * CELLS + t->first + i;
		uint64_t value = t->write ? ++s->value : 0;

		if (t->write)
			cell_fill(t->buf + (size_t)i * CELL, value);
		t->op[i] = reg_begin(&s->regs, reg, t->index, value, ++s->tick);
	}
	log_debug("%llu us: client %u %s cells %u..%u of shared%u, tick %llu, values to %llu",
		  (unsigned long long)sim_now_us(s->c->sim), t->index,
		  t->write ? "writes" : "reads", t->first, t->first + t->n - 1, t->file,
		  (unsigned long long)s->tick, (unsigned long long)s->value);
}

static void transfer_end(struct transfer *t)
{
	struct shared *s = t->s;

	/* The outcome of a part of the write is undefined, so it may have happened or not. */
	if (s->c->plan.refuse && t->write && t->done == -LE_NOSPC)
		return;
	/* The write returned that it is lost. */
	if (t->write && t->done == -LE_LATE)
		return;
	if (!expect(s, t->write ? "write" : "read", t->done, (int64_t)t->n * CELL))
		return;
	for (uint32_t i = 0; i < t->n; i++) {
		uint64_t value = 0;

		if (!t->write && !cell_value(t->buf + (size_t)i * CELL, &value)) {
			cluster_fail(s->c, "client %u reads cell %u of shared%u: torn", t->index,
				     t->first + i, t->file);
			return;
		}
		reg_end(&s->regs, t->op[i], value, ++s->tick);
		if (!t->write)
			log_debug("client %u read %llu from cell %u of shared%u, tick %llu",
				  t->index, (unsigned long long)value, t->first + i, t->file,
				  (unsigned long long)s->tick);
	}
}

/* Reads each cell by one small read, all concurrently. */
static int64_t read_cells(struct transfer *t, struct ll_file *file, uint64_t off)
{
	struct ll_part parts[CELLS];
	int64_t done = 0;

	for (uint32_t i = 0; i < t->n; i++)
		parts[i] = (struct ll_part){
			file, t->buf + (size_t)i * CELL, off + i * CELL, CELL, 0, NULL};
	ll_pread_batch(t->s->client[t->index].client, parts, t->n);
	for (uint32_t i = 0; i < t->n && done >= 0; i++)
		done = parts[i].done < 0 ? parts[i].done : done + parts[i].done;
	return done;
}

static void transfer(void *arg)
{
	struct transfer *t = arg;
	struct shared *s = t->s;
	struct ll_file *file = s->client[t->index].file[t->file];
	uint64_t len = (uint64_t)t->n * CELL, off = FIRST_CELL_AT + (uint64_t)t->first * CELL;

	t->buf = malloc(len);
	if (t->buf == NULL)
		return;
	if (rnd(s, 2))
		fiber_sleep_us(rnd(s, 2000));
	transfer_begin(t);
	if (t->write)
		t->done = ll_pwrite(file, t->buf, len, off);
	else
		t->done = rnd(s, 2) ? ll_pread(file, t->buf, len, off) : read_cells(t, file, off);
	transfer_end(t);
	free(t->buf);
}

static void use_attr(struct shared *s, uint32_t index)
{
	struct shared_client *sc = &s->client[index];
	struct attr a, set = {.uid = 0};
	bool write = rnd(s, 2);
	size_t op;

	if (write)
		set.uid = (uint32_t)++s->value;
	op = reg_begin(&s->regs, REG_ATTR, index, set.uid, ++s->tick);
	if (write)
		expect(s, "set owner",
		       ll_setattr(sc->client, &root, sc->attr_ino, NULL, SET_UID, &set, &a), 0);
	else
		expect(s, "look at owner",
		       ll_lookup(sc->client, &root, s->c->shared_dir[0], bytes_str("shared_attr"),
				 &a),
		       0);
	if (!s->c->failed)
		reg_end(&s->regs, op, a.uid, ++s->tick);
}

void shared_data(struct shared *s, uint32_t index)
{
	struct transfer t[WIDTH];
	/* Often all clients at one place, which the clock chooses. */
	bool hot = rnd(s, 4) != 0;
	uint64_t place = hot ? hash_u64(sim_now_us(s->c->sim) / HOT_US) : rnd(s, 1u << 20);
	uint32_t n = 1 + (uint32_t)rnd(s, WIDTH), file = (uint32_t)(place % FILES);
	uint32_t near = (uint32_t)(place / FILES % CELLS), span = rnd(s, 2) ? 2 : CELLS;

	if (rnd(s, 8) == 0) {
		use_attr(s, index);
		return;
	}
	open_file(s, index, file);
	if (s->c->failed)
		return;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t first = (near + (uint32_t)rnd(s, span)) % CELLS;
		uint32_t len = 1 + (uint32_t)rnd(s, rnd(s, 2) ? 3 : CELLS_AT_ONCE);

		t[i] = (struct transfer){
			.s = s,
			.index = index,
			.file = file,
			.first = first,
			.n = len < CELLS - first ? len : CELLS - first,
			.write = rnd(s, 5) < 3,
		};
	}
	fiber_parallel("transfer", transfer, t, sizeof(t[0]), n, n);
}

/* ---- contended ---- */

#define ACTORS        3u
#define NAME_ACTORS   2u
#define CONTEND_FIRST 4u /* of four cells: the border of the two chunks is in their middle */
#define CONTEND_CELLS 4u

struct actor {
	struct shared *s;
	uint32_t index, file, *left;
};

/* Mostly a reader or mostly a writer for a while: a client that only reads continues where no write
 * can end, at a member that is cut off together with it. */
static void act(void *arg)
{
	struct actor *a = arg;
	struct shared *s = a->s;
	uint32_t writes = 0, turns = 0;

	while (*a->left > 0 && !s->c->failed) {
		uint32_t first = (uint32_t)rnd(s, CONTEND_CELLS), most = CONTEND_CELLS - first;
		struct transfer t = {.s = s, .index = a->index, .file = a->file};

		if (turns-- == 0) {
			turns = (uint32_t)rnd(s, 60);
			writes = rnd(s, 3) == 0 ? 7 : 0;
		}
		t.first = CONTEND_FIRST + first;
		t.n = 1 + (uint32_t)rnd(s, most);
		t.write = rnd(s, 10) < writes;
		(*a->left)--;
		s->c->count.ops++;
		transfer(&t);
		if (rnd(s, 4) == 0)
			fiber_sleep_us(rnd(s, 100000));
	}
}

void shared_contend(struct shared *s, uint32_t index, uint32_t *left)
{
	/* The first file has three replicas, the second two (workload.c). */
	uint32_t file = s->c->plan.seed % 3 == 0;
	struct actor a[ACTORS];

	open_file(s, index, file);
	if (s->c->failed)
		return;
	for (uint32_t i = 0; i < ACTORS; i++)
		a[i] = (struct actor){s, index, file, left};
	fiber_parallel("actor", act, a, sizeof(a[0]), ACTORS, ACTORS);
}

/* One fsync at a time for each client: it reports errors of writes since the last one. */
static void sync_file(struct shared *s, uint32_t index, uint32_t file)
{
	struct shared_client *sc = &s->client[index];
	uint64_t began = ++s->tick;
	int status;

	if (sc->syncing)
		return;
	sc->syncing = true;
	status = ll_fsync(sc->file[file], false);
	sc->syncing = false;
	log_debug("%llu us: client %u synced shared%u from tick %llu: %s",
		  (unsigned long long)sim_now_us(s->c->sim), index, file, (unsigned long long)began,
		  status_name(status));
	if (status == -LE_LATE) {
		reg_lose(&s->regs, index, file * CELLS, CELLS, sc->synced[file]);
		s->c->count.lost++;
	} else if (!expect(s, "fsync", status, 0)) {
		return;
	}
	sc->synced[file] = began;
}

static void act_late(void *arg)
{
	struct actor *a = arg;
	struct shared *s = a->s;

	while (*a->left > 0 && !s->c->failed) {
		uint32_t first = (uint32_t)rnd(s, CONTEND_CELLS);
		struct transfer t = {.s = s, .index = a->index, .file = a->file};

		t.first = CONTEND_FIRST + first;
		t.n = 1 + (uint32_t)rnd(s, CONTEND_CELLS - first);
		t.write = rnd(s, 2);
		(*a->left)--;
		s->c->count.ops++;
		transfer(&t);
		if (rnd(s, 8) == 0 && !s->c->failed)
			sync_file(s, a->index, a->file);
		if (rnd(s, 4) == 0)
			fiber_sleep_us(rnd(s, 20000));
	}
}

void shared_contend_late(struct shared *s, uint32_t index, uint32_t *left)
{
	struct actor a[ACTORS];

	open_file(s, index, 0);
	if (s->c->failed)
		return;
	for (uint32_t i = 0; i < ACTORS; i++)
		a[i] = (struct actor){s, index, 0, left};
	fiber_parallel("actor", act_late, a, sizeof(a[0]), ACTORS, ACTORS);
	if (!s->c->failed)
		sync_file(s, index, 0);
}

/* ---- names ---- */

static struct ino dir_of(const struct shared_client *sc, uint32_t name)
{
	return sc->names_ino[name % NAME_DIRS];
}

/* The content of a file identifies it. */
static void name_write(struct shared *s, struct ll_file *file, uint32_t tag)
{
	uint64_t words[TAG_WORDS];
	int64_t n;

	for (uint32_t i = 0; i < TAG_WORDS; i++)
		words[i] = hash_u64_2(tag, i);
	n = ll_pwrite(file, words, sizeof(words), 0);
	/* The session may have ended, or all disks may be full. */
	if (n != -LE_STALE && n != -LE_IO && n != -LE_NOSPC)
		expect(s, "write name", n, sizeof(words));
}

/* A client that has opened a file can read it, whatever happens to its name meanwhile. */
static void name_hold(struct shared *s, uint32_t index)
{
	struct shared_client *sc = &s->client[index];
	uint32_t name = (uint32_t)rnd(s, LINEAR_NAMES), tag;
	uint64_t words[TAG_WORDS];
	struct ll_stats before, after;
	struct ll_file *file;
	struct attr a;
	char buf[24];
	bool changed;
	int64_t n;

	if (ll_lookup(sc->client, &root, dir_of(sc, name), name_of(buf, "n", name), &a) < 0)
		return;
	tag = a.uid;
	ll_stats(sc->client, &before);
	if (ll_open(sc->client, &root, a.ino, O_RDONLY | OPEN_ORPHAN, &file, &a, &changed) < 0)
		return;
	ll_expect_read(file);
	if (fiber_sleep_us(rnd(s, HOLD_US)) == 0) {
		n = ll_pread(file, words, sizeof(words), 0);
		ll_stats(sc->client, &after);
		if (n < 0 && before.session == after.session && n != -LE_INTR)
			expect(s, "read of what is held", n, sizeof(words));
		for (uint32_t i = 0; n == (int64_t)sizeof(words) && i < TAG_WORDS; i++)
			if (words[i] != hash_u64_2(tag, i))
				expect(s, "bytes of what is held", -LE_CORRUPT, 0);
	}
	ll_release(file);
}

/* ret_found: the result of a lookup. */
static int name_run(struct shared *s, uint32_t index, const struct name_op *op, struct ino ino,
		    struct attr *ret_found)
{
	struct shared_client *sc = &s->client[index];
	struct cred who = {.uid = op->tag, .flags = CRED_CHECKED};
	char a[24], b[24];
	struct bytes from = name_of(a, "n", op->a), to = name_of(b, "n", op->b);
	struct ino dir = dir_of(sc, op->a);
	struct ll_file *file;
	struct attr attr;
	int status = 0;

	switch (op->kind) {
	case NAME_CREATE:
		status = ll_create(sc->client, &who, dir, from, 0644, O_RDWR | O_CREAT | O_EXCL,
				   &file, &attr);
		if (status == 0) {
			if (op->tag % 4 == 0)
				name_write(s, file, op->tag);
			ll_release(file);
		}
		return status;
	case NAME_UNLINK:
		return ll_unlink(sc->client, &root, dir, from);
	case NAME_RENAME:
		return ll_rename(sc->client, &root, dir, from, dir_of(sc, op->b), to, 0);
	case NAME_LOOKUP:
		return ll_lookup(sc->client, &root, dir, from, ret_found);
	case NAME_LINK:
		return ll_link(sc->client, &root, ino, dir, from, &attr);
	case NAME_NOTHING:
		break;
	}
	return status;
}

/* Kills the program that requested a change, while it waits. */
struct killer {
	struct ll_request request;
	uint64_t after_us;
	struct fiber *fiber;
	bool ended;
	struct waitq done;
};

static void kill_later(void *arg)
{
	struct killer *k = arg;

	k->fiber = fiber_self();
	if (fiber_sleep_us(k->after_us) == 0)
		ll_request_cancel(&k->request);
	k->fiber = NULL;
	k->ended = true;
	waitq_wake_all(&k->done);
}

static int name_run_killed(struct shared *s, uint32_t index, const struct name_op *op,
			   struct ino ino)
{
	struct killer k = {.after_us = rnd(s, rnd(s, 2) ? 1000 : 1000000)};
	struct attr found;
	int status;

	waitq_init(&k.done);
	ll_request_begin(&k.request, s->client[index].client, 0);
	k.ended = fiber_spawn("killer", kill_later, &k) < 0;
	status = name_run(s, index, op, ino, &found);
	if (k.fiber != NULL)
		fiber_interrupt(k.fiber);
	while (!k.ended)
		(void)!waitq_wait(&k.done, NO_DEADLINE);
	ll_request_end(&k.request);
	return status;
}

static bool may_say(enum name_kind kind, int status)
{
	if (kind == NAME_CREATE)
		return status == -LE_EXIST;
	if (kind == NAME_LINK)
		return status == -LE_EXIST || status == -LE_NOENT || status == -LE_STALE;
	return status == -LE_NOENT;
}

/* ino: the file that a link names; a lookup returns the file that it found in it. */
static void name_record(struct shared *s, struct name_op op, struct ino *ino, uint32_t *ret_tag)
{
	*ret_tag = 0;

	struct attr found = {.uid = 0};
	size_t at = name_begin(&s->names, &op, ++s->tick);
	bool killed = op.kind != NAME_LOOKUP && rnd(s, 8) == 0;
	int status = killed ? name_run_killed(s, op.client, &op, *ino)
			    : name_run(s, op.client, &op, *ino, &found);
	uint32_t tag = status == 0 ? found.uid : op.kind == NAME_LINK && status == -LE_EXIST;

	/* A change that was executed and has no reply is repeated in the new session: it may be
	 * executed twice. */
	if (status != 0)
		cluster_end_fenced(s->c);

	/* The file was created, the reply was lost, the metadata server crashed, and another client
	 * has removed the file: the client cannot open it. It may have happened, or not. */
	if (op.kind == NAME_CREATE && status == -LE_STALE)
		return;
	if (killed && status == -LE_INTR) {
		s->c->count.withdrawn++;
		name_void(&s->names, at, ++s->tick);
	} else if (status != 0 && !may_say(op.kind, status)) {
		expect(s, "name", status, 0);
	} else if (!s->c->failed) {
		name_end(&s->names, at, status == 0, tag, ++s->tick);
	}
	log_debug("%llu us: client %u name op %d of n%u n%u tag %u: %s, tag %u",
		  (unsigned long long)sim_now_us(s->c->sim), op.client, op.kind, op.a, op.b, op.tag,
		  status_name(status), tag);
	*ino = found.ino;
	*ret_tag = status == 0 ? tag : 0;
}

static void name_op(struct shared *s, uint32_t index, enum name_kind kind, uint32_t a)
{
	uint32_t other = (a + 1 + (uint32_t)rnd(s, LINEAR_NAMES - 1)) % LINEAR_NAMES, tag;
	struct name_op op = {.kind = kind, .client = index, .a = a};
	struct ino ino = {0};

	/* A link names a file, not another name, so its tag must be looked up first. */
	if (kind == NAME_LINK) {
		name_record(s, (struct name_op){NAME_LOOKUP, index, .a = other}, &ino, &tag);
		op.tag = tag;
		if (tag == 0)
			return;
	}
	if (kind == NAME_RENAME)
		op.b = other;
	if (kind == NAME_CREATE)
		op.tag = ++s->tag;
	if (!s->c->failed)
		name_record(s, op, &ino, &tag);
}

/* A listing with attributes looks up all names of a directory, at one time. */
struct name_list {
	struct shared *s;
	bool there[LINEAR_NAMES];
	uint32_t tag[LINEAR_NAMES];
};

static int name_listed(void *arg, const struct ll_dirent *e)
{
	struct name_list *l = arg;
	char name[24];
	unsigned i;

	snprintf(name, sizeof(name), "%.*s", (int)e->name.len, (const char *)e->name.data);
	if (sscanf(name, "n%u", &i) != 1 || i >= LINEAR_NAMES) {
		expect(l->s, "stranger listed", 1, 0);
		return 1;
	}
	l->there[i] = true;
	l->tag[i] = e->attr.uid;
	return 0;
}

static void name_list(struct shared *s, uint32_t index)
{
	struct shared_client *sc = &s->client[index];
	struct name_list l = {.s = s};
	uint32_t first = (uint32_t)rnd(s, NAME_DIRS);
	size_t at[LINEAR_NAMES];
	bool eof = false;
	int status;

	for (uint32_t i = first; i < LINEAR_NAMES; i += NAME_DIRS)
		at[i] = name_begin(&s->names,
				   &(struct name_op){.kind = NAME_LOOKUP, .client = index, .a = i},
				   ++s->tick);
	status =
		ll_readdir(sc->client, &root, sc->names_ino[first], 0, true, name_listed, &l, &eof);
	if (status != 0)
		cluster_end_fenced(s->c);
	if (s->c->failed || !expect(s, "list names", status, 0))
		return;
	expect(s, "all listed", eof, true);
	for (uint32_t i = first; i < LINEAR_NAMES; i += NAME_DIRS)
		/* Listed and removed before its attributes were read: it has no tag. */
		if (!l.there[i] || l.tag[i] != 0)
			name_end(&s->names, at[i], l.there[i], l.tag[i], ++s->tick);
}

/* Reads one entry at a time, from batches that were fetched before: an entry may be stale, but what
 * is looked up after it must not be. */
struct name_walk {
	uint64_t cookie;
	uint32_t n;
};

static int name_walked(void *arg, const struct ll_dirent *e)
{
	struct name_walk *w = arg;

	if (w->n > 0)
		return 1;
	w->n++;
	w->cookie = e->cookie;
	return 0;
}

static void name_walk(struct shared *s, uint32_t index)
{
	struct shared_client *sc = &s->client[index];
	struct ino dir = sc->names_ino[rnd(s, NAME_DIRS)];
	struct name_walk w = {.n = 1};
	bool eof = false;

	while (!eof && w.n > 0 && !s->c->failed) {
		int status;

		w.n = 0;
		status = ll_readdir(sc->client, &root, dir, w.cookie, true, name_walked, &w, &eof);
		if (status != 0)
			cluster_end_fenced(s->c);
		expect(s, "walk names", status, 0);
		fiber_sleep_us(rnd(s, 20000));
	}
}

static void any_name_op(struct shared *s, uint32_t index)
{
	name_op(s, index, (enum name_kind)rnd(s, N_NAME_KINDS), (uint32_t)rnd(s, LINEAR_NAMES));
}

void shared_names(struct shared *s, uint32_t index)
{
	for (uint64_t n = 1 + rnd(s, 4); n > 0 && !s->c->failed; n--)
		any_name_op(s, index);
}

static void act_on_names(void *arg)
{
	struct actor *a = arg;

	while (*a->left > 0 && !a->s->c->failed) {
		(*a->left)--;
		a->s->c->count.ops++;
		switch (rnd(a->s, 16)) {
		case 0:
			name_hold(a->s, a->index);
			break;
		case 1:
			name_list(a->s, a->index);
			break;
		case 2:
			name_walk(a->s, a->index);
			break;
		default:
			any_name_op(a->s, a->index);
		}
		if (rnd(a->s, 4) == 0)
			fiber_sleep_us(rnd(a->s, 100000));
	}
}

void shared_contend_names(struct shared *s, uint32_t index, uint32_t *left)
{
	struct actor a[NAME_ACTORS];

	for (uint32_t i = 0; i < NAME_ACTORS; i++)
		a[i] = (struct actor){s, index, 0, left};
	fiber_parallel("actor", act_on_names, a, sizeof(a[0]), NAME_ACTORS, NAME_ACTORS);
}

/* ---- the end ---- */

static void read_all(struct shared *s, uint32_t index)
{
	for (uint32_t i = 0; i < FILES && !s->c->failed; i++) {
		struct transfer t = {.s = s, .index = index, .file = i, .n = CELLS};

		open_file(s, index, i);
		if (!s->c->failed)
			transfer(&t);
	}
	for (uint32_t i = 0; i < LINEAR_NAMES && !s->c->failed; i++)
		name_op(s, index, NAME_LOOKUP, i);
}

static void remove_all(struct shared *s, uint32_t index)
{
	struct shared_client *sc = &s->client[index];
	struct ino *dir = s->c->shared_dir;
	char name[24];

	shared_client_end(s, index);
	for (uint32_t i = 0; i < FILES; i++)
		expect(s, "remove",
		       ll_unlink(sc->client, &root, dir[i % s->c->n_shared_dirs],
				 name_of(name, "shared", i)),
		       0);
	for (uint32_t i = 0; i < LINEAR_NAMES; i++)
		(void)!ll_unlink(sc->client, &root, dir_of(sc, i), name_of(name, "n", i));
	for (uint32_t i = 0; i < NAME_DIRS; i++)
		expect(s, "remove names",
		       ll_rmdir(sc->client, &root, dir[0], name_of(name, "shared_names", i)), 0);
	expect(s, "remove attr", ll_unlink(sc->client, &root, dir[0], bytes_str("shared_attr")), 0);
}

void shared_verify(struct shared *s, uint32_t index)
{
	enum names_verdict names = NAMES_POSSIBLE;
	char why[LINEAR_WHY_SIZE];

	read_all(s, index);
	s->c->count.shared_ops += s->regs.n + s->names.n;
	if (!s->c->failed && !reg_check(&s->regs, why))
		cluster_fail(s->c, "not linearizable: %s", why);
	if (!s->c->failed)
		names = name_check(&s->names, why);
	if (names == NAMES_IMPOSSIBLE)
		cluster_fail(s->c, "names not linearizable: %s", why);
	s->c->count.undecided += names == NAMES_NOT_DECIDED;
	if (!s->c->failed)
		remove_all(s, index);
}

struct shared *shared_create(struct cluster *c)
{
	struct shared *s = calloc(1, sizeof(*s));

	if (s != NULL)
		s->c = c;
	return s;
}
