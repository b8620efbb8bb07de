/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat-sim: the whole cluster, simulated, from seeds.
 *
 *   leat-sim --list                     names of the tests
 *   leat-sim NAME                       one test
 *   leat-sim run [--seed N | --seeds A..B [--step N]] [--ops N] [--clients N]
 *                [--replicas N | --contended | --names | --cuts | --logs | --seeks | --damaged |
 *                 --lose]
 *                [--refuse] [--plant BUG] [--jobs N] [-v]
 *   leat-sim fanout [--nodes N] [--chunks N] ...   staging by many nodes, a line of CSV: fanout.h
 *
 * Each seed runs in a process of its own: a crash in the simulator leaves its memory behind. A
 * failing seed is printed with its failure, and runs the same way again with --seed.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/state_machine.h"
#include "tests/sim/cluster.h"
#include "tests/sim/fanout.h"
#include "tests/sim/linear_test.h"
#include "tests/sim/lose.h"
#include "tests/sim/sums.h"
#include "tests/sim/workload.h"

struct batch {
	uint64_t first, last, step;
	uint32_t n_ops, n_clients, jobs, replicas;
	bool verbose, stop_at_failure, contended, names, cuts, damaged, refuse, logs,
		seeks, late;
	bool lose;
	const char *plant;
};

#define LIMIT_S 14400 /* with replicas many faults make each of 750 operations take seconds */
#define MOVES_MAX 512u

/* In shared memory: the results of the children. */
struct totals {
	_Atomic uint64_t runs, failures, first_failure;
	_Atomic uint64_t fenced, undecided, withdrawn, lost, given_up, lost_cells;
	_Atomic uint64_t ops, shared_ops, server_crashes, power_cuts, client_crashes, partitions,
		isolations, damages, losses, vanished, scrubs, repaired, differing, events,
		virtual_ms;
	_Atomic uint64_t moves[MOVES_MAX]; /* in the order of state_machines_each */
	char message[512];
};

/* ---- which moves of the state machines (common/base/state_machine.h) were made ---- */

struct coverage {
	struct totals *totals;
	uint32_t n, n_taken, n_rare;
	char never[2000];
};

/* More changes than the log holds, within the milliseconds in which it is read: some contended
 * seeds in a hundred make this move. */
static bool is_rare(const struct state_machine *t, int from, int to)
{
	return strcmp(t->name, "resync") == 0 && strcmp(t->states[from], "logged") == 0 &&
	       strcmp(t->states[to], "full") == 0;
}

static void add_move(void *arg, const struct state_machine *t, int from, int to)
{
	struct coverage *v = arg;

	if (v->n < MOVES_MAX)
		v->totals->moves[v->n++] += state_machine_taken(t, from, to);
}

static void count_move(void *arg, const struct state_machine *t, int from, int to)
{
	struct coverage *v = arg;
	size_t len = strlen(v->never);

	if (v->n == MOVES_MAX)
		return;
	if (v->totals->moves[v->n++] > 0) {
		v->n_taken++;
		return;
	}
	v->n_rare += is_rare(t, from, to);
	snprintf(v->never + len, sizeof(v->never) - len, "%s %s: %s -> %s", len > 0 ? "," : "",
		 t->name, t->states[from], t->states[to]);
}

/* Returns how many moves were never made; *ret_rare: how many of these are rare. */
static uint32_t print_moves(struct totals *t, uint32_t *ret_rare)
{
	struct coverage v = {.totals = t};

	state_machines_each(count_move, &v);
	printf("moves: %u of %u taken; never:%s\n", v.n_taken, v.n, v.never[0] ? v.never : " none");
	*ret_rare = v.n_rare;
	return v.n - v.n_taken - v.n_rare;
}

/* Faults are drawn from the seed, so that each kind is absent in some seeds. */
static struct plan plan_of(uint64_t seed, const struct batch *b)
{
	bool copies = b->replicas > 1;
	struct plan plan = {
		.seed = seed,
		.n_clients = b->n_clients,
		.n_ops = b->n_ops,
		.crash_servers = seed % 4 != 0,
		.cut_network = seed % 3 != 0,
		.damage_frames = seed % 5 != 0,
		.crash_clients = seed % 2 != 0,
		.late_copies = seed % 7 < 3,
		.replicas = b->replicas,
		.contended = b->contended,
		.names = b->names,
		.cuts = b->cuts,
		.logs = b->logs,
		.seeks = b->seeks,
		.late = b->late,
		.damage = copies && !b->contended && seed % 5 < 2,
		.move_members = copies && seed % 8 < 3,
		.log_max = copies && seed % 9 < 3 ? (b->contended ? 1 : 2) : 0,
		.slow_disks = b->late ? seed % 4 != 0 : copies && seed % 11 < 3,
		.refuse = copies && (b->refuse || seed % 16 == 7),
		.few_kept = seed % 10 >= 6,
		.clocks = seed % 13 < 2,
		.verbose = b->verbose,
	};

	/* Other repairs and crashes must not hide the damage from the requests. */
	if (b->damaged)
		plan = (struct plan){.seed = seed,
				     .n_clients = b->n_clients,
				     .n_ops = b->n_ops,
				     .replicas = b->replicas,
				     .damage = true,
				     .damaged = true,
				     .verbose = b->verbose};
	if (b->lose)
		plan = (struct plan){.seed = seed,
				     .n_clients = b->n_clients,
				     .n_ops = b->n_ops,
				     .replicas = b->replicas,
				     .crash_servers = seed % 4 != 0,
				     .damage_frames = seed % 5 == 0,
				     .lose = true,
				     .verbose = b->verbose};
	/* One client: its cache is not recalled, so only the client itself can make it wrong. */
	if (b->names && seed % 4 == 2)
		plan.n_clients = 1;
	/* So that clients work while disks are damaged. */
	if (plan.damage)
		plan.n_ops *= 2;
	return plan;
}

static void run_plan(struct cluster *c, const struct plan *plan)
{
	if (cluster_start(c, plan) < 0)
		return;
	if (plan->lose) {
		lose_run(c);
		return;
	}
	workload_now = workload_create(c);
	for (uint32_t i = 0; i < plan->n_clients; i++)
		cluster_start_client(c, i);
	cluster_start_faults(c);
	cluster_run(c, workload_done, workload_now, LIMIT_S);
	if (!c->failed)
		cluster_heal(c);
	if (!c->failed && plan->replicas > 1)
		cluster_compare_stores(c);
	if (!c->failed) {
		cluster_start_client(c, CLIENTS_MAX);
		cluster_run(c, workload_verified, workload_now, 3600);
	}
	if (!c->failed)
		cluster_check_stores(c);
}

static void count(struct totals *t, const struct counters *n)
{
	state_machines_each(add_move, &(struct coverage){.totals = t});
	t->runs++;
	t->ops += n->ops;
	t->shared_ops += n->shared_ops;
	t->power_cuts += n->power_cuts;
	t->isolations += n->isolations;
	t->damages += n->damages;
	t->losses += n->losses;
	t->vanished += n->vanished;
	t->scrubs += n->scrubs;
	t->repaired += n->repaired;
	t->differing += n->differing;
	t->server_crashes += n->server_crashes;
	t->client_crashes += n->client_crashes;
	t->fenced += n->fenced;
	t->undecided += n->undecided;
	t->withdrawn += n->withdrawn;
	t->lost += n->lost;
	t->given_up += n->given_up;
	t->lost_cells += n->lost_cells;
	t->partitions += n->partitions;
	t->events += n->events;
	t->virtual_ms += n->virtual_ms;
}

static void print_seed(const struct cluster *c)
{
	printf("seed %llu: %llu ops, %llu server crashes, %llu client crashes, %llu fenced, "
	       "%llu partitions, %llu events, %llu virtual ms, trace %016llx%s%s\n",
	       (unsigned long long)c->plan.seed, (unsigned long long)c->count.ops,
	       (unsigned long long)c->count.server_crashes,
	       (unsigned long long)c->count.client_crashes, (unsigned long long)c->count.fenced,
	       (unsigned long long)c->count.partitions, (unsigned long long)c->count.events,
	       (unsigned long long)c->count.virtual_ms, (unsigned long long)sim_trace_hash(c->sim),
	       c->failed ? ": " : "", c->failed ? c->failure : "");
}

static void run_seed(uint64_t seed, const struct batch *b, struct totals *t)
{
	struct plan plan = plan_of(seed, b);
	static struct cluster c;

	/* Servers log each damaged block, and each refusal of a removed target. */
	if ((plan.damage || plan.lose) && getenv("LEAT_SIM_LOG") == NULL)
		log_set_level((enum log_level) - 1);
	if (plan.refuse && !planted_bug_enable("chain_refuse"))
		_exit(2);
	if (plan.damaged && !planted_bug_enable("oss_few_cells"))
		_exit(2);
	run_plan(&c, &plan);
	if (c.failed && b->verbose) {
		char why[512];
		snprintf(why, sizeof(why), "%s", c.failure);
		cluster_dump_chunks(&c);
		snprintf(c.failure, sizeof(c.failure), "%s", why);
	}
	count(t, &c.count);
	if (b->verbose)
		print_seed(&c);
	if (c.failed) {
		if (t->failures++ == 0) {
			t->first_failure = seed;
			snprintf(t->message, sizeof(t->message), "%s", c.failure);
		}
		printf("FAILED seed %llu: %s\n", (unsigned long long)seed, c.failure);
	}
	fflush(stdout);
}

static void reap(struct totals *t, uint64_t seed_of[], pid_t pid_of[], uint32_t jobs,
		 uint32_t *n_running)
{
	int status;
	pid_t pid = wait(&status);

	for (uint32_t i = 0; i < jobs; i++) {
		if (pid_of[i] != pid)
			continue;
		pid_of[i] = 0;
		(*n_running)--;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			return;
		printf("FAILED seed %llu: the simulation itself died (%s %d)\n",
		       (unsigned long long)seed_of[i], WIFSIGNALED(status) ? "signal" : "exit",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		if (t->failures++ == 0) {
			t->first_failure = seed_of[i];
			snprintf(t->message, sizeof(t->message), "died");
		}
	}
}

#define JOBS_MAX         64u
#define ALL_MOVES_SEEDS  400u
#define RARE_MOVES_SEEDS 300u

/* A planted bug may cause an endless loop: SIGPROF, which counts processor time, since a busy
 * machine takes many times as long. A run that waits for ever uses none: SIGALRM. */
static void limit_time(unsigned cpu_s)
{
	struct itimerval limit = {.it_value.tv_sec = (time_t)cpu_s};

	if (setitimer(ITIMER_PROF, &limit, NULL) < 0)
		_exit(2);
	alarm(20 * cpu_s);
}

static void start_seed(uint64_t seed, const struct batch *b, struct totals *t, uint64_t seed_of[],
		       pid_t pid_of[])
{
	uint32_t i = 0;

	while (pid_of[i])
		i++;
	seed_of[i] = seed;
	fflush(stdout);
	pid_of[i] = fork();
	if (pid_of[i] == 0) {
		if (b->plant && !planted_bug_enable(b->plant))
			_exit(2);
		limit_time(b->plant ? 60 : 300);
		run_seed(seed, b, t);
		_exit(0);
	}
}

static void print_totals(struct totals *t)
{
	double n = t->runs > 0 ? (double)t->runs : 1;

	printf("%llu seeds, %llu failed; per seed: %.1f operations, %.1f shared ones, %.1f server "
	       "crashes, %.2f power cuts, %.1f client crashes, %.2f fenced, %.1f partitions, %.2f "
	       "isolations, %.0f events, %.1f virtual s\n",
	       (unsigned long long)t->runs, (unsigned long long)t->failures, (double)t->ops / n,
	       (double)t->shared_ops / n, (double)t->server_crashes / n, (double)t->power_cuts / n,
	       (double)t->client_crashes / n, (double)t->fenced / n, (double)t->partitions / n,
	       (double)t->isolations / n, (double)t->events / n,
	       (double)t->virtual_ms / 1000.0 / n);
	printf("%llu changes of names withdrawn\n", (unsigned long long)t->withdrawn);
	if (t->lost > 0)
		printf("%llu syncs said that data was lost\n", (unsigned long long)t->lost);
	if (t->given_up > 0)
		printf("%llu times targets were to be given up; %llu reads and writes said that "
		       "data was lost\n",
		       (unsigned long long)t->given_up, (unsigned long long)t->lost_cells);
	if (t->undecided > 0)
		printf("%llu histories were not decided\n", (unsigned long long)t->undecided);
	if (t->scrubs > 0)
		printf("per seed: %.1f damaged blocks and records, %.1f lost chunks, %.1f that "
		       "vanished, %.1f scrubs "
		       "that repaired %.1f blocks and made %.1f chunks equal\n",
		       (double)t->damages / n, (double)t->losses / n, (double)t->vanished / n,
		       (double)t->scrubs / n,
		       (double)t->repaired / n, (double)t->differing / n);
}

/* A move that no seed makes is not tested. Mixed seeds make all but the rare moves, and contended
 * seeds make these. */
static bool lacks_moves(const struct batch *b, struct totals *t)
{
	uint32_t n_rare, n = print_moves(t, &n_rare);

	if (b->plant || b->damaged || b->cuts || b->lose)
		return false;
	if (b->contended)
		return n_rare > 0 && t->runs >= RARE_MOVES_SEEDS;
	return n > 0 && t->runs >= ALL_MOVES_SEEDS;
}

/* Returns the number of failing seeds, and which seed failed first. */
static uint64_t run_batch_to(const struct batch *b, uint64_t *ret_first)
{
	struct totals *t =
		mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t seed_of[JOBS_MAX];
	pid_t pid_of[JOBS_MAX] = {0};
	uint32_t n_running = 0;
	uint64_t failures;

	if (t == MAP_FAILED)
		return 1;
	for (uint64_t seed = b->first; seed <= b->last; seed += b->step) {
		while (n_running >= b->jobs)
			reap(t, seed_of, pid_of, b->jobs, &n_running);
		if (b->stop_at_failure && t->failures)
			break;
		start_seed(seed, b, t, seed_of, pid_of);
		n_running++;
	}
	while (n_running)
		reap(t, seed_of, pid_of, b->jobs, &n_running);
	*ret_first = t->first_failure;
	print_totals(t);
	if (b->replicas > 1 && lacks_moves(b, t)) {
		printf("FAILED: so many seeds make every move\n");
		t->failures++;
	}
	if (b->names && b->last - b->first >= 20 && t->withdrawn == 0) {
		printf("FAILED: nothing was withdrawn\n");
		t->failures++;
	}
	if (b->late && !b->plant && b->last - b->first >= 20 && t->lost == 0) {
		printf("FAILED: nobody came late\n");
		t->failures++;
	}
	if (b->lose && !b->plant && b->last - b->first >= 15 && t->lost_cells == 0) {
		printf("FAILED: nothing was lost\n");
		t->failures++;
	}
	if (b->last - b->first >= 20 && t->undecided * 20 > t->runs) {
		printf("FAILED: too many were not decided to prove anything\n");
		t->failures++;
	}
	failures = t->failures;
	munmap(t, sizeof(*t));
	return failures;
}

static uint64_t run_batch(const struct batch *b)
{
	uint64_t first;

	return run_batch_to(b, &first);
}

static struct batch defaults(void)
{
	return (struct batch){
		.first = 1,
		.last = 1,
		.step = 1,
		.n_ops = 40,
		.n_clients = 2,
		.jobs = 2,
		.replicas = 1,
	};
}

/* All clients at a few cells, on few chains, with many short faults. */
static void contend(struct batch *b)
{
	b->contended = true;
	b->replicas = 3;
	b->n_clients = CLIENTS_MAX;
	b->n_ops = 1500;
}

/* All clients at a few names; the metadata server crashes a lot. */
static void contend_names(struct batch *b)
{
	b->contended = b->names = true;
	b->n_clients = 3;
	b->n_ops = 250;
}

/* All clients at one file that is truncated and extended. */
static void contend_cuts(struct batch *b)
{
	b->contended = b->cuts = true;
	b->n_clients = 3;
	b->n_ops = 250;
}

/* Like contend_cuts, but the file is mostly a log that is appended to, and emptied. */
static void contend_logs(struct batch *b)
{
	contend_cuts(b);
	b->n_ops = 150;
	b->logs = true;
}

/* Like contend_cuts, and many operations look for data (SEEK_DATA). */
static void contend_seeks(struct batch *b)
{
	contend_cuts(b);
	b->seeks = true;
}

/* All clients at one file in one replica, and a server crashes just when a client is cut off from
 * it. */
static void contend_late(struct batch *b)
{
	b->contended = b->late = true;
	b->n_clients = 3;
	b->n_ops = 300;
}

/* Only damage on disks, and much of it. */
static void meet_damage(struct batch *b)
{
	b->damaged = true;
	b->replicas = 3;
	b->n_ops = 150;
}

/* Targets do not restart, and are removed as lost. */
static void lose_targets(struct batch *b)
{
	b->lose = true;
	b->replicas = 3;
	b->n_ops = 100;
}

/* ---- the tests that `make check` runs ---- */

/* `make check` runs a selection, `make check-long` more. */
static uint64_t n_seeds(uint64_t some, uint64_t many)
{
	const char *is_long = getenv("LEAT_LONG");

	return is_long != NULL && is_long[0] == '1' ? many : some;
}

static int test_seeds(void)
{
	struct batch b = defaults();

	b.last = n_seeds(300, 2000);
	return run_batch(&b) ? 1 : 0;
}

/* Equal seeds give equal runs, event by event. */
static int test_deterministic(void)
{
	uint64_t hash[2];

	for (int i = 0; i < 2; i++) {
		int fds[2];
		if (pipe(fds) < 0)
			return 1;
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			struct plan plan = {.seed = 4711,
					    .n_clients = 2,
					    .n_ops = 40,
					    .replicas = 1,
					    .crash_servers = true,
					    .cut_network = true,
					    .damage_frames = true,
					    .crash_clients = true,
					    .late_copies = true};
			static struct cluster c;
			if (cluster_start(&c, &plan) < 0)
				_exit(1);
			workload_now = workload_create(&c);
			cluster_start_client(&c, 0);
			cluster_start_client(&c, 1);
			cluster_start_faults(&c);
			cluster_run(&c, workload_done, workload_now, LIMIT_S);
			uint64_t h = sim_trace_hash(c.sim);
			_exit(write(fds[1], &h, sizeof(h)) == sizeof(h) && !c.failed ? 0 : 1);
		}
		int status;
		if (waitpid(pid, &status, 0) < 0 || status != 0 || read(fds[0], &hash[i], 8) != 8)
			return 1;
		close(fds[0]);
		close(fds[1]);
	}
	printf("trace hashes %016llx %016llx\n", (unsigned long long)hash[0],
	       (unsigned long long)hash[1]);
	return hash[0] == hash[1] ? 0 : 1;
}

/* Like test_seeds, with directories of one, two and three replicas, and the faults that need
 * them. */
static int test_replicated_seeds(void)
{
	struct batch b = defaults();

	b.last = n_seeds(60, 1000);
	b.replicas = 3;
	return run_batch(&b) ? 1 : 0;
}

static int test_contended_seeds(void)
{
	struct batch b = defaults();

	contend(&b);
	b.last = n_seeds(30, 300);
	return run_batch(&b) ? 1 : 0;
}

static int test_contended_names(void)
{
	struct batch b = defaults();

	contend_names(&b);
	b.last = n_seeds(60, 500);
	return run_batch(&b) ? 1 : 0;
}

static int test_contended_cuts(void)
{
	struct batch b = defaults();

	contend_cuts(&b);
	b.last = n_seeds(45, 500);
	return run_batch(&b) ? 1 : 0;
}

static int test_replicated_cuts(void)
{
	struct batch b = defaults();

	contend_cuts(&b);
	b.replicas = 3;
	b.last = n_seeds(24, 300);
	return run_batch(&b) ? 1 : 0;
}

static int test_contended_seeks(void)
{
	struct batch b = defaults();

	contend_seeks(&b);
	b.last = n_seeds(15, 300);
	return run_batch(&b) ? 1 : 0;
}

static int test_contended_late(void)
{
	struct batch b = defaults();

	contend_late(&b);
	b.last = n_seeds(20, 500);
	return run_batch(&b) ? 1 : 0;
}

static int test_damaged_seeds(void)
{
	struct batch b = defaults();

	meet_damage(&b);
	b.last = n_seeds(40, 300);
	return run_batch(&b) ? 1 : 0;
}

static int test_lost_targets(void)
{
	struct batch b = defaults();

	lose_targets(&b);
	b.last = n_seeds(20, 300);
	return run_batch(&b) ? 1 : 0;
}

static struct batch to_find(uint64_t n_seeds)
{
	struct batch b = defaults();

	b.last = n_seeds;
	return b;
}

/*
 * A planted bug must be found, else the suite proves nothing. A seed that fails without the bug too
 * does not count.
 */
static int found_by(struct batch b, const char *plant)
{
	struct batch sane = b;
	uint64_t first, none;

	b.plant = plant;
	b.jobs = 1;
	b.stop_at_failure = true;
	while (b.first <= b.last && run_batch_to(&b, &first) > 0) {
		sane.first = sane.last = first;
		printf("seed %llu without it:\n", (unsigned long long)first);
		if (run_batch_to(&sane, &none) == 0)
			return 0;
		b.first = first + b.step;
	}
	return 1;
}
static int found(const char *plant)
{
	return found_by(to_find(200), plant);
}
/* Finds bugs in what follows a restart of the metadata server while both clients live: only seeds
 * that crash servers and not clients (plan_of). */
static int found_rarely(const char *plant)
{
	struct batch b = to_find(8000);

	b.first = 2;
	b.step = 4;
	return found_by(b, plant);
}
static int found_contended(const char *plant)
{
	struct batch b = to_find(200);

	contend(&b);
	return found_by(b, plant);
}

static int found_damaged(const char *plant)
{
	struct batch b = to_find(200);

	meet_damage(&b);
	return found_by(b, plant);
}

static int found_cuts(const char *plant)
{
	struct batch b = to_find(200);

	contend_cuts(&b);
	return found_by(b, plant);
}

/* Like found_cuts, for bugs that few seeds find: starts at the first such seed, which saves
 * minutes. */
static int found_cuts_late(const char *plant)
{
	struct batch b = to_find(320);

	b.first = 121;
	contend_cuts(&b);
	return found_by(b, plant);
}

/* Like found_cuts, with seeds that crash servers and do not cut the network, which would only make
 * a seed longer. */
static int found_uncut(const char *plant)
{
	struct batch b = to_find(600);

	contend_cuts(&b);
	b.first = b.step = 3;
	return found_by(b, plant);
}

/* Like found_cuts with logs, with seeds without crashes and network cuts: they take a fifth of the
 * time. */
static int found_logs(const char *plant)
{
	struct batch b = to_find(6000);

	contend_logs(&b);
	b.first = b.step = 12;
	return found_by(b, plant);
}

static int found_late(const char *plant)
{
	struct batch b = to_find(200);

	contend_late(&b);
	return found_by(b, plant);
}

static int found_lost(const char *plant)
{
	struct batch b = to_find(60);

	lose_targets(&b);
	return found_by(b, plant);
}

static int found_names(const char *plant)
{
	struct batch b = to_find(200);

	contend_names(&b);
	return found_by(b, plant);
}

static int found_copies(const char *plant)
{
	struct batch b = to_find(200);

	b.replicas = 3;
	return found_by(b, plant);
}

/* F(planted bug, how it is found) */
#define FOUND_TABLE(F)                                                                             \
	F(mds_no_dedupe, found)                                                                    \
	F(mds_early_ack, found)                                                                    \
	F(mds_no_rows, found_names)                                                                \
	F(mds_lose_counters, found)                                                                \
	F(oss_grant_drift, found)                                                                  \
	F(oss_free_shared, found)                                                                  \
	F(oss_count_off, found)                                                                    \
	F(rpc_any_reply, found)                                                                    \
	F(chain_reuse_number, found_copies)                                                        \
	F(chain_keep_epoch, found_copies)                                                          \
	F(client_trust_holes, found_cuts)                                                          \
	F(client_stale_place, found_logs)                                                          \
	F(client_keep_data, found)                                                                 \
	F(mds_forget_append, found_logs)                                                           \
	F(mds_unhidden, found_names)                                                               \
	F(mds_unshared, found)                                                                     \
	F(mds_trust_sizes, found_logs)                                                             \
	F(mds_lease_alone, found)                                                                  \
	F(oss_no_leases, found_cuts)                                                               \
	F(oss_new_head, found_cuts_late)                                                           \
	F(client_pages_unseen, found_uncut)                                                        \
	F(oss_no_dedupe, found)                                                                    \
	F(oss_early_ack, found)                                                                    \
	F(oss_no_grace, found_late)                                                                \
	F(oss_late, found_late)                                                                    \
	F(mds_lose_unlooked, found_lost)                                                           \
	F(mds_lose_zeros, found_lost)                                                              \
	F(chain_no_repair, found_damaged)                                                          \
	F(scrub_remove_lost, found_damaged)                                                        \
	F(oss_skip_names, found_damaged)                                                           \
	F(oss_skip_doubts, found_damaged)                                                          \
	F(client_untold, found_rarely)                                                             \
	F(client_new_seq, found_contended)                                                         \
	F(chain_early_ack, found_contended)                                                        \
	F(chain_skip_epoch, found_contended)                                                       \
	F(chain_no_dedupe, found_contended)                                                        \
	F(chain_lone_answer, found_copies)                                                         \
	F(chain_serve_early, found_contended)                                                      \
	F(chain_stale_leader, found_contended)                                                     \
	F(chain_skip_lease, found_contended)                                                       \
	F(chain_forget_pending, found_contended)

#define FINDS(plant, how)                                                                          \
	static int test_finds_##plant(void)                                                        \
	{                                                                                          \
		return how(#plant);                                                                \
	}
/* Finds bugs by the histories of names alone. */
#define FINDS_NAMES(plant)                                                                         \
	static int test_names_find_##plant(void)                                                   \
	{                                                                                          \
		return found_names(#plant);                                                        \
	}
FOUND_TABLE(FINDS)
FINDS_NAMES(mds_no_dedupe)
FINDS_NAMES(mds_early_ack)
FINDS_NAMES(mds_no_recall)
FINDS_NAMES(client_keep_lease)
FINDS_NAMES(client_own_cache)
FINDS_NAMES(client_give_up)
FINDS_NAMES(client_keep_opens)

static const struct {
	const char *name;
	int (*fn)(void);
} tests[] = {
	{"cluster_seeds", test_seeds},
	{"replicated_seeds", test_replicated_seeds},
	{"contended_seeds", test_contended_seeds},
	{"contended_names", test_contended_names},
	{"contended_cuts", test_contended_cuts},
	{"replicated_cuts", test_replicated_cuts},
	{"contended_seeks", test_contended_seeks},
	{"contended_late", test_contended_late},
	{"damaged_seeds", test_damaged_seeds},
	{"lost_targets", test_lost_targets},
	{"deterministic", test_deterministic},
	{"fanout_32", fanout_test_32},
	{"fanout_100", fanout_test_100},
	{"fanout_100_faults", fanout_test_100_faults},
	{"fanout_32_late", fanout_test_32_late},
	{"fanout_1000", fanout_test_1000},
	{"sums", sums_test},
	{"linear_registers", linear_test_registers},
	{"linear_registers_random", linear_test_registers_random},
	{"linear_names", linear_test_names},
	{"linear_links", linear_test_links},
	{"linear_names_random", linear_test_names_random},
	{"linear_cells", linear_test_cells},
	{"linear_cells_random", linear_test_cells_random},
	{"names_find_mds_no_dedupe", test_names_find_mds_no_dedupe},
	{"names_find_mds_early_ack", test_names_find_mds_early_ack},
	{"names_find_mds_no_recall", test_names_find_mds_no_recall},
	{"names_find_client_keep_lease", test_names_find_client_keep_lease},
	{"names_find_client_keep_opens", test_names_find_client_keep_opens},
	{"names_find_client_own_cache", test_names_find_client_own_cache},
	{"names_find_client_give_up", test_names_find_client_give_up},
#define X(plant, how) {"finds_" #plant, test_finds_##plant},
	FOUND_TABLE(X)
#undef X
};

static int run_command(int argc, char **argv)
{
	static const struct option longs[] = {
		{"seed", required_argument, NULL, 's'},
		{"seeds", required_argument, NULL, 'S'},
		{"step", required_argument, NULL, 't'},
		{"ops", required_argument, NULL, 'o'},
		{"clients", required_argument, NULL, 'c'},
		{"plant", required_argument, NULL, 'p'},
		{"jobs", required_argument, NULL, 'j'},
		{"replicas", required_argument, NULL, 'r'},
		{"contended", no_argument, NULL, 'C'},
		{"names", no_argument, NULL, 'N'},
		{"cuts", no_argument, NULL, 'T'},
		{"logs", no_argument, NULL, 'L'},
		{"seeks", no_argument, NULL, 'K'},
		{"late", no_argument, NULL, 'E'},
		{"damaged", no_argument, NULL, 'D'},
		{"lose", no_argument, NULL, 'G'},
		{"refuse", no_argument, NULL, 'R'},
		{"verbose", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	struct batch b = defaults();
	int c;

	while ((c = getopt_long(argc, argv, "vj:", longs, NULL)) != -1) {
		unsigned long long from, to;
		if (c == 's') {
			b.first = b.last = strtoull(optarg, NULL, 0);
			b.verbose = true;
		} else if (c == 'S' && sscanf(optarg, "%llu..%llu", &from, &to) == 2) {
			b.first = from;
			b.last = to;
		} else if (c == 't') {
			b.step = strtoull(optarg, NULL, 0);
		} else if (c == 'o') {
			b.n_ops = (uint32_t)atoi(optarg);
		} else if (c == 'c') {
			b.n_clients = (uint32_t)atoi(optarg);
		} else if (c == 'p') {
			b.plant = optarg;
		} else if (c == 'j') {
			b.jobs = (uint32_t)atoi(optarg);
		} else if (c == 'r') {
			b.replicas = (uint32_t)atoi(optarg);
		} else if (c == 'C') {
			contend(&b);
		} else if (c == 'N') {
			contend_names(&b);
		} else if (c == 'T') {
			contend_cuts(&b);
		} else if (c == 'L') {
			contend_logs(&b);
		} else if (c == 'E') {
			contend_late(&b);
		} else if (c == 'K') {
			contend_seeks(&b);
		} else if (c == 'D') {
			meet_damage(&b);
		} else if (c == 'G') {
			lose_targets(&b);
		} else if (c == 'R') {
			b.refuse = true;
		} else if (c == 'v') {
			b.verbose = true;
		} else {
			return 2;
		}
	}
	if (b.n_clients < 1 || b.n_clients > CLIENTS_MAX || b.jobs < 1 || b.jobs > JOBS_MAX ||
	    b.replicas < 1 || b.replicas > 3 || b.step < 1)
		return 2;
	return run_batch(&b) ? 1 : 0;
}

int main(int argc, char **argv)
{
	log_init("sim", getenv("LEAT_SIM_LOG") ? LOG_DEBUG : LOG_ERROR);
	if (argc >= 2 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
			puts(tests[i].name);
		return 0;
	}
	if (argc >= 2 && strcmp(argv[1], "run") == 0)
		return run_command(argc - 1, argv + 1);
	if (argc >= 2 && strcmp(argv[1], "fanout") == 0)
		return fanout_command(argc - 1, argv + 1);
	for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(tests); i++)
		if (strcmp(argv[1], tests[i].name) == 0)
			return tests[i].fn();
	fprintf(stderr, "usage: leat-sim --list | NAME | run [--seed N | --seeds A..B [--step N]] "
			"[--ops N] [--clients N] "
			"[--replicas N | --contended | --names | --cuts | --logs | --seeks | "
			"--late | --damaged | --lose] "
			"[--refuse] [--plant BUG] [--jobs N] [-v] | fanout [--nodes N] ...\n");
	return 2;
}
