/*
 * Whom an agent serves. It acts with its own node's rights, so whoever asks it could see through
 * it what the metadata server would not show him. The metadata server says, by the asker's address,
 * what his network may do less than this node's (mds_peer_rights); that is known for a few seconds,
 * and for longer only while nobody can be asked.
 */
#include "client/retry.h"
#include "client/leat_impl.h"
#include "client/stage/agent.h"
#include "common/rt/loop.h"

#define FRESH_US 3000000u
#define KNOWN_US 600000000u
#define ASK_US   3000000u

/* Who asks from there is on this machine, and could do himself what the agent does. */
static bool is_here(struct net_address who)
{
	return (who.hi == 0 && who.lo == 1) || (who.hi == 0 && who.lo == 0xffff7f000001ULL);
}

/* Its place in the table, or that of the one that was asked about longest ago. */
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

int agent_admit(struct agent *a, const struct rpc_peer *p, uint32_t need)
{
	struct net_address who = {0, 0};
	uint32_t less = 0;
	/* Whose address is not understood is judged as the metadata server judges such. */
	if (net_address_of_peer(p->addr, &who) == 0 && is_here(who))
		return 0;
	struct agent_right *r = find(a, who);
	bool same = r->known_us && r->who.hi == who.hi && r->who.lo == who.lo;
	if (!same || loop_now_us() > r->known_us + FRESH_US) {
		int rc = ask(a, p->addr, &less);
		/* Others may have used its place meanwhile. */
		r = find(a, who);
		same = r->known_us && r->who.hi == who.hi && r->who.lo == who.lo;
		if (rc == 0)
			*r = (struct agent_right){who, loop_now_us(), less};
		else if (!same || loop_now_us() > r->known_us + KNOWN_US)
			return -LE_PERM;
	}
	return (r->less & need) != 0 ? -LE_PERM : 0;
}
