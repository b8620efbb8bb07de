/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each request is checked before it is executed, by the rule of the address that its connection
 * comes from. A new table counts from the next request on.
 *
 * A mutation that is not in the table below is refused to restricted networks: add each new
 * operation there.
 */
#include "mds/access/exports_policy.h"

#include <fcntl.h>

#include "mds/mds.h"

enum {
	HAS_CRED = 1, /* the request begins with it */
	CHANGES = 2,
	ADMIN = 4, /* administration, or for servers: refused to restricted networks */
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
	WITH_CRED(mds_quota_list, 0),
	{OP_mds_append, CHANGES},
	{OP_mds_space, CHANGES},
	{OP_mds_target_admin, ADMIN},
	{OP_mds_target_lose, ADMIN},
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
CRED_FIRST(mds_quota_list);

static uint32_t kind_of(const struct op_desc *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].op == d->op)
			return kinds[i].what;
	return d->kind == OP_TXN || d->kind == OP_FLOW ? CHANGES | ADMIN : HARMLESS;
}

/* ---- credentials ---- */

/* Removes root's group from the supplementary groups. */
static int without_group_0(struct cred *c)
{
	uint8_t *p = (uint8_t *)(uintptr_t)c->groups.data; /* memory of the request, like c */
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

/* Clears CRED_CHECKED for all users: root on a client can give any process any capability, so
 * the checks of that client's kernel prove nothing. */
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

/* ---- refusals ---- */

/* For operations that change something or not, depending on the contents of the request. */
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

struct export_row export_rule_of(const struct op *op)
{
	if (op->r == NULL)
		return (struct export_row){0};
	return exports_rule(&op->m->exports, op->r->peer->addr);
}

bool export_read_only(const struct op *op)
{
	return (export_rule_of(op).flags & EXPORT_READ_ONLY) != 0;
}

bool export_squashes(const struct op *op)
{
	return (export_rule_of(op).flags & (EXPORT_SQUASH_ROOT | EXPORT_SQUASH_ALL)) != 0;
}

int export_gate(struct op *op, const struct op_desc *d, void *in)
{
	struct export_row row;
	uint32_t kind;

	if (op->m->exports.n == 0 || op->r == NULL)
		return 0;
	row = export_rule_of(op);
	if (row.flags == 0)
		return 0;
	kind = kind_of(d);
	/* Servers are in unrestricted networks (ops/export.c refuses other rows), so a peer of
	 * this network that claims to be a server is not one. */
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

/* ---- leases and sessions ---- */

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
