/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processors the calling thread may use, and their NUMA nodes. Plain functions over sched_*
 * and sysfs; at start only.
 */
#ifndef LEAT_COMMON_RT_CPUS_H
#define LEAT_COMMON_RT_CPUS_H

#include <stdbool.h>

#include "common/base/status.h"

/*
 * Binds the calling thread to these processors: "0-3,8". "auto" means those processors of the NUMA
 * node that the process may use; without any, or with a negative node, it changes nothing. "all"
 * changes nothing. Threads created later by this one inherit the binding. -LE_CONFIG with a log
 * line: not such a list, or none of them may be used.
 */
int cpus_use(const char *list, int node) CHECK_RESULT;
/* The NUMA node that contains all processors of the calling thread; -1: several, or unknown. */
int cpus_node(void);

#endif
