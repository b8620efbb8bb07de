/*
 * Which processors the calling thread may use, and their NUMA nodes. Plain functions over sched_*
 * and sysfs; at start only.
 */
#ifndef LEAT_RT_CPUS_H
#define LEAT_RT_CPUS_H

#include <stdbool.h>

#include "common/base/status.h"

/*
 * Keeps the calling thread on these processors: "0-3,8". "auto" takes those of the NUMA node (of
 * which the process may use some; a negative node: all stay), "all" leaves it as it is. Threads
 * made later by this one inherit it. -LE_CONFIG with a log line: not such a list, or none of them
 * may be used.
 */
int cpus_use(const char *list, int node) CHECK_RESULT;
/* The one NUMA node of all processors that the calling thread may use; -1: several, or unknown. */
int cpus_node(void);

#endif
