/* SPDX-License-Identifier: Apache-2.0 */
/* A sample index beside a manifest: any bytes, with a corrected checksum. What is accepted can be
 * planned, and no member has its place outside the memory of the batch. */
#include <stdlib.h>
#include <string.h>

#include "client/loader/batch/batch.h"
#include "client/loader/batch/batch_plan.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"

#define HEAD      INDEX_HEAD_SIZE
#define BATCH_MAX 64u
#define BYTES_MAX ((uint64_t)1 << 40)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mend_sum(uint8_t *data, size_t size)
{
	if (size < HEAD)
		return;
	memset(data + HEAD - 8, 0, 8);
	uint64_t sum = checksum64_seed(data + HEAD, size - HEAD, checksum64(data, HEAD));
	memcpy(data + HEAD - 8, &sum, 8);
}

static void check_round_trip(const struct sample_index *x, const uint8_t *data, size_t size)
{
	void *again;
	size_t len;
	ASSERT(index_encode(x, &again, &len) == 0);
	ASSERT(len == size && memcmp(again, data, len) == 0);
	free(again);
}

static void check_places(const struct leat_batch *b)
{
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		const struct member_job *j = &b->jobs[i];
		uint64_t off = b->off[batch_at(b, j->row, j->sample)];
		ASSERT(j->m->len <= b->need && j->src <= b->need - j->m->len);
		ASSERT(j->m->raw <= b->need && off <= b->need - j->m->raw);
	}
	for (size_t i = 0; i < batch_at(b, b->n_rows, 0); i++) {
		if (b->off[i] != UINT64_MAX)
			ASSERT(b->len[i] <= b->need && b->off[i] <= b->need - b->len[i]);
	}
}

static void check_plan(struct sample_index *x)
{
	struct vol nowhere = {.origin = ORIGIN_LOCAL};
	struct leat_dataset *ds = calloc(1, sizeof(*ds));
	uint32_t n = x->n_samples < BATCH_MAX ? (uint32_t)x->n_samples : BATCH_MAX;
	struct field_set set;
	struct leat_batch b;
	ASSERT(ds);
	ds->x = x;
	ds->vol = &nowhere;
	ASSERT(field_set_init(&set, ds, NULL) == 0);
	ASSERT(batch_init(&b, ds, &set, n) == 0);
	for (uint32_t i = 0; i < n; i++)
		b.ids[i] = i;
	b.n = n;
	if (batch_plan(&b) == 0)
		check_places(&b);
	batch_fini(&b);
	field_set_fini(&set);
	free(ds);
}

/* Members are cut into pieces of 4 MiB: the list of larger ones would not fit the fuzzer's
 * memory. */
static bool is_small(const struct sample_index *x)
{
	uint64_t left = BYTES_MAX;
	for (uint64_t m = 0; m < x->n_members; m++) {
		if (x->members[m].len > left)
			return false;
		left -= x->members[m].len;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sample_index *x;
	uint8_t *copy = malloc(size + 1);
	ASSERT(copy);
	memcpy(copy, data, size);
	mend_sum(copy, size);
	if (index_decode(copy, size, &x) == 0) {
		check_round_trip(x, copy, size);
		if (is_small(x))
			check_plan(x);
		index_destroy(x);
	}
	free(copy);
	return 0;
}
