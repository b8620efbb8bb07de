/* SPDX-License-Identifier: Apache-2.0 */
/* See lose.h. */
#include "tests/sim/lose.h"

#include <fcntl.h>
#include <string.h>

#include "common/base/hmap.h"
#include "common/base/log.h"
#include "common/rpc/rpc.h"
#include "common/rt/loop.h"
#include "tests/sim/peek.h"

#define COPIES    3u /* directories with one, two and three replicas */
#define FILES     5u /* of each client, in each directory */
#define CELLS     5u /* in each file: one at the beginning of each chunk */
#define CELL_SIZE 2048u
#define CHUNK     (64u << 10)
#define N_FILES   (COPIES * FILES)
#define CALL_MS   2000u
#define POLL_US   100000u
#define LIMIT_S   7200u

/* Versions of a cell: acknowledged by an fsync, and the last that was tried. 0: a hole. */
struct cell {
	uint32_t acked, tried;
};

struct file {
	struct ino ino; /* 0: not created, or not certainly */
	struct cell cell[CELLS];
	struct ll_file *open; /* of the client that runs now */
};

struct lose {
	struct cluster *c;
	struct file file[CLIENTS_MAX][N_FILES];
	bool client_done[CLIENTS_MAX];
	uint32_t killed[2], n_killed; /* of c->ossd */
	uint32_t ids[2], n_ids;       /* their targets, in order */
	bool accepted;                /* a loss was accepted at least once */
	bool giving_up;               /* a removal that accepts losses runs now */
	uint32_t n_accepts;           /* number of removals that accepted losses */
	uint32_t n_killed_max;        /* most servers that were removed together */
	uint32_t n_listed;            /* files listed in the replies to the present survey */
	bool verified;
	uint32_t n_rounds, n_lost_cells;
};

static struct lose lose; /* one run per process */

static const struct cred root = {.uid = 0, .gid = 0};

static uint64_t rnd(uint64_t n)
{
	return sim_random_below(lose.c->sim, n);
}

/* ---- clients ---- */

static uint32_t copies_of(uint32_t file)
{
	return 1 + file / FILES;
}

static void fill(uint8_t p[CELL_SIZE], uint32_t client, uint32_t file, uint32_t cell, uint32_t v)
{
	uint64_t key = ((uint64_t)client << 24 | file << 12 | cell) << 32 | v;

	for (uint32_t i = 0; i < CELL_SIZE; i += 8) {
		uint64_t x = v == 0 ? 0 : hash_u64_2(key, i);

		memcpy(p + i, &x, 8);
	}
}

/* Where only servers crash that do not restart, every replica of a chain was complete. */
static bool loses_all(uint32_t file, uint32_t n_killed)
{
	const struct plan *p = &lose.c->plan;

	return p->crash_servers || p->damage_frames || copies_of(file) <= n_killed;
}

/* Returns 0, or -LE_GIVEN_UP if the data may be lost; any other failure fails the run. */
static int judge(const char *what, int64_t status, uint32_t client, uint32_t file)
{
	if (lose.c->failed)
		return -LE_CANCELED;
	if (status >= 0)
		return 0;
	/* Only reads of lost data may fail, and only after the loss was accepted. */
	if (status == -LE_GIVEN_UP && lose.accepted && loses_all(file, lose.n_killed_max))
		return -LE_GIVEN_UP;
	cluster_fail(lose.c, "client %u file %u (%u copies) %s: %s", client, file, copies_of(file),
		     what, status_name((int)status));
	return -LE_CANCELED;
}

/* A file whose size no server knew ends after the first lost data (mds/file/lost_files.h): a reader
 * that reads it to its end gets an error. */
static bool ends_in_loss(struct ll_file *ll, uint32_t client, uint32_t file, uint32_t cell)
{
	uint8_t got[CELL_SIZE];

	if (!lose.accepted)
		return false;
	for (uint32_t i = 0; i < cell; i++)
		if (judge("read", ll_pread(ll, got, CELL_SIZE, (uint64_t)i * CHUNK), client,
			  file) == -LE_GIVEN_UP)
			return true;
	return false;
}

/* From the loss of a chain until mds/file/give_up.c has set the end of unsettled files after the
 * lost data, they may seem to end before it. */
static void check_cell(struct ll_file *ll, uint32_t client, uint32_t file, uint32_t cell)
{
	const struct cell *m = &lose.file[client][file].cell[cell];
	uint8_t got[CELL_SIZE] = {0}, want[CELL_SIZE];
	uint32_t acked = m->acked;
	bool giving_up = lose.giving_up;
	uint32_t n_accepts = lose.n_accepts;
	int64_t n = ll_pread(ll, got, CELL_SIZE, (uint64_t)cell * CHUNK);

	giving_up |= n_accepts != lose.n_accepts;

	if (judge("read", n, client, file) < 0 ||
	    (n == 0 && acked > 0 && ends_in_loss(ll, client, file, cell)) ||
	    (n == 0 && acked > 0 && giving_up && loses_all(file, lose.n_killed))) {
		lose.n_lost_cells++;
		return;
	}
	for (uint32_t v = acked; v <= m->tried; v++) {
		fill(want, client, file, cell, v);
		if (memcmp(got, want, CELL_SIZE) == 0)
			return;
	}
	cluster_fail(lose.c, "client %u file %u (%u copies) cell %u: not what version %u was, nor "
		     "a later one (%lld bytes)", client, file, copies_of(file), cell, acked,
		     (long long)n);
}

static int write_cell(struct ll_file *ll, uint32_t client, uint32_t file, uint32_t cell)
{
	struct cell *m = &lose.file[client][file].cell[cell];
	uint8_t data[CELL_SIZE];
	uint32_t v = ++m->tried;

	fill(data, client, file, cell, v);
	TRY(judge("write", ll_pwrite(ll, data, CELL_SIZE, (uint64_t)cell * CHUNK), client, file));
	TRY(judge("fsync", ll_fsync(ll, true), client, file));
	m->acked = v;
	return 0;
}

static struct bytes name_of(char buf[32], const char *kind, uint32_t client, uint32_t i)
{
	snprintf(buf, 32, "%s%u.%u", kind, client, i);
	return bytes_str(buf);
}

/* The directory may exist: the client that made it may have been fenced. */
static int open_dir(struct client *client, uint32_t index, uint32_t copies, struct ino *ret_ino)
{
	struct layout l = {.replicas = (uint8_t)copies};
	char buf[32];
	struct bytes name = name_of(buf, "d", index, copies);
	struct attr a;
	int rc = ll_lookup(client, &root, LEAT_ROOT_INO, name, &a);

	if (rc == -LE_NOENT)
		rc = ll_mkdir(client, &root, LEAT_ROOT_INO, name, 0755, &a);
	if (rc == 0)
		rc = ll_layout_set(client, &root, a.ino, &l, NULL);
	/* The first one makes the chains, of the targets that are up. */
	while (rc == -LE_NODEV && !lose.c->failed) {
		fiber_sleep_us(500000);
		rc = ll_layout_set(client, &root, a.ino, &l, NULL);
	}
	if (rc < 0)
		cluster_fail(lose.c, "client %u: directory: %s", index, status_name(rc));
	*ret_ino = a.ino;
	return rc;
}

static int open_file(struct client *client, struct ino dir, uint32_t index, uint32_t i,
		     struct ll_file **ret_file)
{
	struct file *f = &lose.file[index][i];
	char buf[32];
	struct bytes name = name_of(buf, "f", index, i);
	struct attr a;
	bool changed;
	int rc = 0;

	if (f->ino.v == 0)
		rc = ll_lookup(client, &root, dir, name, &a);
	if (rc == -LE_NOENT)
		rc = ll_create(client, &root, dir, name, 0644, O_RDWR | O_CREAT | O_EXCL, ret_file,
			       &a);
	else if (rc == 0)
		rc = ll_open(client, &root, f->ino.v ? f->ino : a.ino, O_RDWR, ret_file, &a,
			     &changed);
	if (rc < 0) {
		cluster_fail(lose.c, "client %u: open: %s", index, status_name(rc));
		return rc;
	}
	f->ino = a.ino;
	return 0;
}

static void close_file(struct file *f)
{
	struct ll_file *ll = f->open;

	f->open = NULL;
	ll_release(ll);
}

/* Files stay open, so that the metadata server does not have their sizes. */
static void use_file(struct client *client, const struct ino dirs[COPIES], uint32_t index)
{
	uint32_t i = (uint32_t)rnd(N_FILES), cell = (uint32_t)rnd(CELLS);
	struct file *f = &lose.file[index][i];
	int rc = 0;

	if (f->open == NULL && open_file(client, dirs[i / FILES], index, i, &f->open) < 0)
		return;
	if (rnd(3) == 0)
		check_cell(f->open, index, i, cell);
	else
		rc = write_cell(f->open, index, i, cell);
	lose.c->count.ops++;
	if (!lose.c->failed && (rc < 0 || rnd(6) == 0))
		close_file(f);
}

static void work(struct client *client, uint32_t index)
{
	struct cluster *c = lose.c;
	struct ino dirs[COPIES];

	/* A previous session may have been fenced: its open files were closed with it. */
	for (uint32_t i = 0; i < N_FILES; i++)
		lose.file[index][i].open = NULL;
	for (uint32_t i = 0; i < COPIES; i++)
		if (open_dir(client, index, i + 1, &dirs[i]) < 0)
			return;
	for (uint32_t n = 0; (!c->admin_done || n < c->plan.n_ops) && !c->failed; n++) {
		use_file(client, dirs, index);
		(void)!fiber_sleep_us(1 + rnd(60000));
	}
	for (uint32_t i = 0; i < N_FILES && !c->failed; i++)
		if (lose.file[index][i].open != NULL)
			close_file(&lose.file[index][i]);
	if (c->failed)
		return;
	c->client[index].running = false;
	client_destroy(client);
	lose.client_done[index] = true;
}

static void verify(struct client *client)
{
	for (uint32_t k = 0; k < lose.c->plan.n_clients; k++)
		for (uint32_t i = 0; i < N_FILES && !lose.c->failed; i++) {
			struct file *f = &lose.file[k][i];

			if (f->ino.v == 0)
				continue;
			if (open_file(client, f->ino, k, i, &f->open) < 0)
				return;
			for (uint32_t cell = 0; cell < CELLS && !lose.c->failed; cell++)
				check_cell(f->open, k, i, cell);
			close_file(f);
		}
	lose.verified = true;
}

static void client_main(struct cluster *c, uint32_t index, struct client *client)
{
	(void)c;
	if (index == CLIENTS_MAX)
		verify(client);
	else
		work(client, index);
}

/* ---- the administrator ---- */

static bool mds_runs(void)
{
	return lose.c->mds.running && lose.c->mds.mds != NULL;
}

static void wait_for(bool (*fn)(void), const char *what)
{
	for (uint32_t i = 0; !fn() && !lose.c->failed; i++) {
		if (i == 3000)
			cluster_fail(lose.c, "administrator: %s", what);
		(void)!fiber_sleep_us(POLL_US);
	}
}

static bool all_whole(void)
{
	for (uint32_t i = 0; i < N_OSSD; i++)
		if (!lose.c->ossd[i].running || !ossd_ready(lose.c->ossd[i].ossd))
			return false;
	return mds_runs() && peek_all_sync(lose.c->mds.mds);
}

/* Kills one or two at one moment: the members after them may have their newest writes, or not. */
static void kill_some(void)
{
	uint32_t want = 1 + (uint32_t)rnd(2), first = (uint32_t)rnd(N_OSSD);

	lose.n_killed = lose.n_ids = 0;
	for (uint32_t i = 0; i < want; i++) {
		uint32_t k = (first + i * (1 + (uint32_t)rnd(N_OSSD - 1))) % N_OSSD;
		struct node *n = &lose.c->ossd[k];

		lose.ids[lose.n_ids++] = peek_target(lose.c->mds.mds, n->addr);
		lose.killed[lose.n_killed++] = k;
		n->gone = true;
		cluster_crash(n);
	}
	if (lose.n_ids == 2 && lose.ids[0] > lose.ids[1]) {
		uint32_t id = lose.ids[0];

		lose.ids[0] = lose.ids[1];
		lose.ids[1] = id;
	}
}

/* Requests a removal as `leat` does: starts it, then polls, and starts it again if another server
 * has no record of it. *id: 0: it has to be started. */
static int ask(struct rpc_client *client, bool accept, uint64_t *id, uint64_t from,
	       struct mds_target_lose_rep *rep, struct rpc_call *call)
{
	uint8_t ids[8];
	struct wire_w w;
	struct mds_target_lose_req req = {.what = *id == 0 ? LOSE_START : LOSE_SURVEY,
					  .accept = accept ? LOSE_ANY_DATA : LOSE_NO_DATA,
					  .id = *id,
					  .from = from,
					  .max = 5};
	int rc;

	wire_w_init(&w, ids, sizeof(ids));
	for (uint32_t i = 0; i < lose.n_ids; i++)
		wire_put_u32(&w, &lose.ids[i]);
	req.targets = bytes_of(ids, (uint32_t)w.len);
	*rep = (struct mds_target_lose_rep){0};
	*call = (struct rpc_call){.op = OP_mds_target_lose,
				  .req = &req,
				  .rep = rep,
				  .deadline_us = loop_deadline_ms(CALL_MS)};
	rc = rpc_call(client, call);
	call->req = NULL;
	if (rc == 0)
		*id = rep->id;
	else if (rc == -LE_STALE)
		*id = 0;
	else if (rc != -LE_BUSY && status_retry(rc) == RETRY_NEVER)
		cluster_fail(lose.c, "giving up: %s", status_name(rc));
	return rc;
}

static void judge_listed(struct ino ino)
{
	lose.n_listed++;
	for (uint32_t k = 0; k < lose.c->plan.n_clients; k++)
		for (uint32_t i = 0; i < N_FILES; i++)
			if (ino_equal(lose.file[k][i].ino, ino) && !loses_all(i, lose.n_killed))
				cluster_fail(lose.c, "file %u of client %u is listed, which has %u "
					     "copies", i, k, copies_of(i));
}

static void note_listed(const struct mds_target_lose_rep *rep)
{
	struct wire_r r;

	wire_r_init(&r, rep->files.data, rep->files.len);
	while (!wire_r_end(&r)) {
		struct lost_file f;

		wire_get_lost_file(&r, &f);
		if (r.status < 0) {
			cluster_fail(lose.c, "the list of files makes no sense");
			return;
		}
		judge_listed(f.ino);
	}
}

/* Requests the removal until it has ended. Returns its result, and how many files lose data. */
static enum lose_state give_up(struct rpc_client *client, bool accept, uint64_t *ret_n)
{
	struct mds_target_lose_rep rep = {0};
	uint64_t id = 0, from = 0;

	lose.n_listed = 0;
	while (!lose.c->failed) {
		struct rpc_call call;
		int rc = ask(client, accept, &id, from, &rep, &call);
		bool ends = rc == 0 && rep.state != LOSE_RUNNING && rep.state != LOSE_FAILED;

		if (ends)
			note_listed(&rep);
		else
			lose.n_listed = 0;
		rpc_call_fini(&call);
		from = ends ? rep.next : 0;
		if (ends && rep.next == 0)
			break;
		if (rc == 0 && rep.state == LOSE_FAILED)
			id = 0;
		if (!ends)
			(void)!fiber_sleep_us(1 + rnd(POLL_US));
	}
	*ret_n = rep.n_files;
	/* A server that got the first request after the removal has a record of the removal, and
	 * none of the files. */
	if (!lose.c->failed && lose.n_listed != rep.n_files)
		cluster_fail(lose.c, "%u files are listed of %llu", lose.n_listed,
			     (unsigned long long)rep.n_files);
	return (enum lose_state)rep.state;
}

static bool back(void)
{
	for (uint32_t i = 0; i < lose.n_killed; i++) {
		struct node *n = &lose.c->ossd[lose.killed[i]];

		if (!n->running || !ossd_ready(n->ossd))
			return false;
	}
	return true;
}

static void start_killed(bool anew)
{
	for (uint32_t i = 0; i < lose.n_killed; i++) {
		struct node *n = &lose.c->ossd[lose.killed[i]];

		n->gone = false;
		if (anew) {
			snprintf(n->dir, sizeof(n->dir), "/ossd%u.%u", lose.killed[i] + 1,
				 lose.n_rounds);
			n->formatted = false;
		}
		cluster_restart(n);
	}
}

static bool refused(void)
{
	for (uint32_t i = 0; i < lose.n_killed; i++) {
		struct node *n = &lose.c->ossd[lose.killed[i]];

		if (n->running && ossd_ready(n->ossd))
			cluster_fail(lose.c, "%s was given up, and serves", n->name);
		if (!n->running || ossd_failed(n->ossd) != -LE_REMOVED)
			return false;
	}
	return true;
}

/* The removed targets restart and are refused; then new ones replace them. */
static void come_back(void)
{
	if (rnd(2)) {
		start_killed(false);
		wait_for(refused, "who was given up is not refused");
	}
	start_killed(true);
	wait_for(back, "new servers do not join");
}

static void lose_some(struct rpc_client *client)
{
	bool accept = rnd(2);
	enum lose_state state;
	uint64_t n_files;

	wait_for(all_whole, "chains do not become whole");
	(void)!fiber_sleep_us(1 + rnd(2000000));
	wait_for(all_whole, "chains do not become whole");
	if (lose.c->failed)
		return;
	lose.n_rounds++;
	kill_some();
	(void)!fiber_sleep_us(1 + rnd(3000000));
	lose.accepted |= accept;
	if (accept && lose.n_killed > lose.n_killed_max)
		lose.n_killed_max = lose.n_killed;
	lose.giving_up = accept;
	lose.n_accepts += accept;
	state = give_up(client, accept, &n_files);
	lose.giving_up = false;
	if (lose.c->failed)
		return;
	log_debug("administrator: round %u, %u targets, %s: %d, %llu files", lose.n_rounds,
		  lose.n_ids, accept ? "accepted" : "not accepted", state,
		  (unsigned long long)n_files);
	if (state == LOSE_REFUSED && (accept || n_files == 0))
		cluster_fail(lose.c, "refused, though it may be: %llu files",
			     (unsigned long long)n_files);
	else if (state == LOSE_DONE && !accept && n_files > 0)
		cluster_fail(lose.c, "%llu files have lost data, and nobody accepted that",
			     (unsigned long long)n_files);
	if (state == LOSE_DONE) {
		come_back();
	} else {
		start_killed(false);
		wait_for(back, "who was not given up does not come back");
	}
}

static void admin_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct cluster *c = n->cluster;
	struct rpc_client_options o = {.transport = c->transport,
				       .addrs = c->mds.addr,
				       .name = "admin",
				       .role = ROLE_TOOL,
				       .key = c->key,
				       .backoff_max_ms = 100};
	struct rpc_client *client;

	n->loop = loop;
	n->running = true;
	if (rpc_client_create(&o, &client) < 0) {
		cluster_fail(c, "the administrator cannot start");
		return;
	}
	for (uint64_t left = 1 + rnd(3); left > 0 && !c->failed; left--) {
		(void)!fiber_sleep_us(1 + rnd(3000000));
		lose_some(client);
	}
	rpc_client_destroy(client);
	c->faults_on = false;
	c->admin_done = true;
}

/* ---- the run ---- */

static bool all_done(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < lose.c->plan.n_clients; i++)
		if (!lose.client_done[i])
			return false;
	return lose.c->admin_done;
}

static bool verified(void *arg)
{
	(void)arg;
	return lose.verified;
}

void lose_run(struct cluster *c)
{
	lose = (struct lose){.c = c};
	c->client_main = client_main;
	for (uint32_t i = 0; i < c->plan.n_clients; i++)
		cluster_start_client(c, i);
	cluster_start_faults(c);
	c->back_by_itself = true;
	c->admin_done = false;
	if (sim_proc_start(c->admin.proc, admin_main, &c->admin) < 0)
		cluster_fail(c, "no memory");
	cluster_run(c, all_done, NULL, LIMIT_S);
	if (!c->failed)
		cluster_heal(c);
	if (!c->failed && !lose.accepted && peek_n_lost(c->mds.mds) > 0)
		cluster_fail(c, "chains are lost, and nobody accepted that");
	if (!c->failed) {
		cluster_start_client(c, CLIENTS_MAX);
		cluster_run(c, verified, NULL, LIMIT_S);
	}
	c->count.lost_cells = lose.n_lost_cells;
	c->count.given_up = lose.n_rounds;
	if (!c->failed)
		cluster_check_stores(c);
}
