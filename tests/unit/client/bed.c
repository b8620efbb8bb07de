/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/bed.h"

#include <sys/stat.h>

#include "client/data/capability.h"
#include "common/base/checksum.h"
#include "common/proto/mds_proto.h"
#include "common/proto/oss_proto.h"
#include "common/rpc/transport/transport_sim.h"

struct bed bed;

/* ---- the metadata server ---- */

static int on_session_open(struct rpc_req *r, const void *in, void *out)
{
	struct mds_session_open_rep *p = out;

	(void)in;
	*p = (struct mds_session_open_rep){.session = bed.session,
					   .slots = 64,
					   .ttl_ms = 60000,
					   .lease_ms = 60000,
					   .incarnation = 1 + bed.n_restarts,
					   .reclaim = bed.n_restarts > 0 ? RECLAIM_ALL
									 : RECLAIM_NONE,
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
	(void)in;
	((struct mds_ping_rep *)out)->map_epoch = bed.epoch;
	return r->hdr.session == bed.session ? 0 : -LE_SESSION_GONE;
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

static int on_open(struct rpc_req *r, const void *in, void *out)
{
	struct mds_open_rep *p = out;

	(void)r;
	if (bed.open_status < 0)
		return bed.open_status;
	bed.n_opens++;
	p->attr = bed.attr;
	p->cap = (struct cap){.ino = ((const struct mds_open_req *)in)->ino,
			      .rights = CAP_READ | CAP_WRITE,
			      .session = bed.session};
	return 0;
}

static int on_close(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in;
	bed.n_closes++;
	((struct mds_close_rep *)out)->attr = bed.attr;
	return 0;
}

static int on_reclaim(struct rpc_req *r, const void *in, void *out)
{
	struct bytes opens = ((const struct mds_reclaim_req *)in)->opens;
	uint32_t flags, count;
	struct wire_r w;
	struct ino ino;

	(void)r, (void)out;
	wire_r_init(&w, opens.data, opens.len);
	while (!wire_r_end(&w)) {
		wire_get_ino(&w, &ino);
		wire_get_u32(&w, &flags);
		wire_get_u32(&w, &count);
		bed.reclaimed |= flags;
	}
	return w.status;
}

static int on_append(struct rpc_req *r, const void *in, void *out)
{
	/* The file is not open in that session. */
	if (bed.session != SESSION && bed.n_opens == 0)
		return -LE_BADF;
	assert_true(bed.n_appends < ARRAY_SIZE(bed.append_sizes));
	bed.tried = *(const struct mds_append_req *)in;
	bed.asked_slot = r->hdr.slot;
	bed.asked_seq = r->hdr.seq;
	if (bed.tried.had_there && bed.had_status < 0) {
		bed.n_appends++;
		return bed.had_status;
	}
	if (bed.tried.had_lost)
		bed.append_range = bed.next_place;
	bed.append_sizes[bed.n_appends++] = ((const struct mds_append_req *)in)->size;
	if (bed.append_ends_session && bed.n_appends == 1) {
		bed.session++;
		return -LE_SESSION_GONE;
	}
	*(struct mds_append_rep *)out = (struct mds_append_rep){.off = bed.append_range,
								.change = ++bed.change};
	return 0;
}

static int on_readdir(struct rpc_req *r, const void *in, void *out)
{
	uint64_t cookie = ((const struct mds_readdir_req *)in)->cookie;
	struct dirent_wire e = {
		.cookie = 1, .name = bytes_str("name"), .attr = {.ino = {101}, .mode = S_IFREG}};
	struct mds_readdir_rep *p = out;
	struct wire_w w;

	bed.n_readdirs++;
	p->last = 1;
	p->eof = cookie > 0;
	if (cookie > 0)
		return bed.readdir_us > 0 ? fiber_sleep_us(bed.readdir_us) : 0;
	wire_w_init(&w, rpc_req_alloc(r, 4096), 4096);
	wire_put_dirent_wire(&w, &e);
	p->entries = bytes_of(w.buf, (uint32_t)w.len);
	return w.status;
}

static const struct rpc_handler mds_handlers[] = {
	{OP_mds_session_open, on_session_open},
	{OP_mds_session_close, on_nothing},
	{OP_mds_ping, on_ping},
	{OP_mds_map_get, on_map},
	{OP_mds_getattr, on_getattr},
	{OP_mds_open, on_open},
	{OP_mds_close, on_close},
	{OP_mds_append, on_append},
	{OP_mds_reclaim, on_reclaim},
	{OP_mds_readdir, on_readdir},
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

void bed_set_chain(uint32_t n_members, uint32_t n_sync, uint32_t first, uint32_t second,
		   uint32_t third)
{
	bed.epoch++;
	bed.n_members = n_members;
	bed.n_sync = n_sync;
	bed.order[0] = first;
	bed.order[1] = second;
	bed.order[2] = third;
}

static void notify_fiber(void *arg)
{
	struct cb_map_changed_req req = {.epoch = bed.epoch};
	struct cb_map_changed_rep rep;
	struct rpc_call call = {.op = OP_cb_map_changed, .req = &req, .rep = &rep};

	(void)arg;
	(void)!rpc_callback(bed.peer, &call);
	rpc_call_fini(&call);
}

void bed_tell_client(void *arg)
{
	assert_int_equal(fiber_spawn("tell", notify_fiber, arg), 0);
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

/* The part of a batch with a bad result: the third. */
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

	(void)out;
	const struct oss_write_req *q = in;
	uint32_t k = f->n_writes++;

	f->last_write = r->hdr;
	f->last_off = q->off;
	if (k < ARRAY_SIZE(f->writes)) {
		f->writes[k].hdr = r->hdr;
		f->writes[k].off = q->off;
		f->writes[k].flags = q->flags;
	}
	if (k < f->n_plan) {
		bed.session += f->plan[k] == -LE_SESSION_GONE;
		return f->plan[k];
	}
	if (f->write_us > 0)
		(void)!fiber_sleep_us(f->write_us);
	return f->write_status;
}

static int on_stat(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in;
	((struct oss_stat_rep *)out)->size = bed.stored;
	return 0;
}

static const struct rpc_handler oss_handlers[] = {
	{OP_oss_read, on_read},
	{OP_oss_readv, on_readv},
	{OP_oss_write, on_write},
	{OP_oss_stat, on_stat},
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
	/* The losing request is cancelled and releases its slot. */
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

void bed_run(void (*test)(void))
{
	struct transport_sim_options calm = {.delay_us_max = 200};

	memset(&bed, 0, sizeof(bed));
	memset(&bed.key, 9, sizeof(bed.key));
	bed.session = SESSION;
	bed.test = test;
	bed_set_chain(N, N, 0, 1, 2);
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

struct inode_io *bed_open(void)
{
	struct inode *i = inode_get(bed.client, (struct ino){100});
	struct cap cap = {.ino = {100}, .rights = CAP_READ | CAP_WRITE, .session = SESSION};
	struct inode_io *d;

	assert_non_null(i);
	i->attr.layout =
		(struct layout){.table = 1, .width = 1, .chunk_size = CHUNK, .replicas = N};
	assert_int_equal(inode_data(bed.client, i, &d), 0);
	cap_set(d, &cap);
	d->n_read = d->n_write = 1;
	return d;
}

void bed_close(struct inode_io *d)
{
	d->n_read = d->n_write = 0;
	inode_put(bed.client, d->inode);
}
