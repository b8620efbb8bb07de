/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes a request from rpc to its operation: session, exports, replay rows, execution, leases.
 */
#include "mds/dispatch.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/rt/loop.h"
#include "mds/access/exports_policy.h"
#include "mds/file/space_reclaim.h"
#include "mds/file/truncate.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/open.h"
#include "mds/ops/ops.h"
#include "mds/ops/reach.h"

static const struct op_desc op_table[] = {
	{OP_mds_session_open, OP_CTRL, mds_session_open},
	{OP_mds_session_close, OP_CTRL, mds_session_close},
	{OP_mds_session_list, OP_CTRL, mds_session_list},
	{OP_mds_ping, OP_CTRL, mds_ping},
	{OP_mds_lease_return, OP_CTRL, mds_lease_return},
	{OP_mds_reclaim, OP_CTRL, mds_reclaim},
	{OP_mds_map_get, OP_CTRL, mds_map_get},
	{OP_mds_target_register, OP_CTRL, mds_target_register},
	{OP_mds_target_heartbeat, OP_CTRL, mds_target_heartbeat},
	{OP_mds_status, OP_CTRL, mds_status},
	{OP_mds_chain_synced, OP_CTRL, mds_chain_synced},
	{OP_mds_target_bad, OP_CTRL, mds_target_bad},
	{OP_mds_target_admin, OP_CTRL, mds_target_admin},
	{OP_mds_target_lose, OP_CTRL, mds_target_lose},
	{OP_mds_fsck_page, OP_CTRL, mds_fsck_page},
	{OP_mds_fsck_repair, OP_CTRL, mds_fsck_repair},
	{OP_mds_residency_set, OP_CTRL, mds_residency_set},
	{OP_mds_residency_get, OP_CTRL, mds_residency_get},
	{OP_mds_lookup, OP_READ, mds_lookup},
	{OP_mds_getattr, OP_READ, mds_getattr},
	{OP_mds_setattr, OP_FLOW, mds_setattr},
	{OP_mds_create, OP_FLOW, mds_create},
	{OP_mds_mknod, OP_TXN, mds_mknod},
	{OP_mds_mkdir, OP_TXN, mds_mkdir},
	{OP_mds_symlink, OP_TXN, mds_symlink},
	{OP_mds_readlink, OP_READ, mds_readlink},
	{OP_mds_link, OP_TXN, mds_link},
	{OP_mds_unlink, OP_TXN, mds_unlink},
	{OP_mds_rmdir, OP_TXN, mds_rmdir},
	{OP_mds_rename, OP_TXN, mds_rename},
	{OP_mds_readdir, OP_READ, mds_readdir},
	{OP_mds_open, OP_FLOW, mds_open},
	{OP_mds_tmpfile, OP_FLOW, mds_tmpfile},
	{OP_mds_copy, OP_FLOW, mds_copy},
	{OP_mds_close, OP_FLOW, mds_close},
	{OP_mds_append, OP_FLOW, mds_append},
	{OP_mds_fallocate, OP_FLOW, mds_fallocate},
	{OP_mds_getxattr, OP_READ, mds_getxattr},
	{OP_mds_setxattr, OP_FLOW, mds_setxattr},
	{OP_mds_listxattr, OP_READ, mds_listxattr},
	{OP_mds_removexattr, OP_FLOW, mds_removexattr},
	{OP_mds_statfs, OP_READ, mds_statfs},
	{OP_mds_quota_set, OP_TXN, mds_quota_set},
	{OP_mds_quota_get, OP_READ, mds_quota_get},
	{OP_mds_quota_list, OP_CTRL, mds_quota_list},
	{OP_mds_space, OP_CTRL, mds_space},
	{OP_mds_layout_set, OP_FLOW, mds_layout_set},
	{OP_mds_access, OP_READ, mds_access},
	{OP_mds_lock, OP_FLOW, mds_lock},
	{OP_mds_lock_test, OP_CTRL, mds_lock_test},
	{OP_mds_export_set, OP_CTRL, mds_export_set},
	{OP_mds_export_get, OP_CTRL, mds_export_get},
	{OP_mds_peer_rights, OP_CTRL, mds_peer_rights},
};

static const struct op_desc *op_find(uint16_t op)
{
	for (size_t i = 0; i < ARRAY_SIZE(op_table); i++)
		if (op_table[i].op == op)
			return &op_table[i];
	return NULL;
}

/* False for a temporary error: the client may send the request again under its number. */
static bool answer_is_final(int rc)
{
	return rc >= 0 || (status_retry(rc) == RETRY_NEVER && rc != -LE_IO && rc != -LE_NOMEM &&
			   rc != -LE_SESSION_GONE && rc != -LE_INTR);
}

/* The file that the request has truncated or punched; {0}: none. */
static struct ino truncated_by(uint16_t op, const void *in, const void *out)
{
	const struct mds_setattr_req *set = in;
	const struct mds_open_req *open = in;
	const struct mds_create_req *create = in;

	if (op == OP_mds_setattr && (set->mask & SET_SIZE) != 0)
		return set->ino;
	if (op == OP_mds_open && (open->flags & O_TRUNC) != 0)
		return open->ino;
	if (op == OP_mds_create && (create->flags & O_TRUNC) != 0)
		return ((const struct mds_create_rep *)out)->attr.ino;
	if (op == OP_mds_fallocate)
		return ((const struct mds_fallocate_req *)in)->ino;
	return (struct ino){0};
}

/* Counts the open or close of a recorded reply again. Another repetition that arrives meanwhile
 * gets -LE_NOT_READY; after an error the next one does it. */
static int redo(struct op *op, const struct op_desc *d, struct replay_slot *row, const void *in,
		void *out)
{
	int rc = 0;

	if (row->redoing)
		return -LE_NOT_READY;
	row->redoing = true;
	row->from_store = false; /* a takeover meanwhile sets it again */
	if (d->op == OP_mds_create || d->op == OP_mds_tmpfile || d->op == OP_mds_open ||
	    d->op == OP_mds_close)
		rc = open_state_redo(op, d->op, in, out);
	row->redoing = false;
	if (rc < 0 && row->seqs.last == op->seq)
		row->from_store = true;
	return rc;
}

static int answer_again(struct op *op, const struct op_desc *d, const void *in, void *out)
{
	struct replay_slot *row = &op->session->slots[op->slot];
	void *buf = op_alloc(op, row->reply_len + 1u);

	if (buf == NULL)
		return -LE_NOMEM;
	metric_add(&op->m->metrics.replays, 1);
	TRY(replay_answer(row, op->desc, buf, out));
	if (!row->from_store)
		return 0;
	if (truncated_by(d->op, in, out).v != 0)
		data_truncated_before(op, truncated_by(d->op, in, out));
	if (!row->from_store)
		return 0;
	/* The previous incarnation counted the open or close. Its counts ended with it. */
	return redo(op, d, row, in, out);
}

/* The attributes in replies. */
#define AT(op, member) OP_##op, offsetof(struct op##_rep, member)
static const struct {
	uint16_t op;
	size_t offset;
} told[] = {
	{AT(mds_lookup, attr)},     {AT(mds_lookup, dir)},     {AT(mds_getattr, attr)},
	{AT(mds_setattr, attr)},    {AT(mds_create, attr)},    {AT(mds_create, dir)},
	{AT(mds_mknod, attr)},      {AT(mds_mknod, dir)},      {AT(mds_mkdir, attr)},
	{AT(mds_mkdir, dir)},       {AT(mds_symlink, attr)},   {AT(mds_symlink, dir)},
	{AT(mds_link, attr)},       {AT(mds_link, dir)},       {AT(mds_unlink, attr)},
	{AT(mds_unlink, dir)},      {AT(mds_rmdir, dir)},      {AT(mds_rename, attr)},
	{AT(mds_rename, dir)},      {AT(mds_rename, new_dir)}, {AT(mds_open, attr)},
	{AT(mds_close, attr)},      {AT(mds_tmpfile, attr)},   {AT(mds_fallocate, attr)},
	{AT(mds_layout_set, attr)},
};

/* Gives leases on the inodes whose attributes are in the reply, if they have not changed. */
static void give_leases(struct op *op, const struct op_desc *d, void *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(told); i++)
		if (told[i].op == d->op)
			op_lease(op, (struct attr *)((char *)out + told[i].offset));
}

static int run_mutation(struct op *op, const struct op_desc *d, const void *in, void *out)
{
	int rc = replay_begin(op->session, op->slot, op->seq, op->cancelled);
	struct replay_slot *row;

	if (rc == REPLAY_ANSWER)
		return answer_again(op, d, in, out);
	TRY(rc);
	row = &op->session->slots[op->slot];
	op->final = d->kind == OP_TXN;
	rc = op->cancelled ? -LE_CANCELED : op_alive(op);
	if (rc == 0)
		rc = reach_check(op, in);
	if (rc == 0)
		rc = d->kind == OP_TXN ? op_mutate(op, d->fn, in, out) : d->fn(op, in, out);
	if (rc >= 0 && !op->kept && replay_encode(row, op->desc, out) < 0)
		PANIC("reply of %s is too long", op->desc->name);
	replay_end(row, op->desc->op, rc, answer_is_final(rc));
	if (rc >= 0)
		give_leases(op, d, out);
	return rc;
}

static int run(struct op *op, const struct op_desc *d, const void *in, void *out)
{
	int rc;

	if (d->kind == OP_CTRL)
		return d->fn(op, in, out);
	if (d->kind != OP_READ)
		return run_mutation(op, d, in, out);
	rc = reach_check(op, in);
	if (rc >= 0)
		rc = op_read(op, d->fn, in, out);
	if (rc >= 0)
		give_leases(op, d, out);
	return rc;
}

int op_run(struct op *op, const struct frame_hdr *hdr, const void *in, void *out)
{
	const struct op_desc *d = op_find(hdr->op);
	struct session *se;
	int rc;

	if (d == NULL)
		return -LE_UNKNOWN_OP;
	op->desc = msg_find(hdr->op);
	/* rpc has decoded it for this request only */
	TRY(export_gate(op, d, (void *)(uintptr_t)in));
	se = hdr->session != 0 ? session_find(&op->m->sessions, hdr->session) : NULL;
	if (se != NULL && (op->r == NULL || se->peer == op->r->peer)) {
		se->last_contact_us = loop_now_us();
		op->session = se;
	}
	if (op->session == NULL && d->kind != OP_CTRL && d->kind != OP_READ)
		return se == NULL ? -LE_SESSION_GONE : -LE_DISCONNECTED;
	op->slot = hdr->slot;
	op->seq = hdr->seq;
	op->cancelled = (hdr->flags & FRAME_CANCEL_IF_NOT_STARTED) != 0;
	/* The session may end while the operation waits. */
	if (op->session != NULL)
		session_ref(se);
	rc = run(op, d, in, out);
	if (op->removed)
		space_reclaim_kick(op->m);
	if (op->session != NULL)
		session_unref(se);
	return rc;
}

static int handle(struct rpc_req *r, const void *in, void *out)
{
	struct mds *m = CAST_OBJ(r->arg, struct mds, MDS_MAGIC);
	struct op op;
	int rc;

	op_init(&op, m);
	op.r = r;
	rc = op_run(&op, &r->hdr, in, out);
	op_fini(&op);
	return rc;
}

#define HANDLER(num, name, kind) {num, handle},
static const struct rpc_handler handlers[] = {MDS_OPS(HANDLER)};

const struct rpc_handler *dispatch_handlers(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(handlers);
	return handlers;
}
