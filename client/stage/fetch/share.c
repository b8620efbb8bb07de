/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/fetch/share.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/checksum.h"
#include "common/base/hmap.h"

struct ranked {
	uint64_t key;
	uint32_t file;
};

static int by_key(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->file < y->file ? -1 : x->file > y->file;
}

/* Assigns files to nodes. All bytes are divided into equal runs, one for each node, and a file
 * belongs to the run that its middle lies in. Empty files count as one byte, so that they are
 * spread too. */
static void deal(const struct manifest *m, const struct ranked *order, struct share *s)
{
	uint64_t all = m->bytes + m->n_files, at = 0;
	for (uint32_t i = 0; i < m->n_files; i++) {
		uint64_t size = m->files[order[i].file].size + 1;
		__uint128_t middle = (__uint128_t)at + size / 2;
		s->first[order[i].file] = (uint32_t)(middle * s->n_nodes / all);
		at += size;
	}
}

/* Chooses as many copies as fit; each node gets about copies / n of the bytes. */
static int choose_copies(const struct manifest *m, uint32_t n_nodes, uint64_t capacity,
			 uint32_t *ret_copies)
{
	__uint128_t space = (__uint128_t)capacity * n_nodes;
	if (capacity == 0 || m->bytes <= capacity) {
		*ret_copies = n_nodes;
		return 0;
	}
	if (space < m->bytes)
		return -LE_NOSPC;
	*ret_copies = (uint32_t)(space / m->bytes);
	return 0;
}

int share_make(const struct manifest *m, enum placement how, uint32_t copies, uint32_t n_nodes,
	       uint64_t capacity, struct share **ret_share)
{
	*ret_share = NULL;
	if (how == PLACE_PARTITION)
		copies = 1;
	if (how == PLACE_AUTO)
		TRY(choose_copies(m, n_nodes, capacity, &copies));
	if (how == PLACE_ALL || n_nodes <= 1 || copies >= n_nodes || copies == 0)
		return 0;
	struct share *s = calloc(1, sizeof(*s));
	struct ranked *order = calloc((size_t)m->n_files + 1, sizeof(*order));
	if (s)
		s->first = calloc((size_t)m->n_files + 1, sizeof(*s->first));
	if (!s || !order || !s->first) {
		free(order);
		share_destroy(s);
		return -LE_NOMEM;
	}
	s->n_nodes = n_nodes;
	s->copies = copies;
	for (uint32_t i = 0; i < m->n_files; i++) {
		const char *path = m->files[i].path;
		order[i].file = i;
		order[i].key =
			how == PLACE_PARTITION ? i : hash_u64(checksum64(path, strlen(path)));
	}
	qsort(order, m->n_files, sizeof(*order), by_key);
	deal(m, order, s);
	free(order);
	*ret_share = s;
	return 0;
}

void share_destroy(struct share *s)
{
	if (!s)
		return;
	free(s->first);
	free(s);
}

bool share_has(const struct share *s, uint32_t file, uint32_t node)
{
	return !s || (node + s->n_nodes - s->first[file]) % s->n_nodes < s->copies;
}
