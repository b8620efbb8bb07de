/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which peers an agent serves. The agent acts with the rights of its node, so a peer could read
 * through it what the metadata server would refuse to the peer. The metadata server returns, by
 * the peer's address, which rights its network lacks (mds_peer_rights). The answer is cached for
 * FRESH_US, and for KNOWN_US while the metadata server does not answer.
 */
#include "client/stage/agent/agent_rights.h"

#include "client/leat_impl.h"
#include "client/servers/mds_call.h"
#include "client/stage/agent/agent.h"
#include "common/base/log.h"
#include "common/proto/mds_proto.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define FRESH_US     3000000u
#define KNOWN_US     600000000u
#define ASK_US       3000000u
#define LOG_AGAIN_US 30000000u

/* A peer on this machine could do by itself what the agent does. */
static bool is_here(struct net_address who)
{
	return (who.hi == 0 && who.lo == 1) || (who.hi == 0 && who.lo == 0xffff7f000001ULL);
}

/* Returns the entry of the address, or else the oldest entry. */
static struct agent_right *find(struct agent *a, struct net_address who)
{
	struct agent_right *oldest = &a->rights[0];
	for (uint32_t i = 0; i < AGENT_RIGHTS; i++) {
		struct agent_right *r = &a->rights[i];
		if (r->known_us && r->who.hi == who.hi && r->who.lo == who.lo)
			return r;
		if (r->known_us < oldest->known_us)
			oldest = r;
	}
	return oldest;
}

static int ask(struct agent *a, const char *addr, uint32_t *ret_less)
{
	struct mds_peer_rights_req req = {.addr = bytes_str(addr)};
	struct mds_peer_rights_rep rep = {0};
	struct rpc_call call;
	uint64_t deadline = fiber_deadline(), until = loop_now_us() + ASK_US;
	fiber_set_deadline(until < deadline ? until : deadline);
	int rc = mds_call(a->fs->client, OP_mds_peer_rights, &req, &rep, &call);
	fiber_set_deadline(deadline);
	*ret_less = rep.less;
	rpc_call_fini(&call);
	return rc;
}

/* Not -LE_PERM: the right is unknown, and the peer may repeat its request. */
static int unanswered(struct agent *a, const char *addr, int rc)
{
	if (a->unanswered_us == 0 || loop_now_us() > a->unanswered_us + LOG_AGAIN_US)
		log_warn("a request of %s has to wait: the metadata server does not say which "
			 "rights that address has: %s",
			 addr, status_text(rc));
	a->unanswered_us = loop_now_us();
	return -LE_AGAIN;
}

int agent_admit(struct agent *a, const struct rpc_peer *p, uint32_t need)
{
	struct net_address who = {0, 0};
	uint32_t less = 0;
	/* An address that cannot be parsed is left to the metadata server. */
	if (net_address_of_peer(p->addr, &who) == 0 && is_here(who))
		return 0;
	struct agent_right *r = find(a, who);
	bool same = r->known_us && r->who.hi == who.hi && r->who.lo == who.lo;
	if (!same || loop_now_us() > r->known_us + FRESH_US) {
		int rc = ask(a, p->addr, &less);
		/* ask() has yielded, and another fiber may have used the entry. */
		r = find(a, who);
		same = r->known_us && r->who.hi == who.hi && r->who.lo == who.lo;
		if (rc == 0)
			*r = (struct agent_right){who, loop_now_us(), less};
		else if (!same || loop_now_us() > r->known_us + KNOWN_US)
			return unanswered(a, p->addr, rc);
	}
	return (r->less & need) != 0 ? -LE_PERM : 0;
}
