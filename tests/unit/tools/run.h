/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs `leat` in a child process as users do, and returns what it prints. Each command runs in a
 * new folder of its own, which is removed afterwards. In command lines and in output `~` stands for
 * that folder. The folder has:
 *
 *   file          6 bytes            dir/a, dir/sub/b   5000 bytes, 1 byte
 *   bad.conf      a leat.conf with an unknown parameter
 *   good.conf     a leat.conf of a cluster without servers and without a key file
 *   copies/       an empty folder
 */
#ifndef LEAT_TESTS_UNIT_TOOLS_RUN_H
#define LEAT_TESTS_UNIT_TOOLS_RUN_H

#include <stddef.h>
#include <stdio.h>

#include "tools/tool.h"

struct run {
	int code;        /* exit status; -1: ended by a signal */
	char *out, *err; /* standard output and standard error */
};

/* Runs `leat LINE`, with blanks between the arguments; '' is an empty one. run_fini ends it. */
struct run run_leat(const char *line);
/* Like run_leat, with several lines in one folder, a newline between two. Returns the result of the
 * last one. */
struct run run_lines(const char *lines);
/* Calls fn(arg) in a child process, so that neither its output nor its state remains. fn may end
 * with leave; otherwise the exit status is 0. */
struct run run_function(void (*fn)(void *arg), void *arg);
_Noreturn void leave(int code);
void run_fini(struct run *r);

struct run_row {
	const char *line;
	int code;
	const char *out, *err;
};
/* Asserts that each line, in a folder of its own, prints exactly these texts and ends with this
 * status. */
void run_table(const struct run_row *rows, size_t n);
/* Like run_table, with all lines in one folder. A text may be NULL: anything; or begin with *: the
 * output contains the rest of it. */
void run_steps(const struct run_row *rows, size_t n);

/* Asserts that the function prints exactly this on standard output. */
void assert_prints(void (*fn)(void *arg), void *arg, const char *out);
/* Like assert_prints, for standard error. */
void assert_says(void (*fn)(void *arg), void *arg, const char *err);

#endif
