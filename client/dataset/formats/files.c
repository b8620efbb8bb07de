/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/files.h"

#include <stdlib.h>
#include <string.h>

struct name {
	const char *s;
	size_t len;
};

static int by_bytes(const void *a, const void *b)
{
	const struct name *x = a, *y = b;
	int rc = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
	return rc ? rc : (x->len > y->len) - (x->len < y->len);
}

/* Finds the classes, sorted. In sorted paths the files of a class follow each other, although
 * the classes may be in another order ("a-b/x" comes before "a/x"). */
static uint32_t find_classes(const struct files_entry *entries, uint32_t n, struct name *ret_names)
{
	uint32_t n_names = 0;
	for (uint32_t i = 0; i < n; i++) {
		const char *slash = strchr(entries[i].path, '/');
		if (!slash)
			continue;
		struct name c = {entries[i].path, (size_t)(slash - entries[i].path)};
		if (n_names == 0 || by_bytes(&ret_names[n_names - 1], &c) != 0)
			ret_names[n_names++] = c;
	}
	qsort(ret_names, n_names, sizeof(*ret_names), by_bytes);
	return n_names;
}

int files_index(struct index_builder *b, const struct files_entry *entries, uint32_t n)
{
	struct name *classes = malloc(((size_t)n + 1) * sizeof(*classes));
	if (!classes)
		return -LE_NOMEM;
	uint32_t n_classes = find_classes(entries, n, classes);
	for (uint32_t c = 0; c < n_classes; c++)
		index_add_class(b, classes[c].s, classes[c].len);
	for (uint32_t i = 0; i < n; i++) {
		const char *path = entries[i].path, *slash = strchr(path, '/');
		int32_t label = -1;
		if (slash) {
			struct name key = {path, (size_t)(slash - path)};
			const struct name *c =
				bsearch(&key, classes, n_classes, sizeof(*classes), by_bytes);
			label = (int32_t)(c - classes);
		}
		index_add_file(b, path, entries[i].size);
		index_add_sample(b, path, strlen(path), label);
		index_add_member(b, "data", 4, 0, entries[i].size);
	}
	free(classes);
	return index_builder_error(b);
}
