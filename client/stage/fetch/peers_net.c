/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/fetch/peers_net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/leat_impl.h"
#include "client/ll.h"
#include "client/servers/mds_call.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/peer_proto.h"
#include "common/proto/wire.h"
#include "common/rpc/addr.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define CONNECT_MS 3000u

static struct swarm_rpc *net_of(void *arg)
{
	return CAST_OBJ(arg, struct swarm_rpc, SWARM_RPC_MAGIC);
}

static int connect_to(const struct swarm_rpc *net, struct swarm_peer *p, bool wait)
{
	struct rpc_client_options o = {.transport = net->fs->transport,
				       .addrs = p->addr,
				       .name = net->loader ? "loader" : "staging",
				       .role = net->loader ? ROLE_CLIENT : ROLE_AGENT,
				       .cluster = ll_cluster(net->fs->client),
				       .key = *net->key};
	struct rpc_client *rpc = p->conn;
	if (!rpc) {
		TRY(rpc_client_create(&o, &rpc));
		p->conn = rpc;
	}
	if (!wait)
		return rpc_client_connected(rpc) ? 0 : -LE_AGAIN;
	for (uint64_t end = loop_deadline_ms(CONNECT_MS); !rpc_client_connected(rpc);) {
		if (p->away || loop_now_us() >= end)
			return -LE_DISCONNECTED;
		TRY(fiber_sleep_us(10000));
	}
	return 0;
}

static int take(const struct peer_chunk_rep *rep, uint32_t len, struct swarm_answer *ret_answer)
{
	if (rep->ask.len >= sizeof(ret_answer->ask))
		return -LE_BAD_MESSAGE;
	ret_answer->len = len;
	snprintf(ret_answer->ask, sizeof(ret_answer->ask), "%.*s", (int)rep->ask.len,
		 rep->ask.len ? (const char *)rep->ask.data : "");
	return 0;
}

static int rpc_ask(void *arg, struct swarm_peer *p, const struct swarm_ask *q, struct slot *s,
		   struct swarm_answer *ret_answer)
{
	struct peer_chunk_req req = {.id = bytes_str(q->id),
				     .chunk = q->chunk,
				     .wait_ms = q->wait_ms,
				     .demand = q->demand,
				     .from = bytes_str(q->from),
				     .again = q->again,
				     .off = q->off,
				     .len = q->len};
	struct peer_chunk_rep rep = {0};
	struct slot_vec space = {s, 0, q->len ? q->len : MANIFEST_CHUNK};
	uint32_t ms = q->quick_ms ? q->quick_ms : q->wait_ms + 2000;
	struct rpc_call call = {.op = OP_peer_chunk,
				.req = &req,
				.rep = &rep,
				.flags = q->quick_ms ? RPC_CALL_NO_WAIT : 0,
				.bulk_in = &space,
				.n_bulk_in = 1};
	TRY(connect_to(net_of(arg), p, q->quick_ms == 0));
	call.deadline_us = loop_deadline_ms(ms);
	int rc = rpc_call(p->conn, &call);
	if (rc >= 0)
		rc = take(&rep, call.ret_bulk_len, ret_answer);
	rpc_call_fini(&call);
	return rc;
}

static void rpc_leave(void *arg, struct swarm_peer *p)
{
	struct swarm_rpc *net = net_of(arg);
	struct rpc_client *rpc = p->conn;
	p->conn = NULL;
	if (!rpc)
		return;
	rpc_client_totals(rpc, &net->ended);
	net->ended.tcp.connections = net->ended.verbs.connections = 0;
	rpc_client_destroy(rpc);
}

static int take_page(const struct mds_residency_get_rep *rep,
		     int (*each)(void *arg, const char *addr, size_t len, bool ready), void *arg)
{
	struct wire_r r;
	wire_r_init(&r, rep->rows.data, rep->rows.len);
	while (!wire_r_end(&r)) {
		struct residency_node n = {0};
		wire_get_residency_node(&r, &n);
		if (r.status < 0)
			break;
		TRY(each(arg, n.addrs.data, n.addrs.len,
			 n.state == LEAT_COPY_READY || n.state == LEAT_COPY_STALE));
	}
	return r.status;
}

static int rpc_look(void *arg, const char *id,
		    int (*each)(void *arg, const char *addr, size_t len, bool ready),
		    void *each_arg)
{
	struct swarm_rpc *net = net_of(arg);
	struct mds_residency_get_req req = {.what = bytes_str(id)};
	int rc;
	do {
		struct mds_residency_get_rep rep;
		struct rpc_call call;
		rc = mds_call(net->fs->client, OP_mds_residency_get, &req, &rep, &call);
		uint32_t next = rc == 0 ? rep.next : 0;
		if (rc == 0)
			rc = take_page(&rep, each, each_arg);
		rpc_call_fini(&call);
		req.from = next;
	} while (rc == 0 && req.from != 0);
	return rc;
}

/* Is the host of "host:port" this machine? */
static bool is_here(const char *addr)
{
	char host[PEER_ADDR_SIZE], own[PEER_ADDR_SIZE] = "";
	const char *rest;
	struct ifaddrs *all = NULL;
	addr_split(addr, &rest);
	snprintf(host, sizeof(host), "%s", rest + (rest[0] == '['));
	char *port = strrchr(host, ':');
	if (!port)
		return false;
	*(port > host && port[-1] == ']' ? port - 1 : port) = 0;
	bool here = gethostname(own, sizeof(own) - 1) == 0 && strcmp(own, host) == 0;
	if (here || getifaddrs(&all) < 0)
		return here;
	for (const struct ifaddrs *i = all; i && !here; i = i->ifa_next) {
		int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
		const void *bytes =
			family == AF_INET6
				? (const void *)&((const struct sockaddr_in6 *)i->ifa_addr)
					  ->sin6_addr
				: &((const struct sockaddr_in *)i->ifa_addr)->sin_addr;
		here = (family == AF_INET || family == AF_INET6) &&
		       inet_ntop(family, bytes, own, sizeof(own)) && strcmp(own, host) == 0;
	}
	freeifaddrs(all);
	return here;
}

static int rpc_damaged(void *arg, struct swarm_peer *p, const char *id, uint64_t chunk)
{
	struct peer_damaged_req req = {.id = bytes_str(id), .chunk = chunk};
	struct peer_damaged_rep rep;
	struct rpc_call call = {.op = OP_peer_damaged, .req = &req, .rep = &rep};
	if (!is_here(p->addr))
		return -LE_NOENT;
	TRY(connect_to(net_of(arg), p, true));
	call.deadline_us = loop_deadline_ms(CONNECT_MS);
	int rc = rpc_call(p->conn, &call);
	rpc_call_fini(&call);
	return rc;
}

const struct swarm_net_ops swarm_net_rpc = {rpc_ask, rpc_leave, rpc_look, rpc_damaged};
