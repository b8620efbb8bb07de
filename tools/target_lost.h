/* SPDX-License-Identifier: Apache-2.0 */
/* leat target remove --lost: gives up targets that will not come back, and lists files that lose
 * data. */
#ifndef LEAT_TOOLS_TARGET_LOST_H
#define LEAT_TOOLS_TARGET_LOST_H

#include "tools/cluster.h"

#define LOSE_TARGETS_MAX 256u

struct lose_options {
	uint32_t ids[LOSE_TARGETS_MAX], n; /* in order, each once */
	uint8_t accept; /* enum lose_accept */
	const char *list; /* a file for the names of all files that lose data; NULL: none */
	int code;
};

/* For cluster_run, with a struct lose_options: sets its code to an exit status after a message or
 * the report. Returns 0 or a negative status of the metadata server. Yields. */
int target_lose(struct cluster *c, void *options);

#endif
