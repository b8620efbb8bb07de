/* The cluster map: for clients, and from targets. */
#include "mds/op.h"

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

int mds_target_register(struct op *op, const void *vin, void *vout)
{
	TRY(check_role(op));
	return cluster_register(&op->m->cluster, vin, vout);
}

int mds_target_heartbeat(struct op *op, const void *vin, void *vout)
{
	struct mds_target_heartbeat_rep *out = vout;

	TRY(check_role(op));
	TRY(cluster_heartbeat(&op->m->cluster, vin, vout));
	out->sessions_gen = op->m->sessions.gen;
	return 0;
}
