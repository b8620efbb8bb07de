/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the memory of this process is used for, for `leat status --memory`. It adds up two views of
 * the same bytes: what the kernel counts as resident, and what the heap reports, most of which are
 * the program's parts (caches, tables).
 */
#ifndef LEAT_COMMON_BASE_MEMORY_H
#define LEAT_COMMON_BASE_MEMORY_H

#include <jansson.h>
#include <stdint.h>

#include "common/base/status.h"

struct memory_part {
	const char *name;   /* for people: "inodes and names" */
	uint64_t used, max; /* bytes of the heap; max 0: limited only by other limits */
};

/* Returns {"resident":, "parts": [{"name":, "used":, "max":}, ...], "heap_other":, "heap_free":,
 * "stacks":, "buffers":, "program":}, in bytes. The parts and the later members add up to resident,
 * except for pages that malloc has and no code has touched. Returns NULL without memory or
 * /proc. */
json_t *memory_json(const struct memory_part *parts, int n);

#endif
