/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the first data of a file after a hole. The cost does not depend on the size of the hole. */
#include "ossd/chunk/chunk_next.h"


/* In a chain that lacks chunks, candidates are tested one by one, at most DOUBT_STEP per call. */
#define DOUBT_STEP 4096u

struct first {
	enum row_kind kind;
	uint64_t idx;
};

static int take_first(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct first *f = arg;
	struct chunk_key k;

	(void)value, (void)len;
	TRY(chunk_key_decode(f->kind, key, key_len, &k));
	f->idx = k.idx;
	return 1;
}

/* Sets *idx to the first row of that kind from *from to *last, if it is lower than *idx. */
static int find_first(struct chunk_store *s, enum row_kind kind, const struct chunk_key *from,
		      const struct chunk_key *last, uint64_t *idx)
{
	uint8_t begin[CHUNK_KEY_SIZE], end[CHUNK_KEY_SIZE + 1];
	struct kv_range range = {begin, sizeof(begin), end, sizeof(end), 1};
	struct first f = {.kind = kind, .idx = *idx};
	bool more;

	chunk_key_encode(kind, from, begin);
	chunk_key_encode(kind, last, end);
	end[CHUNK_KEY_SIZE] = 0;
	TRY(kv_scan(s->kv, NULL, &range, take_first, &f, &more));
	if (f.idx < *idx)
		*idx = f.idx;
	return 0;
}

/* Sets *idx to the first chunk that is lost or uncertain, if it is lower. Does not yield. */
static void find_lost(const struct chunk_store *s, const struct chunk_key *from,
		      const struct chunk_key *last, uint64_t *idx)
{
	struct chunk_key k = *from;
	struct chunk_key lost;

	switch (inventory_range(&s->inventory, from, last, &lost)) {
	case INVENTORY_NONE:
		return;
	case INVENTORY_LOST:
		if (lost.idx < *idx)
			*idx = lost.idx;
		/* A chunk before it may be uncertain. */
		break;
	case INVENTORY_UNSURE:
		break;
	}
	while (k.idx < *idx && k.idx <= last->idx && k.idx - from->idx < DOUBT_STEP &&
	       inventory_has(&s->inventory, &k) == INVENTORY_NONE)
		k.idx++;
	/* After DOUBT_STEP tests this chunk is returned untested: the client continues after it. */
	if (k.idx < *idx && k.idx <= last->idx)
		*idx = k.idx;
}

int chunk_next(struct chunk_store *s, const struct chunk_key *from, uint64_t last,
	       uint64_t *ret_idx)
{
	struct chunk_key end = *from;
	uint64_t idx = CHUNK_NONE;

	end.idx = last;
	if (from->idx > last || last == CHUNK_NONE)
		return -LE_INVAL;
	/* The index has committed changes only. */
	TRY(group_commit_barrier(&s->gc));
	TRY(find_first(s, ROW_CHUNK, from, &end, &idx));
	/* If a row K was lost since the start, its row N remains. */
	TRY(find_first(s, ROW_NAME, from, &end, &idx));
	find_lost(s, from, &end, &idx);
	*ret_idx = idx;
	return 0;
}
