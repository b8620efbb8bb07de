/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/cpu_list.h"

#include <stdlib.h>

bool cpu_list_parse(const char *p, cpu_set_t *set)
{
	CPU_ZERO(set);
	while (*p != '\0' && *p != '\n') {
		char *end;
		unsigned long first, last;

		if (*p < '0' || *p > '9')
			return false;
		first = last = strtoul(p, &end, 10);
		if (*end == '-') {
			p = end + 1;
			if (*p < '0' || *p > '9')
				return false;
			last = strtoul(p, &end, 10);
		}
		if (last >= CPU_SETSIZE || first > last)
			return false;
		if (*end != ',' && *end != '\0' && *end != '\n')
			return false;
		for (unsigned long cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, set);
		p = *end == ',' ? end + 1 : end;
	}
	return CPU_COUNT(set) > 0;
}
