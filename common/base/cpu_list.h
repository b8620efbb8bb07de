/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of processors in the form of Linux and leat.conf: "0-3,8". Plain text; the machine is not
 * examined.
 */
#ifndef LEAT_COMMON_BASE_CPU_LIST_H
#define LEAT_COMMON_BASE_CPU_LIST_H

#include <sched.h>
#include <stdbool.h>

/* Parses text up to NUL or the end of the line. Returns false if it is no such list, or is
 * empty. */
bool cpu_list_parse(const char *text, cpu_set_t *ret_set);

#endif
