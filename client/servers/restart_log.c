/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/restart_log.h"

#include <fcntl.h>
#include <stddef.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/servers/request_slots.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* Each process uses sequences above those of the previous one. */
#define GENERATION_SHIFT 40

/* Returns true for a setattr that only removes set-id bits or capabilities, as a write or O_TRUNC
 * does. Such a setattr is part of another change, which keeps the pair instead. */
static bool takes_away(uint32_t mask)
{
	if ((mask & SET_KILL_SUID) != 0)
		mask &= ~(uint32_t)SET_MODE;
	return (mask & ~(uint32_t)(SET_KILL_SUID | SET_KILL_CAPS)) == 0;
}

/* A second execution can destroy later changes: a truncation that is executed twice would remove
 * data that was written and synced in between. */
bool op_must_run_once(uint16_t op, const void *req)
{
	static const uint16_t ops[] = {
		OP_mds_create,   OP_mds_tmpfile,     OP_mds_mknod, OP_mds_mkdir,     OP_mds_symlink,
		OP_mds_link,     OP_mds_unlink,      OP_mds_rmdir, OP_mds_rename,    OP_mds_append,
		OP_mds_setxattr, OP_mds_removexattr, OP_mds_copy,  OP_mds_fallocate,
	};

	if (op == OP_mds_setattr)
		return !takes_away(((const struct mds_setattr_req *)req)->mask);
	if (op == OP_mds_open)
		return (((const struct mds_open_req *)req)->flags & O_TRUNC) != 0;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (ops[i] == op)
			return true;
	return false;
}

void restart_log_start(struct client *c)
{
	struct ll_restart_state *k = c->restart;

	turnq_init(&c->held_turn);
	list_init(&c->requests);
	if (k == NULL)
		return;
	k->generation++;
	c->seq_base = (uint64_t)k->generation << GENERATION_SHIFT;
	if (k->session == 0) {
		k->id = c->id;
		return;
	}
	c->id = k->id;
	c->session = k->session;
	c->incarnation = k->incarnation;
	c->session_gen = 1;
	c->taking_over = c->reporting = c->resuming = true;
	c->previous_us = loop_now_us();
	c->kernel_until_us = c->kernel_lost_us = c->previous_us + KERNEL_NAMES_US +
					       KERNEL_LATE_US;
	c->settled_at_us = loop_now_us() + SETTLED_US;
}

void restart_log_reserve(struct client *c)
{
	struct ll_restart_state *k = c->restart;

	for (uint32_t i = 0; k != NULL && i < LL_RESTART_CALLS; i++)
		if (k->calls[i].unique != 0 && !request_slot_take_one(&c->mds_seqs, i))
			k->calls[i].unique = 0;
}

void restart_log_session(struct client *c)
{
	struct ll_restart_state *k = c->restart;

	if (k == NULL)
		return;
	c->resumes_other = k->session != c->session;
	k->incarnation = c->incarnation;
	RESTART_LOG_ORDER();
	k->session = c->session;
}

void ll_request_begin(struct ll_request *r, struct client *c, uint64_t unique)
{
	*r = (struct ll_request){.c = c, .unique = unique, .slot = -1};
	list_init(&r->link);
	if (c->restart != NULL)
		list_push(&c->requests, &r->link);
	fiber_set_local(r);
}

uint64_t ll_request_unique(void)
{
	const struct ll_request *r = fiber_local();

	return r != NULL ? r->unique : 0;
}

static void number_give(struct ll_request *r)
{
	struct client *c = r->c;

	if (r->slot < 0)
		return;
	ASSERT(c->n_held > 0);
	c->restart->calls[r->slot].unique = 0;
	request_slot_release(&c->mds_seqs, (uint32_t)r->slot);
	r->slot = -1;
	r->repeats = false;
	c->n_held--;
	turnq_wake(&c->held_turn);
}

void ll_request_end(struct ll_request *r)
{
	struct client *c = r->c;

	fiber_set_local(NULL);
	if (!list_empty(&r->link))
		list_remove(&r->link);
	if (c->restart != NULL)
		number_give(r);
}

void restart_log_discard(struct client *c)
{
	struct ll_request *r = c->restart != NULL ? fiber_local() : NULL;

	if (r != NULL)
		number_give(r);
}

/* Returns the slot of the same change by the previous process, or -1. */
static int previous_slot(const struct ll_restart_state *k, uint64_t unique, uint16_t op)
{
	for (int i = 0; i < LL_RESTART_CALLS; i++)
		if (k->calls[i].unique == unique && k->calls[i].op == op &&
		    k->calls[i].generation != k->generation)
			return i;
	return -1;
}

bool restart_log_has_previous(const struct client *c, uint16_t op)
{
	const struct ll_request *r = c->restart != NULL ? fiber_local() : NULL;

	return r != NULL && r->slot < 0 && previous_slot(c->restart, r->unique, op) >= 0;
}

bool restart_log_take_previous(const struct client *c)
{
	struct ll_request *r = c->restart != NULL ? fiber_local() : NULL;
	bool repeated = r != NULL && r->repeats;

	if (repeated)
		r->repeats = false;
	return repeated;
}

/* A quarter of the slots stays free for requests that keep a slot already and need another. */
static bool may_hold(void *arg)
{
	const struct client *c = arg;

	return c->n_held == 0 || c->n_held < c->mds_seqs.n / 4 * 3;
}

/* Takes a new slot for the request's change and records it. Yields. */
static int take_new(struct client *c, struct ll_request *r, uint16_t op, uint64_t deadline_us)
{
	struct ll_restart_call *call;
	uint32_t slot;
	uint64_t seq;

	TRY(turnq_wait(&c->held_turn, may_hold, c, NO_DEADLINE, deadline_us));
	c->n_held++;
	turnq_wake(&c->held_turn);
	int rc = request_slot_take(&c->mds_seqs, deadline_us, &slot, &seq);
	if (rc < 0) {
		c->n_held--;
		turnq_wake(&c->held_turn);
		return rc;
	}
	call = &c->restart->calls[slot];
	call->seq = seq;
	call->op = op;
	call->generation = c->restart->generation;
	RESTART_LOG_ORDER();
	call->unique = r->unique;
	r->slot = (int)slot;
	return 0;
}

int restart_log_begin(struct client *c, uint16_t op, const void *req, uint64_t deadline_us,
	      uint32_t *ret_slot, uint64_t *ret_seq)
{
	struct ll_request *r =
		c->restart != NULL && op_must_run_once(op, req) ? fiber_local() : NULL;
	int rc;

	if (r == NULL || r->slot >= 0)
		return request_slot_take(&c->mds_seqs, deadline_us, ret_slot, ret_seq);
	r->slot = previous_slot(c->restart, r->unique, op);
	if (r->slot >= 0) {
		c->restart->calls[r->slot].generation = c->restart->generation;
		c->n_held++;
		r->repeats = true;
	} else {
		rc = take_new(c, r, op, deadline_us);
		if (rc < 0)
			return rc;
	}
	*ret_slot = (uint32_t)r->slot;
	*ret_seq = c->restart->calls[r->slot].seq;
	return 0;
}

void restart_log_end(struct client *c, uint32_t slot)
{
	const struct ll_request *r = c->restart != NULL ? fiber_local() : NULL;

	if (r == NULL || r->slot != (int)slot)
		request_slot_release(&c->mds_seqs, slot);
}

void restart_mark_clear(struct inode_io *d)
{
	if (d->mark != 0)
		d->c->restart->marks[d->mark - 1].state = MARK_CLEAN;
	d->mark = 0;
}
