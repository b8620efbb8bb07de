/*
 * A client and a chain of three members, which answer what the test wants: who is asked, with which
 * identity, and how long it takes when one of them dies, falls silent or holds damaged data. On the
 * simulator's clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/chunk_lease.h"
#include "client/io.h"
#include "client/retry.h"
#include "common/base/checksum.h"
#include "common/kv/kv.h"
#include "common/proto/mds_proto.h"
#include "common/proto/oss_proto.h"
#include "common/rt/sim.h"

/* Processes that crash, and those that are there when the simulation ends, leave their memory. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

#define N       3
#define CHUNK   (64u << 10)
#define LEN     (16u << 10)
#define CHAIN   5u
#define SESSION 77u

struct fake {
	struct sim_proc *proc;
	uint32_t id;
	char addr[16];
	struct slot_pool *pool;
	struct rpc_server *server;
	/* what it does */
	int read_status, write_status;
	uint64_t read_us, write_us;
	bool wrong_sum;
	uint32_t n_short; /* so many reads find nothing there */
	int many_status;
	enum many_lie {
		MANY_TRUE,
		MANY_PART_FAILS,
		MANY_WRONG_SUM,
		MANY_RESULT_LACKS,
		MANY_TOO_MANY_PIECES,
		MANY_TOO_MUCH,
		MANY_TOO_LITTLE,
		MANY_SHORT
	} many_lie;
	/* what it saw */
	uint32_t n_reads, n_writes, n_verify, n_many, n_parts, n_caps;
	struct frame_hdr last_write;
};

/* What is one per test. */
static struct {
	struct sim *sim;
	struct transport *transport;
	struct rpc_key key;
	struct sim_proc *mds_proc, *client_proc;
	struct rpc_server *mds;
	struct loop *mds_loop;
	struct fake oss[N];
	uint32_t epoch, order[N], n_members, n_sync;
	uint32_t n_maps;
	struct attr attr; /* of every file */
	uint32_t n_getattrs;
	struct rpc_peer *peer;
	struct client *client;
	void (*test)(void);
	bool ready, done;
} bed;

/* ---- the metadata server ---- */

static int on_session_open(struct rpc_req *r, const void *in, void *out)
{
	struct mds_session_open_rep *p = out;

	(void)in;
	*p = (struct mds_session_open_rep){.session = SESSION,
					   .slots = 64,
					   .ttl_ms = 60000,
					   .incarnation = 1,
					   .map_epoch = bed.epoch};
	bed.peer = r->peer;
	return 0;
}

static int on_nothing(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in, (void)out;
	return 0;
}

static int on_ping(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in;
	((struct mds_ping_rep *)out)->map_epoch = bed.epoch;
	return 0;
}

static int on_map(struct rpc_req *r, const void *in, void *out)
{
	struct mds_map_get_rep *p = out;
	uint8_t *buf = rpc_req_alloc(r, 4096), members[CHAIN_MEMBERS_BUF];
	struct chain_info ci = {.id = CHAIN, .epoch = bed.epoch, .replicas = N};
	struct table_info ti = {.version = 1, .replicas = N, .n = 1};
	struct chain_member m[N];
	struct wire_w w;

	(void)in;
	bed.n_maps++;
	p->epoch = bed.epoch;
	wire_w_init(&w, buf, 4096);
	for (uint32_t i = 0; i < N; i++) {
		struct target_info t = {.id = bed.oss[i].id,
					.state = TARGET_UP,
					.addrs = bytes_str(bed.oss[i].addr)};
		wire_put_target_info(&w, &t);
	}
	p->targets = bytes_of(buf, (uint32_t)w.len);
	for (uint32_t i = 0; i < bed.n_members; i++)
		m[i] = (struct chain_member){bed.oss[bed.order[i]].id,
					     i < bed.n_sync ? MEMBER_SYNC : MEMBER_SYNCING};
	chain_members_put(m, bed.n_members, members, &ci);
	size_t at = w.len;
	wire_put_chain_info(&w, &ci);
	p->chains = bytes_of(buf + at, (uint32_t)(w.len - at));
	at = w.len;
	wire_put_table_info(&w, &ti);
	p->tables = bytes_of(buf + at, (uint32_t)(w.len - at));
	return w.status;
}

static int on_getattr(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in;
	bed.n_getattrs++;
	((struct mds_getattr_rep *)out)->attr = bed.attr;
	return 0;
}

static const struct rpc_handler mds_handlers[] = {
	{OP_mds_session_open, on_session_open},
	{OP_mds_session_close, on_nothing},
	{OP_mds_ping, on_ping},
	{OP_mds_map_get, on_map},
	{OP_mds_getattr, on_getattr},
};

static void serve(const char *addr, enum rpc_role role, const struct rpc_handler *h, uint32_t n,
		  void *arg, struct rpc_server **ret)
{
	struct rpc_server_options o = {
		.transport = bed.transport,
		.addrs = addr,
		.name = addr,
		.role = role,
		.cluster = {{1}},
		.key = bed.key,
		.bulk_max = 1 << 20,
		.handlers = h,
		.n_handlers = n,
		.arg = arg,
		.bulk_pool = arg != NULL ? ((struct fake *)arg)->pool : NULL,
	};

	assert_int_equal(rpc_server_create(&o, ret), 0);
}

static void mds_main(struct loop *loop, void *arg)
{
	(void)arg;
	bed.mds_loop = loop;
	serve("mds:1", ROLE_MDS, mds_handlers, ARRAY_SIZE(mds_handlers), NULL, &bed.mds);
	bed.ready = true;
}

/* A new chain, as the metadata server decides it. */
static void set_chain(uint32_t n_members, uint32_t n_sync, uint32_t first, uint32_t second,
		      uint32_t third)
{
	bed.epoch++;
	bed.n_members = n_members;
	bed.n_sync = n_sync;
	bed.order[0] = first;
	bed.order[1] = second;
	bed.order[2] = third;
}

static void tell_fiber(void *arg)
{
	struct cb_map_changed_req req = {.epoch = bed.epoch};
	struct cb_map_changed_rep rep;
	struct rpc_call call = {.op = OP_cb_map_changed, .req = &req, .rep = &rep};

	(void)arg;
	(void)!rpc_callback(bed.peer, &call);
	rpc_call_fini(&call);
}

/* In the metadata server's loop. */
static void tell_client(void *arg)
{
	assert_int_equal(fiber_spawn("tell", tell_fiber, arg), 0);
}

/* ---- the members ---- */

static int on_read(struct rpc_req *r, const void *in, void *out)
{
	struct fake *f = r->arg;
	const struct oss_read_req *q = in;
	struct oss_read_rep *p = out;
	struct piece piece = {.off = q->off, .len = q->len, .stored_len = q->len};
	uint8_t *pieces = rpc_req_alloc(r, PIECE_WIRE_SIZE);
	struct slot *s;

	f->n_reads++;
	f->n_verify += (q->flags & READ_VERIFY) != 0;
	if (f->read_us > 0)
		(void)!fiber_sleep_us(f->read_us);
	if (f->read_status < 0)
		return f->read_status;
	if (f->n_short > 0) {
		f->n_short--;
		return 0;
	}
	assert_int_equal(slot_get(f->pool, NO_DEADLINE, &s), 0);
	memset(s->data, (int)f->id, q->len);
	piece.sum = checksum64(s->data, q->len) + f->wrong_sum;
	piece_encode(&piece, pieces);
	p->pieces = bytes_of(pieces, PIECE_WIRE_SIZE);
	p->end = q->off + q->len;
	r->reply_bulk[0] = (struct slot_vec){s, 0, q->len};
	r->n_reply_bulk = 1;
	return 0;
}

/* One result of MANY_PART that is not as it should be: the third. */
#define MANY_PART 2u

static void lie(const struct fake *f, uint32_t i, struct readv_result *res, struct piece *piece)
{
	if (f->many_lie == MANY_PART_FAILS && i == MANY_PART)
		*res = (struct readv_result){.status = -LE_PENDING};
	else if (f->many_lie == MANY_WRONG_SUM && i == MANY_PART)
		piece->sum++;
	else if (f->many_lie == MANY_TOO_MANY_PIECES && i == MANY_PART)
		res->n_pieces = UINT32_MAX;
	else if (f->many_lie == MANY_TOO_MUCH && i == MANY_PART)
		res->sent = piece->len = piece->stored_len = 4 * piece->len;
	else if (f->many_lie == MANY_SHORT && i == MANY_PART)
		res->sent = res->n_pieces = 0;
}

static int on_readv(struct rpc_req *r, const void *in, void *out)
{
	struct fake *f = r->arg;
	const struct oss_readv_req *q = in;
	struct oss_readv_rep *p = out;
	uint8_t *pieces = rpc_req_alloc(r, READV_PARTS_MAX * PIECE_WIRE_SIZE);
	struct wire_w results;
	struct wire_r caps, parts;
	uint32_t n = 0, at = 0, n_pieces = 0;
	struct slot *s;

	f->n_many++;
	if (f->read_us > 0)
		(void)!fiber_sleep_us(f->read_us);
	if (f->many_status < 0)
		return f->many_status;
	assert_int_equal(slot_get(f->pool, NO_DEADLINE, &s), 0);
	wire_w_init(&results, rpc_req_alloc(r, READV_PARTS_MAX * 16), READV_PARTS_MAX * 16);
	wire_r_init(&parts, q->parts.data, q->parts.len);
	wire_r_init(&caps, q->caps.data, q->caps.len);
	for (f->n_caps = 0; !wire_r_end(&caps); f->n_caps++) {
		struct cap cap;

		wire_get_cap(&caps, &cap);
	}
	for (; !wire_r_end(&parts); n++) {
		struct readv_part part;
		struct readv_result res = {.n_pieces = 1};

		wire_get_readv_part(&parts, &part);
		assert_true(parts.status == 0 && part.cap < f->n_caps && n < READV_PARTS_MAX);
		struct piece piece = {.off = part.off, .len = part.len, .stored_len = part.len};
		res.sent = part.len;
		memset(s->data + at, (int)f->id, part.len);
		piece.sum = checksum64(s->data + at, part.len);
		lie(f, n, &res, &piece);
		if (res.n_pieces > 0)
			piece_encode(&piece, pieces + (size_t)n_pieces++ * PIECE_WIRE_SIZE);
		if (f->many_lie != MANY_RESULT_LACKS || n < MANY_PART)
			wire_put_readv_result(&results, &res);
		at += part.len;
	}
	f->n_parts += n;
	p->results = bytes_of(results.buf, (uint32_t)results.len);
	p->pieces = bytes_of(pieces, n_pieces * PIECE_WIRE_SIZE);
	r->reply_bulk[0] = (struct slot_vec){s, 0, at - (f->many_lie == MANY_TOO_LITTLE)};
	r->n_reply_bulk = 1;
	return 0;
}

static int on_write(struct rpc_req *r, const void *in, void *out)
{
	struct fake *f = r->arg;

	(void)in, (void)out;
	f->n_writes++;
	f->last_write = r->hdr;
	if (f->write_us > 0)
		(void)!fiber_sleep_us(f->write_us);
	return f->write_status;
}

static const struct rpc_handler oss_handlers[] = {
	{OP_oss_read, on_read},
	{OP_oss_readv, on_readv},
	{OP_oss_write, on_write},
};

static void oss_main(struct loop *loop, void *arg)
{
	struct fake *f = arg;

	(void)loop;
	assert_int_equal(slot_pool_create(1 << 20, 16, &f->pool), 0);
	serve(f->addr, ROLE_OSSD, oss_handlers, ARRAY_SIZE(oss_handlers), f, &f->server);
	bed.ready = true;
}

/* ---- the client ---- */

static void client_main(struct loop *loop, void *arg)
{
	struct client_options o = {.transport = bed.transport,
				   .key = bed.key,
				   .mds_addrs = "mds:1",
				   .name = "client",
				   .host = "nowhere"};
	struct config_section s = {"client", client_param_table, n_client_params, &o.params};

	(void)loop, (void)arg;
	config_defaults(&s, 1);
	o.params.slot_memory = 32 << 20;
	assert_int_equal(client_create(&o, &bed.client), 0);
	bed.test();
	/* What lost is cancelled and gives its slot back. */
	assert_int_equal(fiber_sleep_us(100000), 0);
	assert_int_equal(slot_pool_free(bed.client->slots), slot_pool_total(bed.client->slots));
	assert_int_equal(slot_pool_free(bed.client->small), slot_pool_total(bed.client->small));
	client_destroy(bed.client);
	bed.done = true;
}

static bool is_ready(void *arg)
{
	return *(bool *)arg;
}

static void start(struct sim_proc *p, void (*fn)(struct loop *loop, void *arg), void *arg)
{
	bed.ready = false;
	assert_int_equal(sim_proc_start(p, fn, arg), 0);
	assert_int_equal(sim_run(bed.sim, is_ready, &bed.ready, sim_now_us(bed.sim) + 1000000), 0);
}

static void run(void (*test)(void))
{
	struct transport_sim_options calm = {.delay_us_max = 200};

	memset(&bed, 0, sizeof(bed));
	memset(&bed.key, 9, sizeof(bed.key));
	bed.test = test;
	set_chain(N, N, 0, 1, 2);
	assert_int_equal(sim_create(7, NULL, &bed.sim), 0);
	assert_int_equal(transport_sim_create(bed.sim, &calm, &bed.transport), 0);
	bed.mds_proc = sim_proc_create(bed.sim, "mds");
	bed.client_proc = sim_proc_create(bed.sim, "client");
	start(bed.mds_proc, mds_main, NULL);
	for (uint32_t i = 0; i < N; i++) {
		char name[8];

		snprintf(name, sizeof(name), "oss%u", i);
		snprintf(bed.oss[i].addr, sizeof(bed.oss[i].addr), "%s:1", name);
		bed.oss[i].id = 10 + i;
		bed.oss[i].proc = sim_proc_create(bed.sim, name);
		start(bed.oss[i].proc, oss_main, &bed.oss[i]);
	}
	assert_int_equal(sim_proc_start(bed.client_proc, client_main, NULL), 0);
	assert_int_equal(sim_run(bed.sim, is_ready, &bed.done, 60000000), 0);
	transport_destroy(bed.transport);
	sim_destroy(bed.sim);
}

/* ---- what the tests do ---- */

static struct idata *open_inode(void)
{
	struct inode *i = inode_get(bed.client, (struct ino){100});
	struct cap cap = {.ino = {100}, .rights = CAP_READ | CAP_WRITE, .session = SESSION};
	struct idata *d;

	assert_non_null(i);
	i->attr.layout =
		(struct layout){.table = 1, .width = 1, .chunk_size = CHUNK, .replicas = N};
	assert_int_equal(inode_data(bed.client, i, &d), 0);
	io_take_cap(d, &cap);
	d->n_read = d->n_write = 1;
	return d;
}

static void close_inode(struct idata *d)
{
	d->n_read = d->n_write = 0;
	inode_put(bed.client, d->inode);
}

/* Who has answered, *ret_us after the question. */
static int read_one(struct idata *d, uint64_t idx, uint32_t *ret_id, uint64_t *ret_us)
{
	uint64_t since = loop_now_us();
	struct slot *s;
	int rc;

	assert_int_equal(slot_get(bed.client->slots, NO_DEADLINE, &s), 0);
	rc = io_fetch(d, idx * CHUNK, LEN, s, 0, NULL);
	*ret_us = loop_now_us() - since;
	*ret_id = s->data[LEN - 1];
	for (uint32_t i = 0; rc >= 0 && i < LEN; i++)
		assert_int_equal(s->data[i], *ret_id);
	slot_unref(s);
	return rc;
}

static int write_one(struct idata *d, uint64_t *ret_us)
{
	uint64_t since = loop_now_us();
	struct stripe_part part = {.idx = 0, .off = 0, .len = LEN};
	struct slot_vec vec = {NULL, 0, LEN};
	int rc;

	assert_int_equal(slot_get(bed.client->slots, NO_DEADLINE, &vec.slot), 0);
	memset(vec.slot->data, 1, LEN);
	rc = wb_write_now(d, &part, &vec, 1, 0);
	slot_unref(vec.slot);
	*ret_us = loop_now_us() - since;
	return rc;
}

/* All connections are there, and it is known who answers for chunk idx. */
static uint32_t warm_up(struct idata *d, uint64_t idx)
{
	uint32_t id, all = 0;
	uint64_t us;

	for (uint64_t i = 0; i < 32; i++) {
		assert_int_equal(read_one(d, i, &id, &us), 0);
		all |= 1u << (id - 10);
	}
	assert_int_equal(all, 7);
	assert_int_equal(read_one(d, idx, &id, &us), 0);
	return id - 10;
}

/* fn at that time from now: in the metadata server's loop, or outside of all. */
static void after_ms(uint64_t ms, struct loop *loop, void (*fn)(void *arg))
{
	assert_int_equal(sim_after(bed.sim, ms * 1000, loop, fn, NULL), 0);
}

static void head_dies(void *arg)
{
	(void)arg;
	sim_proc_crash(bed.oss[0].proc);
}

static void second_leads(void *arg)
{
	(void)arg;
	set_chain(N, 2, 1, 2, 0);
}

static void second_leads_and_client_hears(void *arg)
{
	second_leads(arg);
	tell_client(arg);
}

static void silence(uint32_t i, bool cut)
{
	char name[8];

	snprintf(name, sizeof(name), "oss%u", i);
	transport_sim_partition(bed.transport, name, "client", cut);
}

/* ---- tests ---- */

static void killed_head(void)
{
	struct idata *d = open_inode();
	struct frame_hdr first;
	uint64_t us;

	(void)warm_up(d, 0);
	assert_int_equal(write_one(d, &us), 0);
	assert_int_equal(bed.oss[0].n_writes, 1);
	assert_int_equal(bed.oss[0].last_write.chain, CHAIN);
	assert_int_equal(bed.oss[0].last_write.epoch, bed.epoch);
	/* It takes the write and dies. 30 ms later somebody else leads, and nobody says so. */
	bed.oss[0].write_us = 10000000;
	after_ms(5, NULL, head_dies);
	after_ms(35, NULL, second_leads);
	assert_int_equal(write_one(d, &us), 0);
	assert_in_range(us, 35000, 150000);
	/* The same request: done once, whoever did it. */
	first = bed.oss[0].last_write;
	assert_int_equal(bed.oss[1].n_writes, 1);
	assert_int_equal(bed.oss[1].last_write.session, first.session);
	assert_int_equal(bed.oss[1].last_write.slot, first.slot);
	assert_int_equal(bed.oss[1].last_write.seq, first.seq);
	assert_int_equal(bed.oss[1].last_write.epoch, bed.epoch);
	assert_int_equal(bed.oss[2].n_writes, 0);
	/* What is new has another identity. */
	assert_int_equal(write_one(d, &us), 0);
	assert_true(bed.oss[1].last_write.seq > first.seq);
	close_inode(d);
}

static void silent_head(void)
{
	struct idata *d = open_inode();
	uint64_t us;

	(void)warm_up(d, 0);
	silence(0, true);
	after_ms(300, bed.mds_loop, second_leads_and_client_hears);
	assert_int_equal(write_one(d, &us), 0);
	/* Word of the new map ends the wait, not the deadline of the attempt. */
	assert_in_range(us, 300000, 330000);
	assert_int_equal(bed.oss[1].n_writes, 1);
	silence(0, false);
	close_inode(d);
}

static void silent_head_and_no_word(void)
{
	struct idata *d = open_inode();
	uint64_t us;

	(void)warm_up(d, 0);
	silence(0, true);
	after_ms(1200, NULL, second_leads);
	assert_int_equal(write_one(d, &us), 0);
	assert_in_range(us, 1200000, 3000000);
	silence(0, false);
	close_inode(d);
}

static void new_map_leaves_what_is_right(void)
{
	struct idata *d = open_inode();
	uint64_t us;

	(void)warm_up(d, 0);
	bed.oss[0].write_us = 100000;
	/* Another member is away, the head is the same: nothing is sent twice. */
	set_chain(2, 2, 0, 2, 1);
	after_ms(10, bed.mds_loop, tell_client);
	assert_int_equal(write_one(d, &us), 0);
	assert_int_equal(bed.oss[0].n_writes, 1);
	assert_int_equal(bed.client->map.epoch, bed.epoch);
	close_inode(d);
}

static void killed_member(void)
{
	struct idata *d = open_inode();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	/* Its connection breaks with the answer outstanding. */
	bed.oss[who].read_us = 10000000;
	bed.client->params.hedge_ms = 0;
	sim_proc_crash(bed.oss[who].proc);
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_not_equal(id, 10 + who);
	assert_in_range(us, 0, 10000);
	close_inode(d);
}

static void silent_member(void)
{
	struct idata *d = open_inode();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	silence(who, true);
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_not_equal(id, 10 + who);
	assert_in_range(us, HEDGE_MIN_US, 60000);
	assert_int_equal(bed.client->stats.hedges_won, 1);
	/* It is not asked first now. */
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_in_range(us, 0, 5000);
	assert_int_equal(bed.client->stats.hedges, 1);
	silence(who, false);
	close_inode(d);
}

static void head_is_quick(void *arg)
{
	(void)arg;
	bed.oss[0].read_us = 0;
}

/* Its answer comes when others' writes have not waited for it any more. */
static void late_under_a_lease(void)
{
	struct idata *d = open_inode();
	struct ll_file f = {.magic = LL_FILE_MAGIC,
			    .c = bed.client,
			    .inode = d->inode,
			    .d = d,
			    .can_read = true};
	struct ll_chunk_leases *leases;
	struct ll_data data;

	d->inode->attr.flags |= ATTR_SEALED;
	d->inode->attr.size = CHUNK;
	/* Alone in its chain: whoever has others is given up sooner. */
	set_chain(1, 1, 0, 1, 2);
	after_ms(10, bed.mds_loop, tell_client);
	assert_int_equal(fiber_sleep_us(100000), 0);
	bed.oss[0].n_reads = 0;
	bed.oss[0].read_us = CHUNK_LEASE_MS * 1000u + 100000;
	after_ms(100, NULL, head_is_quick);
	assert_int_equal(ll_read_leased(&f, 0, LEN, &data, &leases), 0);
	assert_int_equal(data.len, LEN);
	assert_int_equal(bed.oss[0].n_reads, 2);
	ll_data_release(&data);
	ll_release_leases(leases);
	/* One that is never quick enough is no answer. */
	bed.oss[0].n_reads = 0;
	bed.oss[0].read_us = CHUNK_LEASE_MS * 1000u + 100000;
	assert_int_equal(ll_read_leased(&f, 0, LEN, &data, &leases), -LE_IO);
	assert_in_range(bed.oss[0].n_reads, 2, 100);
	assert_null(leases);
	close_inode(d);
}

/* The next process goes on with the session, and must not give back what it has not taken. */
static void lease_of_a_former_process(void)
{
	struct idata *d = open_inode();
	struct ll_chunk_leases *before = chunk_leases_make(d), *after;

	bed.client->seq_base += 1ull << 40;
	bed.client->n_chunk_leases = 0;
	after = chunk_leases_make(d);
	assert_true(after->number > before->number);
	ll_release_leases(before);
	ll_release_leases(after);
	close_inode(d);
}

static void slow_member_wins_after_all(void)
{
	struct idata *d = open_inode();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].read_us = i == who ? 15000 : 50000;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_equal(id, 10 + who);
	assert_in_range(us, 15000, 20000);
	assert_int_equal(bed.client->stats.hedges, 1);
	assert_int_equal(bed.client->stats.hedges_won, 0);
	close_inode(d);
}

static void second_member_is_bad(void)
{
	struct idata *d = open_inode();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	/* The first is silent, of the others one has no answer: the third has. */
	silence(who, true);
	bed.oss[(who + 1) % N].read_status = -LE_NO_LEASE;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_equal(id, 10 + (who + 2) % N);
	assert_in_range(us, 0, 60000);
	silence(who, false);
	close_inode(d);
}

static void pending_is_for_the_head(void)
{
	struct idata *d = open_inode();
	uint32_t id, n_maps;
	uint64_t us;

	(void)warm_up(d, 3);
	bed.oss[1].read_status = bed.oss[2].read_status = -LE_PENDING;
	/* The head waits until it is committed: no second member can know better. */
	bed.oss[0].read_us = 100000;
	n_maps = bed.n_maps;
	for (uint64_t i = 0; i < 8; i++) {
		uint32_t before = bed.oss[0].n_reads;

		assert_int_equal(read_one(d, i, &id, &us), 0);
		assert_int_equal(id, 10);
		assert_in_range(us, 100000, 120000);
		assert_int_equal(bed.oss[0].n_reads, before + 1);
	}
	assert_int_equal(bed.n_maps, n_maps);
	close_inode(d);
}

static void damaged_copies(void)
{
	struct idata *d = open_inode();
	uint32_t who = warm_up(d, 3), id;
	uint64_t us;

	bed.oss[who].read_status = -LE_CORRUPT;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_int_not_equal(id, 10 + who);
	bed.oss[id - 10].wrong_sum = true;
	bed.oss[who].read_status = 0;
	bed.oss[who].wrong_sum = true;
	assert_int_equal(read_one(d, 3, &id, &us), 0);
	assert_true(bed.client->stats.checksum_errors > 0);
	/* Everybody's is bad. */
	for (uint32_t i = 0; i < N; i++) {
		bed.oss[i].wrong_sum = false;
		bed.oss[i].read_status = -LE_CORRUPT;
		bed.oss[i].n_reads = 0;
	}
	assert_int_equal(read_one(d, 3, &id, &us), -LE_CORRUPT);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(bed.oss[i].n_reads, 1);
	close_inode(d);
}

static void only_members_in_sync(void)
{
	struct idata *d = open_inode();
	uint32_t id, n;
	uint64_t us;

	set_chain(N, 2, 0, 1, 2);
	assert_int_equal(map_refresh(bed.client, NO_DEADLINE), 0);
	n = bed.oss[2].n_reads;
	for (uint64_t i = 0; i < 32; i++)
		assert_int_equal(read_one(d, i, &id, &us), 0);
	assert_int_equal(bed.oss[2].n_reads, n);
	close_inode(d);
}

/* ---- many reads at once ---- */

#define MANY     150u
#define MANY_LEN 4096u

/* Reads that many parts of a sealed file; each has the bytes of one member, or, of a part that is
 * behind the end of a chunk, zeros. Which members answered, as bits, and how many parts are zeros.
 */
static uint32_t read_many(struct idata *d, uint32_t *ret_zeros)
{
	static uint8_t bufs[MANY][MANY_LEN];
	struct ll_file f = {.magic = LL_FILE_MAGIC,
			    .c = bed.client,
			    .inode = d->inode,
			    .d = d,
			    .can_read = true};
	struct ll_part parts[MANY];
	uint32_t who = 0;

	d->inode->attr.flags |= ATTR_SEALED;
	d->inode->attr.size = 1 << 30;
	bed.attr = d->inode->attr;
	memset(bufs, 0xee, sizeof(bufs));
	for (uint32_t i = 0; i < MANY; i++)
		parts[i] = (struct ll_part){&f, bufs[i], i % 40 * CHUNK + i * 64, MANY_LEN, 1};
	ll_pread_many(bed.client, parts, MANY);
	*ret_zeros = 0;
	for (uint32_t i = 0; i < MANY; i++) {
		uint8_t id = bufs[i][0];

		assert_int_equal(parts[i].done, MANY_LEN);
		assert_true(id == 0 || (id >= 10 && id < 10 + N));
		for (uint32_t k = 1; k < MANY_LEN; k++)
			assert_int_equal(bufs[i][k], id);
		if (id == 0)
			++*ret_zeros;
		else
			who |= 1u << (id - 10);
	}
	return who;
}

static uint32_t sum_of(size_t member)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N; i++) {
		n += *(uint32_t *)((uint8_t *)&bed.oss[i] + member);
		*(uint32_t *)((uint8_t *)&bed.oss[i] + member) = 0;
	}
	return n;
}
#define SUM(member) sum_of(offsetof(struct fake, member))

static void many_go_together(void)
{
	struct idata *d = open_inode();
	uint32_t zeros;

	(void)warm_up(d, 0);
	(void)SUM(n_reads);
	assert_int_equal(read_many(d, &zeros), 7);
	assert_int_equal(SUM(n_parts), MANY);
	assert_int_equal(SUM(n_reads), 0);
	/* As few requests as members and READV_PARTS_MAX allow; one file, one capability. */
	assert_in_range(SUM(n_many), 3, 5);
	assert_int_equal(bed.oss[0].n_caps, 1);
	assert_int_equal(zeros, 0);
	close_inode(d);
}

/* Whatever a member says of many, the parts that it did not answer well are asked for alone. */
static void many_with_a_lie(enum many_lie lie, uint32_t alone_min, uint32_t alone_max)
{
	struct idata *d = open_inode();
	uint32_t zeros, n_many;

	(void)warm_up(d, 0);
	(void)SUM(n_reads);
	(void)SUM(n_many);
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].many_lie = lie;
	assert_int_equal(read_many(d, &zeros), 7);
	n_many = SUM(n_many);
	assert_in_range(SUM(n_reads), alone_min * n_many, alone_max * n_many);
	assert_int_equal(zeros, lie == MANY_SHORT && alone_max == 0 ? n_many : 0);
	close_inode(d);
}

static void many_part_fails(void)
{
	many_with_a_lie(MANY_PART_FAILS, 1, 1);
}

static void many_wrong_sum(void)
{
	many_with_a_lie(MANY_WRONG_SUM, 1, 1);
	assert_true(bed.client->stats.checksum_errors >= 3);
}

static void many_answers_lack(void)
{
	many_with_a_lie(MANY_RESULT_LACKS, 1, READV_PARTS_MAX);
}

static void many_pieces_too_many(void)
{
	many_with_a_lie(MANY_TOO_MANY_PIECES, 1, READV_PARTS_MAX);
}

static void many_bytes_too_many(void)
{
	many_with_a_lie(MANY_TOO_MUCH, 1, 1);
}

static void many_bytes_too_few(void)
{
	many_with_a_lie(MANY_TOO_LITTLE, 2, READV_PARTS_MAX);
}

/* Only under a lease nobody need be asked whether that means anything. */
static void many_short(void)
{
	struct client_leases *ls = &bed.client->leases;
	struct inode *i = inode_get(bed.client, (struct ino){100});

	ls->heard_us = i->lease_us = i->attr_us = loop_now_us();
	ls->term_us = 60000000;
	many_with_a_lie(MANY_SHORT, 0, 0);
	i->lease_us = 0;
	many_with_a_lie(MANY_SHORT, 1, 1);
	inode_put(bed.client, i);
}

/* The data of a sealed file has been moved, and where it was there is nothing any more. */
static void moved_data(void)
{
	struct idata *d = open_inode();
	uint8_t buf[MANY_LEN];
	struct ll_file f = {.magic = LL_FILE_MAGIC,
			    .c = bed.client,
			    .inode = d->inode,
			    .d = d,
			    .can_read = true};

	d->inode->attr.flags |= ATTR_SEALED;
	d->inode->attr.size = 1 << 20;
	assert_int_equal(ll_pread(&f, buf, sizeof(buf), 0), sizeof(buf));
	assert_int_equal(bed.n_getattrs, 0); /* without a hole nobody need be */
	bed.attr = d->inode->attr;
	bed.attr.cuts++;
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].n_short = 1;
	assert_int_equal(ll_pread(&f, buf, sizeof(buf), 0), sizeof(buf));
	assert_in_range(buf[0], 10, 10 + N - 1);
	assert_int_equal(bed.n_getattrs, 2); /* the second time it had met one before */
	/* What is a hole still is one. */
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].n_short = UINT32_MAX;
	assert_int_equal(ll_pread(&f, buf, sizeof(buf), 0), sizeof(buf));
	assert_int_equal(buf[0], 0);
	close_inode(d);
}

static void many_of_an_older_server(void)
{
	struct idata *d = open_inode();
	uint32_t zeros;

	(void)warm_up(d, 0);
	(void)SUM(n_reads);
	for (uint32_t i = 0; i < N; i++)
		bed.oss[i].many_status = -LE_UNKNOWN_OP;
	assert_int_equal(read_many(d, &zeros), 7);
	assert_int_equal(SUM(n_reads), MANY);
	assert_in_range(SUM(n_many), 3, 5);
	/* It is not asked again. */
	assert_int_equal(read_many(d, &zeros), 7);
	assert_int_equal(SUM(n_reads), MANY);
	assert_int_equal(SUM(n_many), 0);
	close_inode(d);
}

static void many_of_a_silent_member(void)
{
	struct idata *d = open_inode();
	uint32_t who = warm_up(d, 3), zeros;
	uint64_t since;

	(void)read_many(d, &zeros);
	since = loop_now_us();
	silence(who, true);
	assert_int_equal(read_many(d, &zeros), 7u & ~(1u << who));
	/* As long as a hedged read waits for the first, and one that finds it slow. */
	assert_in_range(loop_now_us() - since, HEDGE_MIN_US, 60000);
	(void)SUM(n_many);
	assert_int_equal(read_many(d, &zeros), 7u & ~(1u << who));
	assert_int_equal(bed.oss[who].n_many, 0);
	silence(who, false);
	close_inode(d);
}

static void many_of_a_killed_member(void)
{
	struct idata *d = open_inode();
	uint32_t who = warm_up(d, 3), zeros;
	uint64_t since = loop_now_us();

	bed.oss[who].read_us = 10000000;
	bed.client->params.hedge_ms = 0;
	sim_proc_crash(bed.oss[who].proc);
	assert_int_equal(read_many(d, &zeros), 7u & ~(1u << who));
	assert_in_range(loop_now_us() - since, 0, 20000);
	close_inode(d);
}

#define TEST(name, fn)                                                                             \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		run(fn);                                                                           \
	}
TEST(successor_of_a_killed_head_gets_the_same_request, killed_head)
TEST(word_of_a_new_head_ends_the_wait_for_the_silent_one, silent_head)
TEST(a_silent_head_is_found_out_without_word, silent_head_and_no_word)
TEST(a_new_map_leaves_requests_to_the_right_member_alone, new_map_leaves_what_is_right)
TEST(a_read_goes_to_another_member_when_one_dies, killed_member)
TEST(a_read_is_hedged_when_a_member_is_silent, silent_member)
TEST(a_read_under_a_lease_that_comes_late_is_repeated, late_under_a_lease)
TEST(leases_of_two_processes_have_numbers_of_their_own, lease_of_a_former_process)
TEST(the_first_member_may_win_against_the_second, slow_member_wins_after_all)
TEST(a_hedge_goes_on_to_the_third_member, second_member_is_bad)
TEST(pending_is_asked_of_the_head_at_once, pending_is_for_the_head)
TEST(damage_is_read_from_another_member, damaged_copies)
TEST(members_that_are_not_in_sync_are_not_read, only_members_in_sync)
TEST(reads_that_one_member_answers_go_in_one_request, many_go_together)
TEST(a_part_that_fails_is_asked_for_alone, many_part_fails)
TEST(a_part_with_a_wrong_checksum_is_asked_for_alone, many_wrong_sum)
TEST(parts_without_a_result_are_asked_for_alone, many_answers_lack)
TEST(more_pieces_than_there_are_are_not_believed, many_pieces_too_many)
TEST(a_part_is_never_longer_than_asked_for, many_bytes_too_many)
TEST(parts_without_data_are_asked_for_alone, many_bytes_too_few)
TEST(what_lies_behind_the_end_of_a_chunk_is_zeros, many_short)
TEST(a_hole_in_a_sealed_file_is_asked_about, moved_data)
TEST(an_older_server_is_not_asked_for_many_again, many_of_an_older_server)
TEST(many_reads_are_hedged_when_a_member_is_silent, many_of_a_silent_member)
TEST(many_reads_go_to_another_member_when_one_dies, many_of_a_killed_member)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(successor_of_a_killed_head_gets_the_same_request),
		cmocka_unit_test(word_of_a_new_head_ends_the_wait_for_the_silent_one),
		cmocka_unit_test(a_silent_head_is_found_out_without_word),
		cmocka_unit_test(a_new_map_leaves_requests_to_the_right_member_alone),
		cmocka_unit_test(a_read_goes_to_another_member_when_one_dies),
		cmocka_unit_test(a_read_is_hedged_when_a_member_is_silent),
		cmocka_unit_test(a_read_under_a_lease_that_comes_late_is_repeated),
		cmocka_unit_test(leases_of_two_processes_have_numbers_of_their_own),
		cmocka_unit_test(the_first_member_may_win_against_the_second),
		cmocka_unit_test(a_hedge_goes_on_to_the_third_member),
		cmocka_unit_test(pending_is_asked_of_the_head_at_once),
		cmocka_unit_test(damage_is_read_from_another_member),
		cmocka_unit_test(members_that_are_not_in_sync_are_not_read),
		cmocka_unit_test(reads_that_one_member_answers_go_in_one_request),
		cmocka_unit_test(a_part_that_fails_is_asked_for_alone),
		cmocka_unit_test(a_part_with_a_wrong_checksum_is_asked_for_alone),
		cmocka_unit_test(parts_without_a_result_are_asked_for_alone),
		cmocka_unit_test(more_pieces_than_there_are_are_not_believed),
		cmocka_unit_test(a_part_is_never_longer_than_asked_for),
		cmocka_unit_test(parts_without_data_are_asked_for_alone),
		cmocka_unit_test(what_lies_behind_the_end_of_a_chunk_is_zeros),
		cmocka_unit_test(a_hole_in_a_sealed_file_is_asked_about),
		cmocka_unit_test(an_older_server_is_not_asked_for_many_again),
		cmocka_unit_test(many_reads_are_hedged_when_a_member_is_silent),
		cmocka_unit_test(many_reads_go_to_another_member_when_one_dies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
