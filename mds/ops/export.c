/*
 * Exports at work: each request is looked at before it is executed, and the table is changed by
 * `leat export`.
 *
 * The rule is that of the address that the connection comes from, looked up for each request, so a
 * new table counts from the next one on. What was granted before is taken back: a session whose
 * network has got less rights ends, and with it its leases and its capabilities at the object
 * servers; its client opens a new one, in which it gets what it still may.
 *
 * Operations that are not in the table below are refused where they could change something: a new
 * one has to be put there.
 */
#include "mds/ops/export.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/rpc/addr.h"
#include "mds/recall.h"
#include "mds/targets.h"

enum {
	HAS_CRED = 1, /* the request begins with it */
	CHANGES = 2,
	ADMIN = 4, /* of the cluster, or a server's word: not from networks of less rights */
	HARMLESS = 8
};

#define WITH_CRED(op, more)                                                                        \
	{                                                                                          \
		OP_##op, HAS_CRED | (more)                                                         \
	}
static const struct {
	uint16_t op;
	uint16_t what;
} kinds[] = {
	WITH_CRED(mds_lookup, 0),
	WITH_CRED(mds_getattr, 0),
	WITH_CRED(mds_setattr, CHANGES),
	WITH_CRED(mds_create, CHANGES),
	WITH_CRED(mds_mknod, CHANGES),
	WITH_CRED(mds_mkdir, CHANGES),
	WITH_CRED(mds_symlink, CHANGES),
	WITH_CRED(mds_readlink, 0),
	WITH_CRED(mds_link, CHANGES),
	WITH_CRED(mds_unlink, CHANGES),
	WITH_CRED(mds_rmdir, CHANGES),
	WITH_CRED(mds_rename, CHANGES),
	WITH_CRED(mds_readdir, 0),
	WITH_CRED(mds_open, 0),
	WITH_CRED(mds_fallocate, CHANGES),
	WITH_CRED(mds_getxattr, 0),
	WITH_CRED(mds_setxattr, CHANGES),
	WITH_CRED(mds_listxattr, 0),
	WITH_CRED(mds_removexattr, CHANGES),
	WITH_CRED(mds_layout_set, CHANGES),
	WITH_CRED(mds_access, 0),
	WITH_CRED(mds_tmpfile, CHANGES),
	WITH_CRED(mds_copy, CHANGES),
	WITH_CRED(mds_quota_set, CHANGES),
	{OP_mds_append, CHANGES},
	{OP_mds_space, CHANGES},
	{OP_mds_target_admin, ADMIN},
	{OP_mds_fsck_page, ADMIN},
	{OP_mds_fsck_repair, ADMIN},
	{OP_mds_export_set, ADMIN},
	{OP_mds_session_list, ADMIN},
	{OP_mds_target_register, ADMIN},
	{OP_mds_target_heartbeat, ADMIN},
	{OP_mds_chain_synced, ADMIN},
	{OP_mds_target_bad, ADMIN},
	{OP_mds_residency_set, ADMIN},
	{OP_mds_close, HARMLESS},
	{OP_mds_lock, HARMLESS},
};

#define CRED_FIRST(op) _Static_assert(offsetof(struct op##_req, cred) == 0, #op)
CRED_FIRST(mds_lookup);
CRED_FIRST(mds_getattr);
CRED_FIRST(mds_setattr);
CRED_FIRST(mds_create);
CRED_FIRST(mds_mknod);
CRED_FIRST(mds_mkdir);
CRED_FIRST(mds_symlink);
CRED_FIRST(mds_readlink);
CRED_FIRST(mds_link);
CRED_FIRST(mds_unlink);
CRED_FIRST(mds_rmdir);
CRED_FIRST(mds_rename);
CRED_FIRST(mds_readdir);
CRED_FIRST(mds_open);
CRED_FIRST(mds_fallocate);
CRED_FIRST(mds_getxattr);
CRED_FIRST(mds_setxattr);
CRED_FIRST(mds_listxattr);
CRED_FIRST(mds_removexattr);
CRED_FIRST(mds_layout_set);
CRED_FIRST(mds_access);
CRED_FIRST(mds_tmpfile);
CRED_FIRST(mds_copy);
CRED_FIRST(mds_quota_set);

static uint32_t kind_of(const struct op_desc *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].op == d->op)
			return kinds[i].what;
	return d->kind == OP_TXN || d->kind == OP_FLOW ? CHANGES | ADMIN : HARMLESS;
}

/* ---- credentials ---- */

/* root's group is taken away too, as if it had never been there. */
static int without_group_0(struct cred *c)
{
	uint8_t *p = (uint8_t *)(uintptr_t)c->groups.data; /* of the request, as the cred is */
	uint32_t n = 0;

	if (c->groups.len % 4 != 0)
		return -LE_INVAL;
	for (uint32_t i = 0; i < c->groups.len; i += 4) {
		if ((p[i] | p[i + 1] | p[i + 2] | p[i + 3]) == 0)
			continue;
		memmove(p + n, p + i, 4);
		n += 4;
	}
	c->groups.len = n;
	return 0;
}

/* What the client's kernel has checked counts for nobody: root there gives itself, and others, the
 * capabilities that it likes. */
static int squash(const struct export_row *row, struct cred *c)
{
	if ((row->flags & (EXPORT_SQUASH_ALL | EXPORT_SQUASH_ROOT)) != 0)
		c->flags = 0;
	if ((row->flags & EXPORT_SQUASH_ALL) != 0 ||
	    ((row->flags & EXPORT_SQUASH_ROOT) != 0 && c->uid == 0)) {
		c->uid = row->anon_uid;
		c->gid = row->anon_gid;
		c->groups = bytes_of(NULL, 0);
		return 0;
	}
	if ((row->flags & EXPORT_SQUASH_ROOT) == 0)
		return 0;
	if (c->gid == 0)
		c->gid = row->anon_gid;
	return without_group_0(c);
}

/* ---- what must not be done ---- */

/* Some requests change something only by what is in them. */
static int read_only(uint16_t what, void *in)
{
	if (what == OP_mds_open) {
		const struct mds_open_req *q = in;

		return open_flags_write(q->flags) || (q->flags & O_TRUNC) != 0 ? -LE_ROFS : 0;
	}
	if (what == OP_mds_access)
		return (((const struct mds_access_req *)in)->mask & PERM_W) != 0 ? -LE_ROFS : 0;
	if (what == OP_mds_close)
		((struct mds_close_req *)in)->flags &= ~(uint32_t)CLOSE_ATIME;
	return 0;
}

static struct export_row rule_of(const struct op *op)
{
	if (op->r == NULL)
		return (struct export_row){0};
	return exports_rule(&op->m->exports, op->r->peer->addr);
}

bool export_read_only(const struct op *op)
{
	return (rule_of(op).flags & EXPORT_READ_ONLY) != 0;
}

bool export_squashes(const struct op *op)
{
	return (rule_of(op).flags & (EXPORT_SQUASH_ROOT | EXPORT_SQUASH_ALL)) != 0;
}

int export_gate(struct op *op, const struct op_desc *d, void *in)
{
	struct export_row row;
	uint32_t kind;

	if (op->m->exports.n == 0 || op->r == NULL)
		return 0;
	row = rule_of(op);
	if (row.flags == 0)
		return 0;
	kind = kind_of(d);
	/* Servers are in networks of all rights (change sees to that): who says that he is one here
	 * is none. */
	if ((kind & ADMIN) != 0 || op->r->peer->role == ROLE_OSSD ||
	    op->r->peer->role == ROLE_MDS)
		return -LE_PERM;
	if ((row.flags & EXPORT_READ_ONLY) != 0) {
		if ((kind & CHANGES) != 0)
			return -LE_ROFS;
		TRY(read_only(d->op, in));
	}
	return (kind & HAS_CRED) != 0 ? squash(&row, in) : 0;
}

/* ---- sessions ---- */

bool export_may_lease(const struct op *op, const struct attr *a)
{
	uint32_t need = S_ISDIR(a->mode) ? PERM_R | PERM_X : S_ISREG(a->mode) ? PERM_R : 0;

	return op->m->exports.n == 0 || (a->mode & need) == need ||
	       !export_squashes(op);
}

static bool has_writers(const struct session *se)
{
	list_for_each (n, &se->opens)
		if (list_entry(n, struct open, by_session)->n_write > 0)
			return true;
	return false;
}

bool export_must_end(const struct op *op, const struct session *se)
{
	return has_writers(se) && export_read_only(op);
}

int export_end(struct mds *m, struct session *se)
{
	int rc;

	log_warn("session %llu of %s ends: its network's rights have changed",
		 (unsigned long long)se->id, se->name);
	session_ref(se);
	rc = session_end(m, se);
	session_unref(se);
	return rc < 0 ? rc : -LE_SESSION_GONE;
}

/* Rights are gone, or are somebody else's now. */
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
	struct export_row own = rule_of(op), row;
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

/* The next one that must not go on with what it was given under the old table. One that is not
 * connected just now is judged by where it was last; after a restart nobody has leases. */
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

/* limit: sessions from this number on were made under the new table. */
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

/* Where it was heard from last, and where it says that it is. */
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

/* Whoever takes the right to undo it from himself would need another way back, and an object server
 * could not say any more that it lives. */
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

/* tables: room for two. */
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

/* The row counts here; object servers may not have heard of it. */
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
	/* Without rows nobody has had a right taken away. */
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
