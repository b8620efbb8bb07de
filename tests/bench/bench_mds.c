/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a metadata operation costs the server's loop, without network: N fibers create files in one
 * directory, look them up and unlink them, on the real store. Prints operations per second and CPU
 * time per operation, of the loop's thread and of all threads (another thread commits). bench_mds
 * [FIBERS [FILES_EACH [FOLDER]]]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/log.h"
#include "common/kv/kv.h"
#include "common/kv/kv_rocksdb.h"
#include "common/rpc/transport/transport_tcp.h"
#include "common/rt/env_real.h"
#include "common/rt/loop.h"
#include "mds/dispatch.h"
#include "mds/format.h"
#include "mds/op.h"
#include "mds/server.h"

struct worker {
	struct bench *b;
	uint32_t id;
};

struct bench {
	uint32_t n_fibers, n_files;
	struct mds *m;
	struct loop *loop;
	struct mds_params params;
	uint64_t session;
	uint64_t *seq;
	int status;
};

static int call(struct bench *b, uint32_t slot, uint16_t op, const void *in, void *out)
{
	struct frame_hdr h = {.op = op, .session = b->session, .slot = slot};
	struct op o;
	int rc;

	if (msg_find(op)->kind == MSG_WRITE)
		h.seq = ++b->seq[slot];
	op_init(&o, b->m);
	rc = op_run(&o, &h, in, out);
	op_fini(&o);
	return rc;
}

static void file_name(const struct worker *w, uint32_t i, char name[32])
{
	snprintf(name, 32, "file-%u-%u", w->id, i);
}

static void do_create(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < w->b->n_files; i++) {
		char name[32];
		struct mds_create_req q = {
			.parent = LEAT_ROOT_INO, .mode = 0644, .flags = O_WRONLY | O_EXCL};
		struct mds_create_rep p;
		struct mds_close_req cq = {
			.flags = O_WRONLY, .dirty = 1, .size = 4096, .used = UINT64_MAX};
		struct mds_close_rep cp;

		file_name(w, i, name);
		q.name = bytes_str(name);
		if (call(w->b, w->id, OP_mds_create, &q, &p) < 0)
			w->b->status = 1;
		cq.ino = p.attr.ino;
		if (call(w->b, w->id, OP_mds_close, &cq, &cp) < 0)
			w->b->status = 1;
	}
}

static void do_lookup(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < w->b->n_files; i++) {
		char name[32];
		struct mds_lookup_req q = {.parent = LEAT_ROOT_INO};
		struct mds_lookup_rep p;

		file_name(w, i, name);
		q.name = bytes_str(name);
		if (call(w->b, w->id, OP_mds_lookup, &q, &p) < 0)
			w->b->status = 1;
	}
}

static void do_unlink(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < w->b->n_files; i++) {
		char name[32];
		struct mds_unlink_req q = {.parent = LEAT_ROOT_INO};
		struct mds_unlink_rep p;

		file_name(w, i, name);
		q.name = bytes_str(name);
		if (call(w->b, w->id, OP_mds_unlink, &q, &p) < 0)
			w->b->status = 1;
	}
}

static double cpu_s(clockid_t of)
{
	struct timespec t;

	clock_gettime(of, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void measure(struct bench *b, const char *what, uint32_t ops, void (*fn)(void *arg))
{
	struct worker *w = calloc(b->n_fibers, sizeof(*w));
	uint64_t t0 = env_now_us(b->m->env), batches = b->m->store.durable_no;
	double c0 = cpu_s(CLOCK_THREAD_CPUTIME_ID), all0 = cpu_s(CLOCK_PROCESS_CPUTIME_ID);
	double s, c, all, n = (double)b->n_fibers * b->n_files * ops;

	for (uint32_t i = 0; w != NULL && i < b->n_fibers; i++)
		w[i] = (struct worker){b, i};
	fiber_parallel("bench", fn, w, sizeof(*w), b->n_fibers, b->n_fibers);
	s = (double)(env_now_us(b->m->env) - t0) / 1e6;
	c = cpu_s(CLOCK_THREAD_CPUTIME_ID) - c0;
	all = cpu_s(CLOCK_PROCESS_CPUTIME_ID) - all0;
	printf("%-14s %9.0f op/s %8.2f us CPU/op %8.2f of all threads %8.1f op/batch\n", what,
	       n / s, c / n * 1e6, all / n * 1e6,
	       n / ((double)(b->m->store.durable_no - batches) + 1e-9));
	free(w);
}

static int prepare(struct bench *b)
{
	struct mds_target_register_req tq = {.uuid = {{1}},
					     .addrs = bytes_str("127.0.0.1:1"),
					     .capacity = 1ull << 40,
					     .free = 1ull << 40};
	struct mds_target_register_rep tp;
	struct mds_session_open_req sq = {.client = {{1}}, .slots = b->n_fibers};
	struct mds_session_open_rep sp;

	TRY(call(b, 0, OP_mds_target_register, &tq, &tp));
	TRY(call(b, 0, OP_mds_session_open, &sq, &sp));
	b->session = sp.session;
	return 0;
}

static void run(void *arg)
{
	struct bench *b = arg;
	struct env *env = loop_env(loop_self());
	struct mds_options o = {.params = b->params};
	int rc = mds_format(env, &b->params, NULL);

	if (rc == 0)
		rc = transport_tcp_create(&o.transport);
	if (rc == 0)
		rc = mds_start(&o, &b->m);
	if (rc == 0)
		rc = prepare(b);
	if (rc == 0) {
		measure(b, "create+close", 2, do_create);
		measure(b, "lookup", 1, do_lookup);
		measure(b, "unlink", 1, do_unlink);
		mds_stop(b->m);
	}
	if (rc < 0 || b->status != 0)
		fprintf(stderr, "bench_mds: %s\n",
			rc < 0 ? status_text(rc) : "an operation failed");
	loop_stop(b->loop);
}

int main(int argc, char **argv)
{
	struct bench b = {.n_fibers = argc > 1 ? (uint32_t)atoi(argv[1]) : 16,
			  .n_files = argc > 2 ? (uint32_t)atoi(argv[2]) : 2000};
	struct config_section s = {"mds", mds_param_table, n_mds_params, &b.params};
	struct env_real_options eo = {.kv_open = kv_rocksdb_open};
	struct loop_options lo = {.name = "bench"};
	char folder[] = "/tmp/bench_mds.XXXXXX", command[64];
	struct env *env;

	log_init("bench", LOG_WARN);
	config_defaults(&s, 1);
	if (argc <= 3 && mkdtemp(folder) == NULL)
		return 1;
	snprintf(b.params.data_dir, sizeof(b.params.data_dir), "%s", argc > 3 ? argv[3] : folder);
	snprintf(b.params.listen, sizeof(b.params.listen), "127.0.0.1:0");
	b.params.session_slots_max = b.n_fibers;
	b.params.lease_ms = 600000;
	b.seq = calloc(b.n_fibers + 1, sizeof(*b.seq));
	if (b.seq == NULL || env_real_create(&eo, &env) < 0 || loop_create(env, &lo, &b.loop) < 0 ||
	    fiber_spawn_on(b.loop, "run", run, &b) < 0)
		return 1;
	loop_run(b.loop);
	loop_destroy(b.loop);
	env_real_destroy(env);
	free(b.seq);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return (argc <= 3 && system(command) != 0) || b.status != 0;
}
