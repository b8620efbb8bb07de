/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running an operation: a critical section, or a function that reads. Either may return -LE_MISS
 * (store/store.h) or -LE_LEASED (lease/lease_check.h) before it has written anything; it is run
 * again when the record is loaded or the leases are recalled. Owned by the loop.
 */
#ifndef LEAT_MDS_OP_EXECUTE_H
#define LEAT_MDS_OP_EXECUTE_H

#include "mds/op.h"

/* Runs the critical section fn until nothing is missing and no other session caches what it
 * changes. Writes the replay row if op->final is set, and waits until all is durable. Returns what
 * fn returns, the status of op_alive, or an error of the store. Yields. */
int op_mutate(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	      void *out) CHECK_RESULT;
/* Runs fn, which only reads, until nothing is missing. Returns what fn returns, or the error of the
 * store or the recall. Yields. */
int op_read(struct op *op, int (*fn)(struct op *op, const void *in, void *out), const void *in,
	    void *out) CHECK_RESULT;

#endif
