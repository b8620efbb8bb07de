/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster map for clients, and requests of targets about themselves. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "mds/cluster/cluster_map.h"
#include "mds/cluster/membership.h"
#include "mds/cluster/rebalance.h"
#include "mds/cluster/registration.h"
#include "mds/cluster/target_admin.h"
#include "mds/file/give_up.h"
#include "mds/ops/ops.h"

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

/* Notes the connection of the target's last request; the failure detector is notified when it ends
 * (cluster/failure_detector.h). */
static void contact_on(struct op *op, uint32_t target)
{
	struct target *t = cluster_target(&op->m->cluster, target);

	if (t == NULL || op->r == NULL || op->r->peer->gone)
		return;
	if (t->peer != op->r->peer->id)
		snprintf(t->from, sizeof(t->from), "%s", op->r->peer->addr);
	t->peer = op->r->peer->id;
	t->ended = false;
}

/* Puts all chains of the target into the reply. */
static int send_chains(struct op *op, uint32_t target, struct bytes *ret_chains,
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

/* Where networks have different rights, sessions may end because they lost rights: object servers
 * that do not receive this must then refuse their reads after lease_ms of silence. */
static uint32_t read_ms(const struct op *op)
{
	return op->m->exports.n > 0 ? op->m->params.lease_ms : 0;
}

int mds_target_register(struct op *op, const void *vin, void *vout)
{
	struct mds_target_register_rep *out = vout;

	TRY(check_role(op));
	TRY(target_register(&op->m->cluster, vin, vout));
	contact_on(op, out->target);
	out->read_ms = read_ms(op);
	target_goes_by(&op->m->cluster, out->target, 0, out->read_ms);
	TRY(send_chains(op, out->target, &out->chains, &out->targets));
	out->now_ns = env_wall_ns(op->m->env);
	return 0;
}

int mds_target_heartbeat(struct op *op, const void *vin, void *vout)
{
	const struct mds_target_heartbeat_req *in = vin;
	struct mds_target_heartbeat_rep *out = vout;

	TRY(check_role(op));
	TRY(target_heartbeat(&op->m->cluster, vin, vout));
	contact_on(op, in->target);
	out->sessions_gen = op->m->sessions.gen;
	out->read_ms = read_ms(op);
	target_goes_by(&op->m->cluster, in->target, in->read_ms, out->read_ms);
	out->now_ns = env_wall_ns(op->m->env);
	if (in->chains_epoch == out->chains_epoch)
		return 0;
	if (!membership_may_notify(&op->m->cluster))
		return -LE_NOT_READY;
	return send_chains(op, in->target, &out->chains, &out->targets);
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
	log_error("target %u reports that its store cannot be trusted: it leaves all chains that "
		  "have another complete member",
		  in->target);
	return membership_bad(&op->m->cluster, t);
}

int mds_target_admin(struct op *op, const void *vin, void *vout)
{
	/* A client that has the cluster key and no session acts for the administrator. */
	if (op->r != NULL && op->r->peer->role != ROLE_TOOL)
		return -LE_PERM;
	return target_admin(&op->m->cluster, vin, vout);
}

#define LOST_BYTES (64u << 10)

int mds_target_lose(struct op *op, const void *vin, void *vout)
{
	void *buf;

	if (op->r != NULL && op->r->peer->role != ROLE_TOOL)
		return -LE_PERM;
	buf = op_alloc(op, LOST_BYTES);
	if (buf == NULL)
		return -LE_NOMEM;
	return give_up_asked(op->m, vin, bytes_of(buf, LOST_BYTES), vout);
}
