/* SPDX-License-Identifier: Apache-2.0 */
/* See cuts.h. */
#include "tests/sim/cuts.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hmap.h"
#include "common/base/log.h"
#include "tests/sim/damage.h"
#include "tests/sim/linear.h"
#include "tests/sim/logs.h"

/*
 * A cell is the unit of writes. Cells lie apart, so that a border of a chunk (64 KiB) or of a block
 * (16 KiB) is between most of them, and files end between cells only. No client writes between
 * cells: there are zeros up to the end of the file.
 */
#define FILES     2u
#define CELL      4096u
#define STRIDE    (24u << 10)
#define CELLS     8u
#define SPAN      (CELLS * STRIDE)
#define ACTORS    3u
#define HOT_US    2000000u
#define SYNC_US   20000u
#define PAGES_US  2000u
#define STUCK_US  900000u
#define AWAY_US   100000u
#define LATE_US   3000000u
#define ALL_CELLS 0, CELLS

#define PAST 32u

/* Of a cell: the newest writes that have ended, and when the newest change that has ended began. */
struct cell_past {
	struct {
		uint32_t value;
		uint64_t end;
	} write[PAST];
	uint32_t n;
	uint64_t over;
};

struct cuts_client {
	struct client *client;
	/* For each cell, the changes that this client has begun and ended: its kernel would have
	 * seen them. */
	uint32_t n_changes[FILES * CELLS];
	struct ll_file *file[FILES][ACTORS];
	bool direct[FILES][ACTORS];
	bool used; /* by this client or the one before it, which may have requests in flight */
};

struct cuts {
	struct cluster *c;
	uint64_t tick;
	uint32_t value;
	struct logs *logs;
	struct cell_history cells;
	struct cell_past past[FILES * CELLS];
	struct cuts_client client[CLIENTS_MAX + 1];
};

/* One operation, and its number in the history of each cell. */
struct deed {
	struct cuts *s;
	struct cuts_client *sc;
	uint32_t index, file, actor;
	uint32_t first, n; /* cells that are recorded */
	size_t op[CELLS];
	uint64_t began;
};

static const struct cred root = {.uid = 0, .gid = 0, .flags = CRED_CHECKED};

static uint64_t rnd(struct cuts *s, uint64_t n)
{
	return sim_random_below(s->c->sim, n);
}

static bool expect(struct cuts *s, const char *what, int64_t status, int64_t want)
{
	if (status == want || s->c->failed)
		return !s->c->failed;
	cluster_fail(s->c, "cut file: %s: %s (%lld), expected %lld", what,
		     status < 0 ? status_name((int)status) : "ok", (long long)status,
		     (long long)want);
	return false;
}

static struct ino dir_of(const struct cuts *s, uint32_t file)
{
	return s->c->shared_dir[file % s->c->n_shared_dirs];
}

static struct bytes name_of(char buf[24], uint32_t file)
{
	snprintf(buf, 24, "cut%u", file);
	return bytes_str(buf);
}

static struct ll_file **file_of(const struct deed *d)
{
	return &d->sc->file[d->file][d->actor];
}

/* ---- the history ---- */

static uint64_t cell_end(uint32_t cell)
{
	return (uint64_t)cell * STRIDE + CELL;
}

static void record(struct deed *d, uint32_t cell, enum cell_kind kind, uint32_t value)
{
	struct cuts *s = d->s;
	struct cell_op op = {
		.kind = kind, .cell = d->file * CELLS + cell, .client = d->index, .value = value};

	d->op[cell] = cell_begin(&s->cells, &op, ++s->tick);
}

static void begin(struct deed *d, uint32_t first, uint32_t n, enum cell_kind kind)
{
	d->first = first;
	d->n = n;
	d->sc->used = true;
	for (uint32_t i = first; i < first + n; i++)
		record(d, i, kind, kind == CELL_EXTEND);
}

static void end(const struct deed *d, uint32_t cell, uint32_t value)
{
	cell_saw(&d->s->cells, d->op[cell], value, ++d->s->tick);
}

static void end_all(const struct deed *d)
{
	for (uint32_t i = d->first; i < d->first + d->n; i++)
		cell_done(&d->s->cells, d->op[i], ++d->s->tick);
}

static uint32_t *changes_of(const struct deed *d)
{
	return &d->sc->n_changes[d->file * CELLS];
}

static void change_begins(struct deed *d, uint32_t cell, uint32_t n)
{
	d->began = d->s->tick;
	for (uint32_t i = cell; i < cell + n; i++)
		changes_of(d)[i]++;
}

/* Ends a change; the previous content of the cell is replaced. value: 0 if the cell was
 * truncated. */
static void change_ended(struct deed *d, uint32_t cell, uint32_t value)
{
	struct cell_past *p = &d->s->past[d->file * CELLS + cell];

	if (value != 0) {
		p->write[p->n % PAST].value = value;
		p->write[p->n++ % PAST].end = d->s->tick;
	}
	if (d->began > p->over)
		p->over = d->began;
	changes_of(d)[cell]++;
}

/* May a page with the value still be visible? Not if a change has ended that began after the write
 * had ended. */
static bool may_be_shown(const struct cell_past *p, uint32_t value)
{
	for (uint32_t i = 0; i < PAST && i < p->n; i++)
		if (p->write[i].value == value)
			return p->over <= p->write[i].end;
	return true;
}

/* Begins a change of the size: cells after the new size are truncated, the others then exist. */
static void begin_size(struct deed *d, uint64_t size)
{
	d->first = 0;
	d->n = CELLS;
	for (uint32_t i = 0; i < CELLS; i++)
		record(d, i, cell_end(i) <= size ? CELL_EXTEND : CELL_CUT, 0);
	change_begins(d, ALL_CELLS);
}

static void size_ended(struct deed *d, uint64_t size)
{
	end_all(d);
	for (uint32_t i = 0; i < CELLS; i++)
		if (cell_end(i) > size)
			change_ended(d, i, 0);
}

static void tell(const struct deed *d, const char *what, uint64_t a, uint64_t b)
{
	log_debug("%llu us: client %u.%u %s cut%u %llu %llu, tick %llu",
		  (unsigned long long)sim_now_us(d->s->c->sim), d->index, d->actor, what, d->file,
		  (unsigned long long)a, (unsigned long long)b, (unsigned long long)d->s->tick);
}

/* ---- opening ---- */

static void open_file(struct deed *d)
{
	struct cuts *s = d->s;
	bool direct = rnd(s, 2), cut = rnd(s, 6) == 0;
	uint32_t flags = O_RDWR | O_CREAT | (direct ? (uint32_t)O_DIRECT : 0);
	struct ll_file *file;
	struct attr a;
	char name[24];
	int status;

	if (*file_of(d) != NULL)
		return;
	if (cut)
		begin_size(d, 0);
	tell(d, cut ? "opens and cuts" : "opens", direct, 0);
	status = ll_create(d->sc->client, &root, dir_of(s, d->file), name_of(name, d->file), 0644,
			   flags | (cut ? (uint32_t)O_TRUNC : 0), &file, &a);
	if (!expect(s, "open", status, 0))
		return;
	if (cut)
		size_ended(d, 0);
	tell(d, "has opened", cut, 0);
	*file_of(d) = file;
	d->sc->direct[d->file][d->actor] = direct;
}

static void close_file(struct deed *d)
{
	if (*file_of(d) != NULL)
		ll_release(*file_of(d));
	*file_of(d) = NULL;
}

/* ---- reading ---- */

/* Decodes 4 KiB: zeros, or a value and the words that follow from it. */
static bool cell_value(const uint8_t *cell, uint32_t *ret_value)
{
	uint64_t value, word;

	memcpy(&value, cell, 8);
	for (uint32_t i = 8; i < CELL; i += 8) {
		memcpy(&word, cell + i, 8);
		if (word != (value == 0 ? 0 : hash_u64_2(value, i)))
			return false;
	}
	*ret_value = (uint32_t)value;
	return true;
}

static bool all_zeros(const uint8_t *p, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (p[i] != 0)
			return false;
	return true;
}

/* Files end only outside cells. */
static bool is_border(uint64_t at)
{
	return at % STRIDE == 0 || at % STRIDE >= CELL;
}

static void check_read(struct deed *d, const uint8_t *buf, uint64_t off, int64_t n)
{
	struct cuts *s = d->s;

	if (n < 0 || !is_border(off + (uint64_t)n)) {
		expect(s, "read", n, 0);
		return;
	}
	tell(d, "has read", off, (uint64_t)n);
	for (uint32_t i = d->first; i < d->first + d->n; i++) {
		uint64_t at = (uint64_t)i * STRIDE - off, gap = at + CELL;
		uint64_t next = at + STRIDE < (uint64_t)n ? at + STRIDE : (uint64_t)n;
		uint32_t value = CELL_ABSENT;

		if (gap <= (uint64_t)n && !cell_value(buf + at, &value)) {
			cluster_fail(s->c, "client %u reads cell %u of cut%u: torn", d->index, i,
				     d->file);
			return;
		}
		if (gap < next && !all_zeros(buf + gap, next - gap)) {
			cluster_fail(s->c, "client %u reads behind cell %u of cut%u: not zeros",
				     d->index, i, d->file);
			return;
		}
		log_debug("client %u.%u: cell %u of cut%u: %lld", d->index, d->actor, i, d->file,
			  value == CELL_ABSENT ? -1ll : (long long)value);
		end(d, i, value);
	}
}

/* What a program reads from cached pages. (A program that reads from the servers may see a write
 * before it has ended, and so before this check does.) */
static void show_pages(struct deed *d, const uint32_t n_changes[CELLS], const uint8_t *buf,
		       uint64_t off, uint64_t n)
{
	struct cuts *s = d->s;
	uint32_t value;

	for (uint32_t i = d->first; i < d->first + d->n; i++) {
		uint64_t at = (uint64_t)i * STRIDE - off;

		if (at + CELL > n || n_changes[i] != changes_of(d)[i] ||
		    !cell_value(buf + at, &value) || value == 0 ||
		    may_be_shown(&s->past[d->file * CELLS + i], value))
			continue;
		cluster_fail(s->c, "client %u shows %u in cell %u of cut%u, which is gone",
			     d->index, value, i, d->file);
		return;
	}
}

/* Not a server that may have the only good replica of what is damaged elsewhere. */
static bool may_crash_a_server(const struct cluster *c)
{
	return c->faults_on && c->plan.crash_servers &&
	       !(c->damage != NULL && damage_waits(c->damage));
}

/* Sometimes a page cannot be released, and then a server that gave a lease may crash. */
static void keep_pages(struct cuts *s)
{
	struct cluster *c = s->c;
	struct node *n = &c->ossd[rnd(s, N_OSSD)];
	uint64_t kind = rnd(s, 8);

	if (kind > 3) {
		fiber_sleep_us(rnd(s, PAGES_US));
	} else if (kind == 0) {
		if (may_crash_a_server(c))
			cluster_crash_for(n, 1 + rnd(s, AWAY_US));
		fiber_sleep_us(rnd(s, STUCK_US));
	}
}

/* Reads as a mount does for pages that it drops later. */
static int64_t read_leased(struct deed *d, uint8_t *buf, uint64_t off, uint64_t len)
{
	struct ll_chunk_leases *leases;
	struct ll_data data;
	uint64_t at = 0;
	uint32_t n_changes[CELLS];
	int rc;

	memcpy(n_changes, changes_of(d), sizeof(n_changes));
	rc = ll_read_leased(*file_of(d), off, (uint32_t)len, &data, &leases);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < data.n; i++) {
		memcpy(buf + at, data.vec[i].slot->data + data.vec[i].off, data.vec[i].len);
		at += data.vec[i].len;
	}
	ll_data_release(&data);
	keep_pages(d->s);
	show_pages(d, n_changes, buf, off, at);
	ll_release_leases(leases);
	return (int64_t)at;
}

/* Reads each cell by one small read, all concurrently. Each read shows whether its cell exists. */
static void read_cells(struct deed *d, uint8_t *buf)
{
	struct ll_part parts[CELLS];

	for (uint32_t i = 0; i < d->n; i++)
		parts[i] = (struct ll_part){*file_of(d), buf + (size_t)i * STRIDE,
					    (uint64_t)(d->first + i) * STRIDE, CELL, 0, NULL};
	ll_pread_batch(d->sc->client, parts, d->n);
	for (uint32_t i = 0; i < d->n && !d->s->c->failed; i++) {
		struct deed one = *d;

		one.first = d->first + i;
		one.n = 1;
		check_read(&one, buf + (size_t)i * STRIDE, parts[i].off, parts[i].done);
	}
}

static void read_file(struct deed *d)
{
	struct cuts *s = d->s;
	uint32_t first = (uint32_t)rnd(s, CELLS), n = 1 + (uint32_t)rnd(s, CELLS - first);
	uint64_t off = (uint64_t)first * STRIDE, kind = rnd(s, 4);
	uint64_t len = (uint64_t)n * STRIDE - (rnd(s, 2) ? STRIDE - CELL : 0);
	uint8_t *buf = malloc(SPAN);

	if (buf == NULL)
		return;
	begin(d, first, n, CELL_READ);
	tell(d, kind == 0 ? "reads pages" : kind == 1 ? "reads cells" : "reads", off, len);
	if (kind == 1)
		read_cells(d, buf);
	else
		check_read(d, buf, off,
			   kind == 0 ? read_leased(d, buf, off, len)
				     : ll_pread(*file_of(d), buf, len, off));
	free(buf);
}

static void look(struct deed *d)
{
	struct attr a;
	int status;

	begin(d, ALL_CELLS, CELL_LOOK);
	status = ll_getattr(d->sc->client, &root, ll_file_ino(*file_of(d)), &a);
	if (!expect(d->s, "look", status, 0))
		return;
	tell(d, "sees the size", a.size, 0);
	if (!is_border(a.size))
		cluster_fail(d->s->c, "cut%u ends at %llu", d->file, (unsigned long long)a.size);
	for (uint32_t i = 0; i < CELLS; i++)
		end(d, i, cell_end(i) <= a.size);
}

/* SEEK_DATA shows that no cell in the hole before the data is written. It does not show whether the
 * file reaches as far as these cells. */
static void seek_data(struct deed *d)
{
	uint32_t cell = (uint32_t)rnd(d->s, CELLS);
	uint64_t off = (uint64_t)cell * STRIDE;
	int64_t at;

	begin(d, cell, CELLS - cell, CELL_READ);
	tell(d, "seeks data in", off, 0);
	at = ll_seek(*file_of(d), off, SEEK_DATA);
	if (at < 0 && at != -LE_NXIO) {
		expect(d->s, "seek", at, 0);
		return;
	}
	tell(d, "is told of data in", at < 0 ? UINT64_MAX : (uint64_t)at, 0);
	if (at >= 0 && (uint64_t)at < off)
		cluster_fail(d->s->c, "data of cut%u at %lld, asked from %llu on", d->file,
			     (long long)at, (unsigned long long)off);
	for (; cell < CELLS && (at < 0 || cell_end(cell) <= (uint64_t)at); cell++)
		end(d, cell, CELL_EMPTY);
}

/* ---- changing ---- */

/* A write that was only coalesced may be lost with its client, so it is certain only after
 * fsync. */
static bool is_written(struct deed *d, int64_t n)
{
	struct cuts *s = d->s;
	const struct plan *p = &s->c->plan;
	bool behind = !d->sc->direct[d->file][d->actor];

	if (n == CELL && behind && (p->crash_clients || p->cut_network)) {
		if (rnd(s, 2))
			fiber_sleep_us(rnd(s, SYNC_US));
		int rc = ll_fsync(*file_of(d), true);
		n = rc < 0 ? rc : n;
	}
	/* Undefined: the write may have been executed. */
	if (p->refuse && n == -LE_NOSPC)
		return false;
	return expect(s, "write", n, CELL);
}

/* pages: written like write-back of mapped pages, with msync. */
static int64_t write_as(struct ll_file *file, const uint64_t words[CELL / 8], uint64_t at,
			bool pages)
{
	int64_t n = pages ? ll_pwrite_pages(file, words, CELL, at)
			  : ll_pwrite(file, words, CELL, at);

	if (pages && n == CELL)
		TRY(ll_fsync(file, true));
	return n;
}

static void write_cell(struct deed *d)
{
	struct cuts *s = d->s;
	uint32_t cell = (uint32_t)rnd(s, CELLS);
	uint64_t value = ++s->value, words[CELL / 8];
	bool pages = rnd(s, 4) == 0;

	words[0] = value;
	for (uint32_t i = 1; i < CELL / 8; i++)
		words[i] = hash_u64_2(value, i * 8);
	begin(d, 0, cell, CELL_EXTEND);
	record(d, cell, CELL_WRITE, (uint32_t)value);
	d->n++;
	change_begins(d, cell, 1);
	tell(d, pages ? "writes pages" : "writes", cell, value);
	if (!is_written(d, write_as(*file_of(d), words, (uint64_t)cell * STRIDE, pages)))
		return;
	end_all(d);
	change_ended(d, cell, (uint32_t)value);
	tell(d, "has written", cell, value);
}

static void set_size(struct deed *d)
{
	struct cuts *s = d->s;
	uint64_t at = rnd(s, 2 * CELLS + 1);
	struct attr a, set = {.size = at / 2 * STRIDE + at % 2 * CELL};
	struct ll_file *file = *file_of(d);
	int status;

	begin_size(d, set.size);
	tell(d, "sets the size of", set.size, 0);
	status = ll_setattr(d->sc->client, &root, ll_file_ino(file), rnd(s, 2) ? file : NULL,
			    SET_SIZE, &set, &a);
	if (!expect(s, "set size", status, 0))
		return;
	size_ended(d, set.size);
	tell(d, "has set the size of", set.size, 0);
}

static void act(struct deed *d)
{
	struct cuts *s = d->s;
	uint64_t kind = rnd(s, 20);

	open_file(d);
	if (s->c->failed)
		return;
	if (s->c->plan.seeks && rnd(s, 3) == 0)
		seek_data(d);
	else if (kind < 8)
		read_file(d);
	else if (kind < 10)
		look(d);
	else if (kind < 15)
		write_cell(d);
	else if (kind < 18)
		set_size(d);
	else
		close_file(d);
}

/* ---- actors ---- */

static void act_once(void *arg)
{
	struct deed *d = arg;

	if (rnd(d->s, 2))
		fiber_sleep_us(rnd(d->s, 2000));
	act(d);
}

void cuts_use(struct cuts *s, uint32_t index)
{
	struct deed d[ACTORS];
	uint32_t n = 1 + (uint32_t)rnd(s, ACTORS);
	/* Often all clients at one file, which the clock chooses. */
	uint64_t place = rnd(s, 4) != 0 ? sim_now_us(s->c->sim) / HOT_US : rnd(s, 1u << 20);

	for (uint32_t i = 0; i < n; i++)
		d[i] = (struct deed){.s = s,
				     .sc = &s->client[index],
				     .index = index,
				     .file = (uint32_t)(place % FILES),
				     .actor = i};
	fiber_parallel("cuts", act_once, d, sizeof(d[0]), n, n);
}

struct actor {
	struct deed d;
	uint32_t *left;
};

static void act_on(void *arg)
{
	struct actor *a = arg;
	struct cuts *s = a->d.s;

	while (*a->left > 0 && !s->c->failed) {
		(*a->left)--;
		s->c->count.ops++;
		act(&a->d);
		if (rnd(s, s->c->plan.logs ? 2 : 6) == 0 && !s->c->failed)
			logs_use(s->logs, a->d.sc->client, a->d.index);
		if (rnd(s, 4) == 0)
			fiber_sleep_us(rnd(s, rnd(s, 8) == 0 ? 1000000 : 20000));
	}
}

void cuts_contend(struct cuts *s, uint32_t index, uint32_t *left)
{
	struct actor a[ACTORS];

	for (uint32_t i = 0; i < ACTORS; i++)
		a[i] = (struct actor){{.s = s,
				       .sc = &s->client[index],
				       .index = index,
				       .file = s->c->plan.seed % FILES,
				       .actor = i},
				      left};
	fiber_parallel("actor", act_on, a, sizeof(a[0]), ACTORS, ACTORS);
}

/* Waits for intents of a crashed predecessor; see wait_for_intents in workload.c. */
static void settle(struct deed *d)
{
	open_file(d);
	if (!d->s->c->failed)
		expect(d->s, "punch",
		       ll_fallocate(*file_of(d), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    2 * SPAN, 1),
		       0);
	close_file(d);
}

void cuts_client_start(struct cuts *s, uint32_t index, struct client *client)
{
	bool used = s->client[index].used;
	struct deed d = {.s = s, .sc = &s->client[index], .index = index};

	s->client[index] = (struct cuts_client){.client = client, .used = used};
	if (!used)
		return;
	fiber_sleep_us(LATE_US);
	for (d.file = 0; d.file < FILES && !s->c->failed; d.file++)
		settle(&d);
	cell_over(&s->cells, index, ++s->tick);
	logs_client_gone(s->logs, index);
	s->client[index].used = false;
}

void cuts_client_end(struct cuts *s, uint32_t index)
{
	struct deed d = {.s = s, .sc = &s->client[index], .index = index};

	for (d.file = 0; d.file < FILES; d.file++)
		for (d.actor = 0; d.actor < ACTORS; d.actor++)
			close_file(&d);
}

/* ---- the end ---- */

static void read_all(struct cuts *s, uint32_t index, uint32_t file)
{
	struct deed d = {.s = s, .sc = &s->client[index], .index = index, .file = file};
	uint8_t *buf = malloc(SPAN);

	open_file(&d);
	if (!s->c->failed && buf != NULL) {
		begin(&d, ALL_CELLS, CELL_READ);
		check_read(&d, buf, 0, ll_pread(*file_of(&d), buf, SPAN, 0));
		look(&d);
	}
	free(buf);
	close_file(&d);
}

void cuts_verify(struct cuts *s, uint32_t index)
{
	enum names_verdict verdict = NAMES_POSSIBLE;
	char why[LINEAR_WHY_SIZE], name[24];

	for (uint32_t i = 0; i < FILES && !s->c->failed; i++)
		read_all(s, index, i);
	s->c->count.shared_ops += s->cells.n;
	if (!s->c->failed)
		verdict = cell_check(&s->cells, why);
	if (verdict == NAMES_IMPOSSIBLE)
		cluster_fail(s->c, "cut files not linearizable: %s", why);
	s->c->count.undecided += verdict == NAMES_NOT_DECIDED;
	logs_verify(s->logs, s->client[index].client);
	for (uint32_t i = 0; i < FILES && !s->c->failed; i++)
		expect(s, "remove",
		       ll_unlink(s->client[index].client, &root, dir_of(s, i), name_of(name, i)),
		       0);
}

struct cuts *cuts_create(struct cluster *c)
{
	struct cuts *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->c = c;
	s->logs = logs_create(c);
	if (s->logs == NULL) {
		free(s);
		return NULL;
	}
	return s;
}
