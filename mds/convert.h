/*
 * Files that exist get another number of copies: a tree is walked in the background, each file's
 * chunks are copied by the object servers into a new data generation on chains of the other class,
 * and then, in one batch, the file's layout is exchanged and the old generation queued for removal.
 *
 * A file is converted while nobody has it open and its last change has rested for
 * convert_after_ms; when somebody opens it for writing, or cuts it, before the exchange, the copy
 * is thrown away and the file tried again. So nobody ever reads or writes a generation that is not
 * the file's. A copy that is thrown away, also by a crash (INTENT_CONVERT), never shares its number
 * with another (gen_used). Which trees are under way is on record (V rows): after a restart the
 * walk begins anew, and passes over what is done.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CONVERT_H
#define LEAT_MDS_CONVERT_H

#include "common/base/list.h"
#include "common/proto/mds_proto.h"
#include "common/rt/fiber.h"
#include "mds/store/records.h"

struct mds;
struct op;

/* How one came to its end. status: 0: all has that many copies; -LE_CANCELED: somebody ended it, or
 * a directory above is being given another number; -LE_STALE: what it was asked for is gone. */
struct conversion_end {
	struct ino root;
	uint32_t replicas;
	int status;
};
#define CONVERSION_ENDS_MAX 64u

struct conversions {
	struct list jobs; /* struct convert_job */
	uint32_t n;
	/* Whoever waits for one would take what is merely no longer under way for done. The newest
	 * last, one for each root; nothing of them outlives the process. */
	struct conversion_end ends[CONVERSION_ENDS_MAX];
	uint32_t n_ends;
	struct fmutex lock; /* held while one is asked for, and while one ends */
};

void conversions_init(struct conversions *cv);
/* Those on record go on. Yields. */
int conversions_start(struct mds *m) CHECK_RESULT;
/* What is under way, for `leat status`. n_waiting, n_failed: of the present or the last walk, the
 * larger; error: the last one, 0: none. each() does not yield. */
struct conversion_view {
	struct ino root;
	uint32_t replicas;
	uint64_t n_walks, n_seen, n_converted, bytes, n_waiting, n_failed;
	int error;
};
void conversions_each(const struct mds *m,
		      void (*each)(void *arg, const struct conversion_view *v), void *arg);
/* mds_layout_set with LAYOUT_F_CONVERT or LAYOUT_F_STOP: only for root. -LE_OVERLOAD: too many.
 * Yields. */
int convert_ask(struct op *op, const struct mds_layout_set_req *in,
		struct mds_layout_set_rep *out) CHECK_RESULT;
/* A copy is thrown away. Yields. */
int convert_forget(struct op *op, uint64_t no, const struct intent_rec *rec) CHECK_RESULT;

#endif
