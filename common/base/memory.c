/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of this process, by /proc/self/status and mallinfo2. */
#include "common/base/memory.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"

struct memory {
	uint64_t resident; /* all of it; the sum of the next three */
	uint64_t anonymous, file, shared;
	uint64_t heap_used, heap_free; /* of malloc; it does not return heap_free to the system */
	uint64_t heap_mapped;          /* mapped by malloc */
};

static bool read_kernel(struct memory *m)
{
	const struct {
		const char *name;
		uint64_t *to;
	} rows[] = {{"VmRSS:", &m->resident},
		    {"RssAnon:", &m->anonymous},
		    {"RssFile:", &m->file},
		    {"RssShmem:", &m->shared}};
	uint32_t found = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	if (f == NULL)
		return false;
	while (fgets(line, sizeof(line), f) != NULL) {
		for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
			size_t len = strlen(rows[i].name);
			unsigned long long kib;

			if (strncmp(line, rows[i].name, len) == 0 &&
			    sscanf(line + len, "%llu kB", &kib) == 1) {
				*rows[i].to = kib << 10;
				found++;
			}
		}
	}
	fclose(f);
	return found == ARRAY_SIZE(rows);
}

/* Reads the numbers of kernel and heap. Returns 0, or -LE_IO without /proc. Takes some tens of
 * microseconds. */
static int read_all(struct memory *ret)
{
	struct mallinfo2 heap = mallinfo2();

	*ret = (struct memory){.heap_used = heap.uordblks + heap.hblkhd,
			       .heap_free = heap.fordblks,
			       .heap_mapped = heap.arena + heap.hblkhd};
	return read_kernel(ret) ? 0 : -LE_IO;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

json_t *memory_json(const struct memory_part *parts, int n)
{
	json_t *a = json_array();
	uint64_t explained = 0;
	struct memory m;

	if (read_all(&m) < 0) {
		json_decref(a);
		return NULL;
	}
	for (int i = 0; i < n; i++) {
		explained += parts[i].used;
		json_array_append_new(a, json_pack("{s:s,s:I,s:I}", "name", parts[i].name, "used",
						   (json_int_t)parts[i].used, "max",
						   (json_int_t)parts[i].max));
	}
	return json_pack("{s:I,s:o,s:I,s:I,s:I,s:I,s:I}", "resident", (json_int_t)m.resident,
			 "parts", a, "heap_other", (json_int_t)minus(m.heap_used, explained),
			 "heap_free", (json_int_t)m.heap_free, "stacks",
			 (json_int_t)minus(m.anonymous, m.heap_mapped), "buffers",
			 (json_int_t)m.shared, "program", (json_int_t)m.file);
}
