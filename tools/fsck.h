/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat fsck: what its parts share. cmd_fsck.c: options, rounds, the report; fsck.c: requests, rows,
 * findings and repairs; fsck_names.c: inodes and directory entries; fsck_data.c: chunks and their
 * copies. All records of the metadata come from one snapshot, chunks from the object servers
 * afterwards: an error found there is checked a second time before it is reported.
 */
#ifndef LEAT_TOOLS_FSCK_H
#define LEAT_TOOLS_FSCK_H

#include "tools/cluster.h"
#include "tools/progress.h"

/* X(name, can --repair repair it, text of the summary) */
#define FSCK_KINDS(X)                                                                              \
	X(entries, true, "entries whose inode does not exist")                                     \
	X(links, true, "wrong counts of links or entries, wrong parents")                          \
	X(names, true, "inodes without a name")                                                    \
	X(orphans, true, "data without a file, or inodes without links")                           \
	X(sizes, true, "sizes smaller than the data")                                              \
	X(copies, true, "copies that differ")                                                      \
	X(missing, false, "files or chunks whose data is gone")                                    \
	X(damaged, false, "records that cannot be read")
#define FSCK_NUMBER(name, mend, text) FSCK_##name,
enum fsck_class {
	FSCK_KINDS(FSCK_NUMBER) FSCK_N_CLASSES
};

struct fsck_class_info {
	const char *name;
	bool mend; /* --repair accepts it */
	const char *text;
};
extern const struct fsck_class_info fsck_classes[FSCK_N_CLASSES];

#define FSCK_CALL_MS 30000u /* for one request */

struct fsck {
	struct cluster *c;
	uint32_t repair; /* bits of enum fsck_class */
	uint64_t window; /* inodes in memory at a time */
	uint64_t snapshot, next_ino, n_inodes;
	uint64_t found[FSCK_N_CLASSES], left[FSCK_N_CLASSES], repaired[FSCK_N_CLASSES];
	uint64_t busy; /* files in use: their sizes are not checked */
	uint64_t n_entries, n_chunks;
	uint32_t unread; /* copies of chains that could not be read */
	bool again;      /* something was repaired: another round finds the rest */
	json_t *findings, *repairs, *notes;
	struct progress progress;
	int code;
};

/* Sends a request to the metadata server, with a deadline of FSCK_CALL_MS. The caller ends `call`
 * with rpc_call_fini, whatever is returned. Yields. */
int fsck_call(struct fsck *f, uint16_t op, const void *req, void *rep,
	      struct rpc_call *call) CHECK_RESULT;
/* Reads the rows of one kind (enum fsck_kind of the protocol). Zero it and set kind. */
struct fsck_cursor {
	uint32_t kind;
	uint8_t from[512];
	uint32_t from_len;
	bool begun, ended, loaded;
	struct rpc_call call;
	struct mds_fsck_page_rep rep;
	struct wire_r r;
};
/* Moves to the next row. Returns 1 with cur->r at the row, 0 after the last one, or a negative
 * status. Yields. */
int fsck_row(struct fsck *f, struct fsck_cursor *cur) CHECK_RESULT;
/* Drops the page that the cursor holds. */
void fsck_cursor_fini(struct fsck_cursor *cur);

/* Reports an error of the file system. repair: the request that repairs it, sent if --repair names
 * the class; NULL: there is none. Returns 0 or a negative status. Yields. */
int fsck_found(struct fsck *f, enum fsck_class class, const struct mds_fsck_repair_req *repair,
	       const char *fmt, ...) CHECK_RESULT __attribute__((format(printf, 4, 5)));
/* Reports what could not be checked. A text that was reported before is not added again. */
void fsck_note(struct fsck *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Draws the progress. Returns 0, or -LE_CANCELED after a signal. */
int fsck_going(struct fsck *f, const char *what, uint64_t done, uint64_t total) CHECK_RESULT;
/* Prints a line "KIND: TEXTEND" on stdout; text may hold names of files and is escaped. */
void fsck_print_finding(const char *kind, const char *text, const char *end);

#endif
