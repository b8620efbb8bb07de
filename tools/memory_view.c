/* SPDX-License-Identifier: Apache-2.0 */
/* What the memory of servers and mounts is used for (common/base/memory.h). */
#include "tools/memory_view.h"

#include <stdio.h>

static void print_row(const char *name, json_int_t used, json_int_t max)
{
	printf("  %-34s %9.1f", name, (double)used / (1 << 20));
	if (max > 0)
		printf(" %9.1f", (double)max / (1 << 20));
	putchar('\n');
}

static void print_process(const char *title, const json_t *memory)
{
	static const char *const rest[][2] = {
		{"heap_other", "other parts of the heap"},
		{"heap_free", "heap that is free, and kept"},
		{"buffers", "buffers for data"},
		{"stacks", "stacks, rings and pools"},
		{"program", "program and libraries"},
	};
	const json_t *part;
	size_t i;

	printf("\n%-36s       MIB     LIMIT\n", title);
	json_array_foreach(json_object_get(memory, "parts"), i, part)
		print_row(json_string_value(json_object_get(part, "name")),
			  json_integer_value(json_object_get(part, "used")),
			  json_integer_value(json_object_get(part, "max")));
	for (i = 0; i < ARRAY_SIZE(rest); i++)
		print_row(rest[i][1], json_integer_value(json_object_get(memory, rest[i][0])), 0);
	print_row("resident", json_integer_value(json_object_get(memory, "resident")), 0);
}

void memory_print(const struct cluster *c, const json_t *mount)
{
	const json_t *m = json_object_get(c->mds_status, "memory");
	char title[ADDRS_SIZE + 32];

	if (m != NULL)
		print_process("MDS", m);
	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target_view *v = &c->targets[i];

		m = json_object_get(v->status, "memory");
		snprintf(title, sizeof(title), "TARGET %u", v->id);
		if (m != NULL)
			print_process(title, m);
	}
	m = json_object_get(mount, "memory");
	if (m != NULL)
		print_process("MOUNT", m);
}
