/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/op_execute.h"

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "mds/lease/recall.h"
#include "mds/mds.h"

static int section(struct op *op, int (*fn)(struct op *op, const void *in, void *out),
		   const void *in, void *out)
{
	NO_YIELD();

	return fn(op, in, out);
}

/* Runs the section until nothing is missing and no other session caches what it changes. */
static int run_section(struct op *op, int (*fn)(struct op *op, const void *in, void *out),
		       const void *in, void *out, int *ret_rc)
{
	struct store *s = op->store;
	int rc;

	for (;;) {
		rc = txn_begin(s);
		if (rc >= 0)
			rc = op_alive(op);
		if (rc < 0)
			break;
		*ret_rc = section(op, fn, in, out);
		if (*ret_rc != -LE_MISS && *ret_rc != -LE_LEASED)
			break;
		ASSERT(!s->wrote);
		rc = *ret_rc == -LE_MISS ? store_load(s) : op_recall(op);
		if (rc < 0)
			break;
	}
	op_unblock(op);
	return rc;
}

int op_mutate(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	      void *out)
{
	struct store *s = op->store;
	uint64_t no, depends;
	int rc;

	TRY(run_section(op, fn, in, out, &rc));
	depends = s->depends;
	if (rc < 0) {
		ASSERT(!s->wrote);
		/* The cause of the error may be a change that is not durable yet. */
		TRY(store_wait(s, depends));
		return rc;
	}
	if (s->wrote && op->session != NULL && !op->session->ended && op->desc != NULL &&
	    op->final) {
		struct replay_slot *row = &op->session->slots[op->slot];

		if (replay_encode(row, op->desc, out) < 0)
			PANIC("reply of %s is too long", op->desc->name);
		replay_put(s, op->session, op->slot);
		op->kept = true;
	}
	no = op->lazy ? txn_end_lazy(s) : txn_end(s);
	if (PLANTED_BUG(MDS_EARLY_ACK))
		return 0;
	no = no != 0 ? no : depends;
	return op->lazy ? store_wait_lazy(s, no) : store_wait(s, no);
}

int op_read(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	    void *out)
{
	int rc;

	for (;;) {
		rc = fn(op, in, out);
		if (rc == -LE_MISS)
			rc = store_load(op->store);
		else if (rc == -LE_LEASED)
			rc = op_recall(op);
		else
			break;
		if (rc < 0)
			break;
	}
	op_unblock(op);
	return rc;
}
