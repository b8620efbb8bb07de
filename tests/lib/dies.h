/* SPDX-License-Identifier: Apache-2.0 */
/* Code that an assertion ends: planted bugs (common/base/planted_bug.h) in a child process. */
#ifndef LEAT_TESTS_LIB_DIES_H
#define LEAT_TESTS_LIB_DIES_H

/* Runs fn(arg) in a child process with the planted bug of that name ("spread_no_limit"). Fails the
 * test unless the child ends by SIGABRT after an assertion with that text. The caller has no
 * thread. */
void assert_dies(const char *bug, void (*fn)(void *arg), void *arg, const char *assertion);

#endif
