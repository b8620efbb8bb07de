/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the usage texts of commands: the verbs of a command, the part of its text about one of
 * them, and the word nearest to an unknown one. Only for output: each command decides itself what
 * it accepts.
 */
#ifndef LEAT_TOOLS_HELP_H
#define LEAT_TOOLS_HELP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tools/tool.h"

/* True if the usage text describes this verb, as `in` of "leat stage in". */
bool help_has_verb(const struct command *c, const char *verb);
/* Prints the part of the usage text about the verb; all of it for NULL or an unknown verb. */
void help_print(const struct command *c, const char *verb, FILE *out);
/* Returns the word that differs least, by at most two letters; NULL: there is none, or it is the
 * word itself. */
const char *help_nearest(const char *word, const char *const *words, size_t n_words);
/* Explains a wrong command line argv[0..argc) of c in buf: "unknown option '--chekc': did you mean
 * --check?", or likewise for a verb. Returns false if there is no better text than `text`, the
 * message of the command. */
bool help_explain(const struct command *c, int argc, char **argv, const char *text, char *buf,
		  size_t size);

#endif
