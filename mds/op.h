/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context of an operation: the request, its session, what it has recalled and allocated. Owned
 * by the loop.
 *
 * A mutation is written as a critical section (store/txn.h): a function that reads the newest
 * state, makes all checks, writes, fills in the reply, and does not yield. op_execute.h runs it.
 */
#ifndef LEAT_MDS_OP_H
#define LEAT_MDS_OP_H

#include <sys/stat.h>

#include "mds/access/perm.h"
#include "mds/mds.h"

/* Its bools are independent: the handler sets each when it begins a part, to tell the steps that
 * follow how the operation is repeated, withdrawn or answered. */
struct op {
	struct mds *m;
	struct store *store; /* of m */
	struct rpc_req *r;   /* NULL: the server runs the operation by itself */
	const struct msg_desc *desc;
	struct session *session; /* NULL: none */
	uint32_t slot;
	uint64_t seq;
	bool final;   /* The next critical section is the last: its batch writes the replay row. */
	bool kept;    /* The replay row has the reply. */
	bool lazy;    /* No program waits for the reply, so it need not start a sync. */
	bool resumes; /* Executes an intent of a previous incarnation. */
	/* Finishes an intent that is already durable, so it goes on if the client disconnects or
	 * its session ends. */
	bool owed;
	bool begun;     /* A part of it may be visible, so it goes on if the client disconnects. */
	bool removed;   /* Data was queued for removal. */
	bool cancelled; /* The client has cancelled: answer with the stored result, or do not
			 * execute. */
	/* Inodes with leases that must be recalled (lease/recall.h). */
	struct ino recall[8];
	uint32_t n_recall;
	unsigned recall_modes;  /* of enum lease_mode: recall leases that have one of them */
	bool recall_own;        /* Recall those of `session` as well. */
	uint64_t recall_change; /* LEASE_APPEND: struct holder.change */
	/* Inodes whose leases were recalled. They get no new ones until the critical section has
	 * run. */
	struct lease_file *blocked[16];
	uint32_t n_blocked;
	struct list notified_sessions; /* sessions to notify (lease/owner_notify.h) */
	struct list memory;            /* of op_alloc, without a request */
};

/* The entry of an operation in the table of dispatch.c. */
struct op_desc {
	uint16_t op;
	enum {
		OP_CTRL,
		OP_READ,
		OP_TXN,
		OP_FLOW
	} kind; /* OP_READ: fn is run again after a miss. OP_TXN: fn is a critical section. OP_FLOW:
		 * fn runs critical sections. OP_CTRL: fn does everything itself. */
	int (*fn)(struct op *op, const void *in, void *out);
};

/* Makes an empty context. Does not yield. */
void op_init(struct op *op, struct mds *m);
/* Frees what the operation has allocated. Does not yield. */
void op_fini(struct op *op);
/* Allocates memory for the reply, which is freed with the operation. Returns NULL if there is no
 * memory. Does not yield. */
void *op_alloc(struct op *op, size_t size);
/* Checks whether the operation should go on. Returns 0 if it should; -LE_SESSION_GONE if its
 * session has ended; -LE_DISCONNECTED if the session has another connection by now, or none;
 * -LE_TIMEDOUT if the deadline has passed; -LE_CANCELED if the client has cancelled it. Does not
 * yield. */
int op_alive(const struct op *op) CHECK_RESULT;
/* Returns the file that this operation, which opens it, has truncated already, perhaps before a
 * restart of the server. Returns {0} if there is none. Does not yield. */
struct ino op_has_truncated(const struct op *op);
/* Records the file for op_has_truncated. Call it in the critical section that truncates, where
 * writes are allowed. Does not yield. */
void op_truncates(struct op *op, struct ino ino);
/* Returns the time of the wall clock, in ns. Does not yield. */
int64_t op_now(struct op *op);
/* Sets *ret_cap to a signed capability for the file with the attributes a. The file is opened by
 * op->session with these flags of open(2). Does not yield. */
void op_cap(struct op *op, const struct attr *a, uint32_t flags, struct cap *ret_cap);

#endif
