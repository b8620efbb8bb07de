/*
 * leat fsck: what its files know of each other. cmd_fsck.c: options, what was found, repairs;
 * fsck_names.c: inodes and directory entries; fsck_data.c: chunks and their copies. All records
 * of the metadata come from one snapshot, chunks from the object servers afterwards: what looks
 * wrong there is looked at again before it is believed.
 */
#ifndef LEAT_TOOLS_FSCK_H
#define LEAT_TOOLS_FSCK_H

#include "tools/cluster.h"

/* X(name, may it be asked for by --repair, text of the summary) */
#define FSCK_KINDS(X)                                                                              \
	X(entries, true, "entries of what does not exist")                                         \
	X(links, true, "wrong counts of links or entries, wrong parents")                          \
	X(names, true, "inodes without a name")                                                    \
	X(orphans, true, "data or inodes that belong to nothing")                                  \
	X(sizes, true, "sizes smaller than the data")                                              \
	X(copies, true, "copies that differ")                                                      \
	X(missing, false, "files or chunks whose data is gone")                                              \
	X(damaged, false, "records that cannot be read")
#define FSCK_NUMBER(name, mend, text) FSCK_##name,
enum fsck_class {
	FSCK_KINDS(FSCK_NUMBER) FSCK_N_CLASSES
};

struct fsck {
	struct cluster *c;
	uint32_t repair; /* bits of enum fsck_class */
	uint64_t window; /* inodes looked at together */
	uint64_t snapshot, next_ino, n_inodes;
	uint64_t found[FSCK_N_CLASSES], left[FSCK_N_CLASSES], repaired[FSCK_N_CLASSES];
	uint64_t busy; /* files that could not be judged, because they are in use */
	uint64_t n_entries, n_chunks;
	uint32_t unread; /* copies of chains that could not be read */
	bool again;      /* something was repaired: another round tells what is left */
	json_t *findings, *repairs, *notes;
	struct progress progress;
	int code;
};

/* ---- cmd_fsck.c ---- */

/* A request to the metadata server with time enough. rpc_call_fini(call) always. Yields. */
int fsck_call(struct fsck *f, uint16_t op, const void *req, void *rep,
	      struct rpc_call *call) CHECK_RESULT;
/* Rows of one kind (enum fsck_kind). Zero it, set kind. */
struct fsck_cursor {
	uint32_t kind;
	uint8_t from[512];
	uint32_t from_len;
	bool begun, ended, loaded;
	struct rpc_call call;
	struct mds_fsck_page_rep rep;
	struct wire_r r;
};
/* 1: cur->r is at a row; 0: there are no more. Yields. */
int fsck_row(struct fsck *f, struct fsck_cursor *cur) CHECK_RESULT;
void fsck_cursor_fini(struct fsck_cursor *cur);

/* Something is wrong. repair (may be NULL): what mends it; it is done at once if asked for.
 * Yields. */
int fsck_found(struct fsck *f, enum fsck_class class, const struct mds_fsck_repair_req *repair,
	       const char *fmt, ...) CHECK_RESULT __attribute__((format(printf, 4, 5)));
/* What could not be checked. */
void fsck_note(struct fsck *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Ended by a signal: -LE_CANCELED. */
int fsck_going(struct fsck *f, const char *what, uint64_t done, uint64_t total) CHECK_RESULT;

/* ---- fsck_names.c, fsck_data.c. Yield. ---- */
int fsck_names(struct fsck *f) CHECK_RESULT;
int fsck_data(struct fsck *f) CHECK_RESULT;

#endif
