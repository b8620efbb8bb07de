/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs `leat` as its users do, in a child process, and takes what it prints. Each command runs in a
 * new folder of its own, which is removed afterwards; in command lines and in what is printed `~`
 * stands for that folder. It has:
 *
 *   file          6 bytes            dir/a, dir/sub/b   5000 bytes, 1 byte
 *   bad.conf      a leat.conf with an unknown parameter
 *   good.conf     a leat.conf of a cluster without servers, whose key file does not exist
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
/* The same, with several lines in one folder, a newline between two: what the last one did. */
struct run run_lines(const char *lines);
/* Calls fn(arg) in a child process, so that neither its output nor its state stays. It may end by
 * leave, else its exit status is 0. */
struct run run_function(void (*fn)(void *arg), void *arg);
_Noreturn void leave(int code);
void run_fini(struct run *r);

struct run_row {
	const char *line;
	int code;
	const char *out, *err;
};
/* Each line, in a folder of its own, prints exactly that and ends with that exit status. */
void run_table(const struct run_row *rows, size_t n);
/* The same with all lines in one folder. A text may be NULL: anything; or begin with a *: what is
 * printed contains the rest of it. */
void run_steps(const struct run_row *rows, size_t n);

/* Of the function: prints exactly that on standard output. */
void assert_prints(void (*fn)(void *arg), void *arg, const char *out);
/* On standard error. */
void assert_says(void (*fn)(void *arg), void *arg, const char *err);

#endif
