/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rt/cpus.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cpu_list.h"
#include "common/base/log.h"

#define LIST_SIZE 4096
#define NODES_MAX 1024

static bool node_cpus(int node, cpu_set_t *ret_set)
{
	char path[64], list[LIST_SIZE];

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	FILE *f = fopen(path, "re");
	if (f == NULL)
		return false;
	bool found = fgets(list, sizeof(list), f) != NULL && cpu_list_parse(list, ret_set);
	fclose(f);
	return found;
}

int cpus_use(const char *list, int node)
{
	cpu_set_t want, have;

	if (strcmp(list, "all") == 0)
		return 0;
	if (strcmp(list, "auto") == 0) {
		if (node < 0 || !node_cpus(node, &want))
			return 0;
	} else if (!cpu_list_parse(list, &want)) {
		log_error("cores = %s: must be auto, all, or a list such as 0-3,8", list);
		return -LE_CONFIG;
	}
	if (sched_getaffinity(0, sizeof(have), &have) < 0)
		return 0;
	CPU_AND(&want, &want, &have);
	if (CPU_COUNT(&want) == 0 && strcmp(list, "auto") == 0)
		return 0;
	if (CPU_COUNT(&want) == 0 || sched_setaffinity(0, sizeof(want), &want) < 0) {
		log_error("cores = %s: this process may use none of them", list);
		return -LE_CONFIG;
	}
	return 0;
}

int cpus_node(void)
{
	cpu_set_t have, of, both;

	if (sched_getaffinity(0, sizeof(have), &have) < 0)
		return -1;
	for (int node = 0; node < NODES_MAX; node++) {
		if (!node_cpus(node, &of)) {
			if (node > 0)
				break; /* numbers have gaps only on exotic machines */
			continue;
		}
		CPU_AND(&both, &of, &have);
		if (CPU_COUNT(&both) > 0)
			return CPU_COUNT(&both) == CPU_COUNT(&have) ? node : -1;
	}
	return -1;
}
