/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of exports, as `leat export` reads and changes it.
 *
 * A new table applies from the next request on (access/exports_policy.h). Rights given before are
 * withdrawn: a session in a network that now has fewer rights is ended, with its leases and its
 * capabilities at the object servers. Its client opens a new session, which gets only the present
 * rights.
 */
#include "mds/ops/export.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rpc/addr.h"
#include "mds/access/exports_policy.h"
#include "mds/cluster/registration.h"
#include "mds/ops/ops.h"
#include "mds/session/session_end.h"

int export_end(struct mds *m, struct session *se)
{
	int rc;

	log_warn("evicting session %llu of %s: the exports give its network fewer rights now",
		 (unsigned long long)se->id, se->name);
	session_ref(se);
	rc = session_end(m, se);
	session_unref(se);
	return rc < 0 ? rc : -LE_SESSION_GONE;
}

/* True if rights were removed, or now belong to another user. */
static bool is_stricter(const struct export_row *row, const struct export_row *old)
{
	uint32_t squash = row->flags & (EXPORT_SQUASH_ROOT | EXPORT_SQUASH_ALL);

	return (row->flags & ~old->flags) != 0 ||
	       (squash != 0 && (row->anon_uid != old->anon_uid || row->anon_gid != old->anon_gid));
}

int mds_peer_rights(struct op *op, const void *vin, void *vout)
{
	const struct mds_peer_rights_req *in = vin;
	struct mds_peer_rights_rep *out = vout;
	struct export_row own = export_rule_of(op), row;
	char addr[96];

	if (in->addr.len >= sizeof(addr))
		return -LE_INVAL;
	if (in->addr.len > 0)
		memcpy(addr, in->addr.data, in->addr.len);
	addr[in->addr.len] = '\0';
	row = exports_rule(&op->m->exports, addr);
	if ((row.flags & ~own.flags & EXPORT_READ_ONLY) != 0)
		out->less |= PEER_WRITES_LESS;
	row.flags &= ~(uint32_t)EXPORT_READ_ONLY;
	if (is_stricter(&row, &own))
		out->less |= PEER_READS_LESS;
	return 0;
}

/* The next session that must end because its rights under the old table were larger. A session
 * without a connection is checked by its last address; after a restart no session has leases. */
static struct session *next_restricted(struct mds *m, const struct exports *old, uint64_t limit)
{
	list_for_each (n, &m->sessions.all) {
		struct session *se = list_entry(n, struct session, link);
		struct export_row row, before;

		if (se->ended || se->id >= limit || se->addr[0] == 0)
			continue;
		row = exports_rule(&m->exports, se->addr);
		before = exports_rule(old, se->addr);
		if (is_stricter(&row, &before))
			return se;
	}
	return NULL;
}

/* limit: sessions from this id on were created under the new table. */
static int end_restricted(struct mds *m, const struct exports *old, uint64_t limit)
{
	struct session *se;
	int rc = -LE_SESSION_GONE;

	while (rc == -LE_SESSION_GONE && (se = next_restricted(m, old, limit)) != NULL)
		rc = export_end(m, se);
	return rc == -LE_SESSION_GONE ? 0 : rc;
}

/* ---- the table ---- */

static bool restricts(const struct exports *next, const char *addr)
{
	struct net_address a;

	return net_address_of_peer(addr, &a) == 0 && exports_rule(next, addr).flags != 0;
}

/* Checks the address of the target's last connection and those that it reports. */
static bool restricts_target(const struct exports *next, const struct target *t)
{
	char list[1024], *save = NULL;

	if ((t->info.flags & TARGET_REMOVED) != 0)
		return false;
	if (restricts(next, t->from))
		return true;
	snprintf(list, sizeof(list), "%s", t->addrs);
	for (char *w = strtok_r(list, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
		const char *rest;

		addr_split(w, &rest);
		if (restricts(next, rest))
			return true;
	}
	return false;
}

/* Refuses a table that would take from this administrator the right to undo it, or from an object
 * server the right to send heartbeats (*ret_target: that target). */
static int shuts_out(const struct op *op, const struct exports *next, uint32_t *ret_target)
{
	const struct cluster *c = &op->m->cluster;

	if (op->r != NULL && exports_rule(next, op->r->peer->addr).flags != 0)
		return -LE_BUSY;
	for (uint32_t i = 0; i < c->n_targets && *ret_target == 0; i++)
		if (restricts_target(next, c->targets[i]))
			*ret_target = c->targets[i]->info.id;
	return 0;
}

static void copy_table(struct exports *to, const struct exports *from)
{
	memcpy(to->rows, from->rows, sizeof(to->rows));
	to->n = from->n;
}

/* tables: two of them, as scratch memory. */
static int change(struct op *op, const struct mds_export_set_req *in, struct exports *tables,
		  struct mds_export_set_rep *out)
{
	struct exports *e = &op->m->exports, *next = &tables[0], *old = &tables[1];
	struct network net = export_network(&in->row);

	copy_table(old, e);
	copy_table(next, e);
	if (in->what == EXPORT_ADD)
		TRY(exports_put(next, &in->row));
	else if (in->what == EXPORT_REMOVE)
		TRY(exports_remove(next, &net));
	else
		return -LE_INVAL;
	TRY(shuts_out(op, next, &out->target));
	if (out->target != 0)
		return 0;
	TRY(exports_store(next, op->store));
	copy_table(e, next);
	return end_restricted(op->m, old, op->store->counters.next_session);
}

/* Lists the targets that may not have received the change, which is effective here. */
static int name_unheard(struct op *op, struct bytes *ret_ids)
{
	struct cluster *c = &op->m->cluster;
	const uint32_t max = c->params->targets_max;
	uint32_t *ids = op_alloc(op, 2ull * max * sizeof(*ids)), n;
	struct wire_w w;

	if (ids == NULL)
		return -LE_NOMEM;
	TRY(targets_await_reads(c, op->m->sessions.gen, ids, &n));
	wire_w_init(&w, ids + max, max * sizeof(*ids));
	for (uint32_t i = 0; i < n; i++)
		wire_put_u32(&w, &ids[i]);
	*ret_ids = bytes_of(ids + max, (uint32_t)w.len);
	return 0;
}

int mds_export_set(struct op *op, const void *vin, void *vout)
{
	const struct mds_export_set_req *in = vin;
	struct mds_export_set_rep *out = vout;
	struct exports *tables;
	int rc;

	if (op->r != NULL && op->r->peer->role != ROLE_TOOL)
		return -LE_PERM;
	tables = calloc(2, sizeof(*tables));
	if (tables == NULL)
		return -LE_NOMEM;
	fmutex_lock(&op->m->exports.lock);
	rc = change(op, in, tables, out);
	fmutex_unlock(&op->m->exports.lock);
	free(tables);
	TRY(rc);
	out->n = op->m->exports.n;
	/* Without rows, no session has lost a right. */
	return out->n > 0 && out->target == 0 ? name_unheard(op, &out->unheard) : 0;
}

int mds_export_get(struct op *op, const void *vin, void *vout)
{
	struct mds_export_get_rep *out = vout;
	uint8_t *buf = op_alloc(op, EXPORTS_BYTES);

	(void)vin;
	if (buf == NULL)
		return -LE_NOMEM;
	out->rows = exports_encode(&op->m->exports, buf);
	return 0;
}
