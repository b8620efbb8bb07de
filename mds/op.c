/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/op.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/rt/loop.h"
#include "mds/lease/owner_notify.h"

struct op_memory {
	struct list link;
	_Alignas(16) uint8_t data[];
};

void op_init(struct op *op, struct mds *m)
{
	*op = (struct op){.m = m, .store = &m->store};
	list_init(&op->notified_sessions);
	list_init(&op->memory);
}

void op_fini(struct op *op)
{
	struct list *n;

	op_gives_end(op);
	while ((n = list_pop(&op->memory)) != NULL)
		free(list_entry(n, struct op_memory, link));
}

void *op_alloc(struct op *op, size_t size)
{
	struct op_memory *mem;

	if (op->r != NULL)
		return rpc_req_alloc(op->r, size);
	mem = malloc(sizeof(*mem) + size);
	if (mem == NULL)
		return NULL;
	list_push(&op->memory, &mem->link);
	return mem->data;
}

int op_alive(const struct op *op)
{
	if (op->session == NULL || op->owed)
		return 0;
	if (op->session->ended)
		return -LE_SESSION_GONE;
	if (op->begun)
		return 0;
	if (op->r != NULL && op->session->peer != op->r->peer)
		return -LE_DISCONNECTED;
	/* Its client has sent the request again, or has returned an error. */
	if (fiber_deadline() < loop_now_us())
		return -LE_TIMEDOUT;
	return replay_cancelled(op->session, op->slot, op->seq) ? -LE_CANCELED : 0;
}

struct ino op_has_truncated(const struct op *op)
{
	return op->session != NULL ? replay_has_truncation(&op->session->slots[op->slot])
				   : (struct ino){0};
}

void op_truncates(struct op *op, struct ino ino)
{
	if (op->session != NULL && !op->session->ended)
		replay_put_truncation(op->store, op->session, op->slot, ino);
}

int64_t op_now(struct op *op)
{
	return env_wall_ns(op->m->env);
}

void op_cap(struct op *op, const struct attr *a, uint32_t flags, struct cap *ret_cap)
{
	struct mds *m = op->m;
	uint32_t acc = flags & O_ACCMODE;

	*ret_cap = (struct cap){
		.ino = a->ino,
		.gen = a->layout.gen,
		.epoch = m->cluster.epoch,
		/* A writer reads too, to fill up a block that it writes in part. */
		.rights = acc == O_RDONLY ? CAP_READ : CAP_READ | CAP_WRITE,
		.session = op->session != NULL ? op->session->id : SESSION_MDS,
		.expiry_s = op_now(op) / 1000000000 + m->params.cap_ttl_s,
	};
	cap_sign(&m->cap_key, ret_cap);
}
