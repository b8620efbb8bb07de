/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Was what the clients saw possible? Checkers for histories of operations that overlap in time.
 *
 * Registers with values that are written once each: by zones (Gibbons and Korach, "Testing shared
 * memories", SIAM J. Comput. 26, 1997), exact and n log n. Names of a directory, and cells of files
 * that are made shorter: by search for an order of the operations (Wing and Gong, "Testing and
 * verifying concurrent objects", J. Parallel Distrib. Comput. 17, 1993, with Lowe's memory of
 * states seen).
 *
 * Times are of one clock, all different, from 1 on. An operation without an end (its client has
 * died, or was told that it is not known) may have happened at any time since it began, or not at
 * all.
 */
#ifndef LEAT_TESTS_SIM_LINEAR_H
#define LEAT_TESTS_SIM_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINEAR_NEVER    UINT64_MAX
#define LINEAR_WHY_SIZE 400u

/* ---- registers; 0 is what each holds in the beginning ---- */
struct reg_op {
	uint32_t reg, client;
	bool write;
	uint64_t value; /* read: what came out */
	uint64_t begin, end;
	bool lost; /* with a server, as the writer was told: it may have been there for a while */
};

struct reg_history {
	struct reg_op *ops;
	size_t n, space;
};

/* The operation's number; reads that never end tell nothing. */
size_t reg_begin(struct reg_history *h, uint32_t reg, uint32_t client, uint64_t write_value,
		 uint64_t at);
void reg_end(struct reg_history *h, size_t op, uint64_t value, uint64_t at);
/* Writes of the client to registers [first, first + n) that have not ended before `since` are lost.
 */
void reg_lose(struct reg_history *h, uint32_t client, uint32_t first, uint32_t n, uint64_t since);
/* False: impossible, and why. Sorts the history. */
bool reg_check(struct reg_history *h, char why[LINEAR_WHY_SIZE]);
void reg_free(struct reg_history *h);

/* ---- names; all are absent in the beginning ---- */
#define LINEAR_NAMES 4u
enum name_kind {
	NAME_CREATE,
	NAME_UNLINK,
	NAME_LOOKUP,
	NAME_RENAME,
	NAME_LINK,
	NAME_NOTHING /* was withdrawn */
};
#define N_NAME_KINDS 5u /* but the last */

struct name_op {
	enum name_kind kind;
	uint32_t client;
	uint32_t a, b; /* which names; b: rename's target */
	/* Create: whom; lookup: who was found, 0: nobody; link: who is to have this name, too. */
	uint32_t tag;
	bool ok;     /* create: was not there; unlink, rename: was there; link: both */
	bool exists; /* link that is not ok: the name was there; else nobody had a name any more */
	uint64_t begin, end;
};

struct name_history {
	struct name_op *ops;
	size_t n, space;
};

size_t name_begin(struct name_history *h, const struct name_op *op, uint64_t at);
/* tag: who was found; of a link that is not ok: whether its name was there. */
void name_end(struct name_history *h, size_t op, bool ok, uint32_t tag, uint64_t at);
/* It has not happened, and will not. */
void name_void(struct name_history *h, size_t op, uint64_t at);
/* NAMES_NOT_DECIDED: not within the bound of the search. why: of the other two. */
enum names_verdict { NAMES_IMPOSSIBLE, NAMES_POSSIBLE, NAMES_NOT_DECIDED };
enum names_verdict name_check(const struct name_history *h, char why[LINEAR_WHY_SIZE]);
void name_free(struct name_history *h);

/*
 * ---- cells of files that are made shorter and longer: each by itself; all are behind the end in
 * the beginning ----
 *
 * A file is cut chunk by chunk: what was written meanwhile may stay, and with it the size, though
 * what was written before it, or after it elsewhere, is cut off. So a write behind the cell may
 * extend it once more until the cuts that it has met have ended.
 */
enum cell_kind {
	CELL_WRITE,  /* value */
	CELL_READ,   /* value, 0: zeros, CELL_ABSENT: the file ended before; CELL_EMPTY: either */
	CELL_LOOK,   /* value: whether the file is said to have it */
	CELL_CUT,    /* the file ends before */
	CELL_EXTEND, /* it ends behind: zeros, if it was absent; value: by a write behind it */
	CELL_STAYS,  /* of the checker itself */
};
#define CELL_ABSENT UINT32_MAX
#define CELL_EMPTY  (UINT32_MAX - 1)

struct cell_op {
	enum cell_kind kind;
	uint32_t cell, client;
	uint32_t value;
	uint64_t begin, end;
	uint64_t until; /* without an end: it does not happen later */
};

struct cell_history {
	struct cell_op *ops;
	size_t n, space;
};

size_t cell_begin(struct cell_history *h, const struct cell_op *op, uint64_t at);
/* Of what changes something; of what looks, with what was seen. */
void cell_done(struct cell_history *h, size_t op, uint64_t at);
void cell_saw(struct cell_history *h, size_t op, uint32_t value, uint64_t at);
/* Whatever has not ended of that client (it has died) does not happen any more; what the client saw
 * of it itself before it died tells nothing. */
void cell_over(struct cell_history *h, uint32_t client, uint64_t at);
/* As name_check. Sorts the history. */
enum names_verdict cell_check(struct cell_history *h, char why[LINEAR_WHY_SIZE]);
void cell_free(struct cell_history *h);

#endif
