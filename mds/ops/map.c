/* The cluster map: for clients, and from targets. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "mds/membership.h"
#include "mds/op.h"
#include "mds/replace.h"
#include "mds/targets.h"

int mds_map_get(struct op *op, const void *vin, void *vout)
{
	const struct mds_map_get_req *in = vin;
	struct mds_map_get_rep *out = vout;
	struct cluster *c = &op->m->cluster;
	void *buf;

	out->epoch = c->epoch;
	out->cluster = op->store->cluster.cluster;
	if (in->have_epoch == c->epoch && c->epoch != 0)
		return 0;
	buf = op_alloc(op, MAP_PAGE_BYTES);
	if (buf == NULL)
		return -LE_NOMEM;
	return cluster_map_encode(c, in->from, buf, out);
}

static int check_role(struct op *op)
{
	return op->r == NULL || op->r->peer->role == ROLE_OSSD ? 0 : -LE_PERM;
}

/* The connection on which the target is heard: its end is news (detect.h). */
static void heard_on(struct op *op, uint32_t target)
{
	struct target *t = cluster_target(&op->m->cluster, target);

	if (t == NULL || op->r == NULL || op->r->peer->gone)
		return;
	if (t->peer != op->r->peer->id)
		snprintf(t->from, sizeof(t->from), "%s", op->r->peer->addr);
	t->peer = op->r->peer->id;
	t->ended = false;
}

/* All chains of a target for the reply. */
static int tell_chains(struct op *op, uint32_t target, struct bytes *ret_chains,
		       struct bytes *ret_targets)
{
	struct cluster *c = &op->m->cluster;
	struct bytes chains, targets;
	uint8_t *buf;

	TRY(cluster_chains_of(c, cluster_target(c, target), &chains, &targets));
	buf = op_alloc(op, chains.len + targets.len + 1);
	if (buf != NULL) {
		memcpy(buf, chains.data, chains.len + targets.len);
		*ret_chains = bytes_of(buf, chains.len);
		*ret_targets = bytes_of(buf + chains.len, targets.len);
	}
	free((void *)(uintptr_t)chains.data);
	return buf != NULL ? 0 : -LE_NOMEM;
}

/* Where networks differ, sessions may end because their rights were taken away: what object servers
 * do not hear of does not go on there. */
static uint32_t read_ms(const struct op *op)
{
	return op->m->exports.n > 0 ? op->m->params.lease_ms : 0;
}

int mds_target_register(struct op *op, const void *vin, void *vout)
{
	struct mds_target_register_rep *out = vout;

	TRY(check_role(op));
	TRY(target_register(&op->m->cluster, vin, vout));
	heard_on(op, out->target);
	out->read_ms = read_ms(op);
	target_goes_by(&op->m->cluster, out->target, 0, out->read_ms);
	return tell_chains(op, out->target, &out->chains, &out->targets);
}

int mds_target_heartbeat(struct op *op, const void *vin, void *vout)
{
	const struct mds_target_heartbeat_req *in = vin;
	struct mds_target_heartbeat_rep *out = vout;

	TRY(check_role(op));
	TRY(target_heartbeat(&op->m->cluster, vin, vout));
	heard_on(op, in->target);
	out->sessions_gen = op->m->sessions.gen;
	out->read_ms = read_ms(op);
	target_goes_by(&op->m->cluster, in->target, in->read_ms, out->read_ms);
	if (in->chains_epoch == out->chains_epoch)
		return 0;
	if (!membership_may_tell(&op->m->cluster))
		return -LE_NOT_READY;
	return tell_chains(op, in->target, &out->chains, &out->targets);
}

int mds_chain_synced(struct op *op, const void *vin, void *vout)
{
	TRY(check_role(op));
	return membership_synced(&op->m->cluster, vin, vout);
}

int mds_target_bad(struct op *op, const void *vin, void *vout)
{
	const struct mds_target_bad_req *in = vin;
	struct target *t = cluster_target(&op->m->cluster, in->target);

	(void)vout;
	TRY(check_role(op));
	if (t == NULL || !uuid_equal(&t->info.uuid, &in->uuid) || t->incarnation != in->incarnation)
		return -LE_NO_TARGET;
	log_error("target %u does not trust its store", in->target);
	return membership_bad(&op->m->cluster, t);
}

int mds_target_admin(struct op *op, const void *vin, void *vout)
{
	/* Whoever has the cluster key and no session acts for the administrator. */
	if (op->r != NULL && op->r->peer->role != ROLE_TOOL)
		return -LE_PERM;
	return target_admin(&op->m->cluster, vin, vout);
}
