/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Was the history that the clients observed possible? Checkers for histories of operations that
 * overlap in time.
 *
 * Registers with values that are written once each: by zones (Gibbons and Korach, "Testing shared
 * memories", SIAM J. Comput. 26, 1997), exact and n log n. Names of a directory, and cells of files
 * that are truncated: by search for an order of the operations (Wing and Gong, "Testing and
 * verifying concurrent objects", J. Parallel Distrib. Comput. 17, 1993, with Lowe's memory of
 * visited states).
 *
 * Times are of one clock, all different, from 1 on. An operation without an end (its client has
 * died, or got an error that leaves the outcome undefined) may have happened at any time since it
 * began, or not at all.
 */
#ifndef LEAT_TESTS_SIM_LINEAR_H
#define LEAT_TESTS_SIM_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINEAR_NEVER    UINT64_MAX
#define LINEAR_WHY_SIZE 400u

/* ---- registers; the initial value of each is 0 ---- */
struct reg_op {
	uint32_t reg, client;
	bool write;
	uint64_t value; /* read: the value */
	uint64_t begin, end;
	bool lost; /* lost with a server, and reported to the writer: it may have been visible for a
		    * while */
};

struct reg_history {
	struct reg_op *ops;
	size_t n, space;
};

/* Returns the operation's number. Reads that never end prove nothing. */
size_t reg_begin(struct reg_history *h, uint32_t reg, uint32_t client, uint64_t write_value,
		 uint64_t at);
void reg_end(struct reg_history *h, size_t op, uint64_t value, uint64_t at);
/* Marks as lost the client's writes to registers [first, first + n) that have not ended before
 * `since`. */
void reg_lose(struct reg_history *h, uint32_t client, uint32_t first, uint32_t n, uint64_t since);
/* Returns false if the history is impossible, and why. Sorts the history. */
bool reg_check(struct reg_history *h, char why[LINEAR_WHY_SIZE]);
void reg_free(struct reg_history *h);

/* ---- names; initially all are absent ---- */
#define LINEAR_NAMES 4u
enum name_kind {
	NAME_CREATE,
	NAME_UNLINK,
	NAME_LOOKUP,
	NAME_RENAME,
	NAME_LINK,
	NAME_NOTHING /* was cancelled */
};
#define N_NAME_KINDS 5u /* without the last */

struct name_op {
	enum name_kind kind;
	uint32_t client;
	uint32_t a, b; /* which names; b: rename's target */
	/* Create: the new file; lookup: the file found, 0: none; link: the file that gets this
	 * name, too. */
	uint32_t tag;
	bool ok;     /* create: was not there; unlink, rename: was there; link: both */
	bool exists; /* link that is not ok: the name was there; else the file had no name left */
	uint64_t begin, end;
};

struct name_history {
	struct name_op *ops;
	size_t n, space;
};

size_t name_begin(struct name_history *h, const struct name_op *op, uint64_t at);
/* tag: the file found; of a link that is not ok: whether its name was there. */
void name_end(struct name_history *h, size_t op, bool ok, uint32_t tag, uint64_t at);
/* The operation has not happened, and will not happen. */
void name_void(struct name_history *h, size_t op, uint64_t at);
/* NAMES_NOT_DECIDED: not within the bound of the search. why: of the other two. */
enum names_verdict { NAMES_IMPOSSIBLE, NAMES_POSSIBLE, NAMES_NOT_DECIDED };
enum names_verdict name_check(const struct name_history *h, char why[LINEAR_WHY_SIZE]);
void name_free(struct name_history *h);

/*
 * ---- cells of files that are truncated and extended: each by itself; initially all are after the
 * end ----
 *
 * A file is truncated chunk by chunk: a concurrent write may stay, and with it the size, though
 * data that was written before it, or after it elsewhere, is truncated. So a write after the cell
 * may extend the file once more until the truncations that overlap it have ended.
 */
enum cell_kind {
	CELL_WRITE,  /* value */
	CELL_READ,   /* value, 0: zeros, CELL_ABSENT: the file ended before; CELL_EMPTY: either */
	CELL_LOOK,   /* value: whether the file reports data there */
	CELL_CUT,    /* the file ends before the cell */
	CELL_EXTEND, /* it ends after the cell: zeros, if it was absent; value: by a write after
		      * it */
	CELL_STAYS,  /* internal to the checker */
};
#define CELL_ABSENT UINT32_MAX
#define CELL_EMPTY  (UINT32_MAX - 1)

struct cell_op {
	enum cell_kind kind;
	uint32_t cell, client;
	uint32_t value;
	uint64_t begin, end;
	uint64_t until; /* without an end: it does not take effect later */
};

struct cell_history {
	struct cell_op *ops;
	size_t n, space;
};

size_t cell_begin(struct cell_history *h, const struct cell_op *op, uint64_t at);
/* Ends a change, or a look together with what it found. */
void cell_done(struct cell_history *h, size_t op, uint64_t at);
void cell_saw(struct cell_history *h, size_t op, uint32_t value, uint64_t at);
/* The client has died: what it has not ended does not take effect later. What it read of such
 * operations itself before it died proves nothing. */
void cell_over(struct cell_history *h, uint32_t client, uint64_t at);
/* Like name_check. Sorts the history. */
enum names_verdict cell_check(struct cell_history *h, char why[LINEAR_WHY_SIZE]);
void cell_free(struct cell_history *h);

#endif
