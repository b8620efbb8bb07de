/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converting existing files to another number of replicas. A background fiber walks a tree. The
 * object servers copy the chunks of each file into a new data generation, on chains of the other
 * class. Then one batch exchanges the layout of the file and queues the old generation for
 * removal.
 *
 * A file is converted when no session has it open and it was not changed for convert_after_ms.
 * If a session opens it for writing or truncates it before the exchange, the copy is discarded
 * and the file is tried again, so no client ever reads or writes a generation that is not the
 * file's. The generation of a discarded copy, also after a crash (INTENT_CONVERT), is never used
 * again (gen_used). The store has a row for each tree that is being converted (V rows): after a
 * restart the walk begins again, and skips files that are done.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_REPLICA_CONVERT_H
#define LEAT_MDS_FILE_REPLICA_CONVERT_H

#include "common/base/list.h"
#include "common/proto/mds_proto.h"
#include "common/rt/fiber.h"
#include "mds/store/records.h"

struct mds;
struct op;

/* How a conversion ended. status: 0: all files have that many replicas; -LE_CANCELED: it was
 * stopped, or a directory above is converted to another number; -LE_STALE: its root was removed. */
struct conversion_end {
	struct ino root;
	uint32_t replicas;
	int status;
};
#define CONVERSION_ENDS_MAX 64u

struct conversions {
	struct list jobs; /* struct convert_job */
	uint32_t n;
	/* The conversions that have ended, the newest last, one for each root, so that a tool
	 * that waits for one learns how it ended. They are not stored. */
	struct conversion_end ends[CONVERSION_ENDS_MAX];
	uint32_t n_ends;
	struct fmutex lock; /* held while a conversion is requested, and while one ends */
};

/* Makes an empty list. Does not yield. */
void conversions_init(struct conversions *cv);
/* Starts the conversions for which the store has rows. Returns 0, -LE_CORRUPT_STORE, -LE_NOMEM
 * or the error of the store. Yields. */
int conversions_start(struct mds *m) CHECK_RESULT;
/* A running conversion, for `leat status`. n_waiting, n_failed: of the present or the last walk,
 * the larger; error: the last one, 0: none. */
struct conversion_view {
	struct ino root;
	uint32_t replicas;
	uint64_t n_walks, n_seen, n_converted, bytes, n_waiting, n_failed;
	int error;
};
/* Calls each() for all running conversions. Does not yield, nor may each(). */
void conversions_each(const struct mds *m, void (*each)(void *arg, const struct conversion_view *v),
		      void *arg);
/* Starts or stops a conversion: mds_layout_set with LAYOUT_F_CONVERT or LAYOUT_F_STOP. Returns 0,
 * -LE_PERM if the user is not root, -LE_BUSY within a tree that is converted to another number,
 * -LE_OVERLOAD if there are too many, -LE_NODEV if there are too few hosts, -LE_INVAL, or the error
 * of op_mutate. Yields. */
int convert_ask(struct op *op, const struct mds_layout_set_req *in,
		struct mds_layout_set_rep *out) CHECK_RESULT;
/* Ends the intent of a copy that is discarded, and queues its data for removal. Returns 0 or the
 * error of op_mutate. Yields. */
int convert_forget(struct op *op, uint64_t no, const struct intent_rec *rec) CHECK_RESULT;

#endif
