/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a start reads of the index: replies, inventory, and all records; their extents are marked
 * in the free map. Lost chunks get rows that mark them as lost before the first request.
 */
#include "ossd/chunk/store_load.h"

#include <stdlib.h>

#include "common/base/log.h"

#define LOAD_BATCH 4096u

struct load {
	struct chunk_store *s;
	uint8_t last[KV_KEY_MAX + 1];
	size_t last_len;
	struct chunk_record *rec; /* space for 256 blocks */
	uint64_t n, n_bad, n_lost;
	struct kv_batch *batch; /* rows to write because of what was read */
	/* Names, from one batch of rows, that may be of lost chunks. */
	struct chunk_key names[LOAD_BATCH];
	uint32_t n_names;
	int (*each)(struct load *l, const void *key, size_t key_len, const void *value, size_t len);
};

static int load_one(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;

	memcpy(l->last, key, key_len);
	l->last[key_len] = 0; /* the next key in order */
	l->last_len = key_len + 1;
	l->n++;
	return l->each(l, key, key_len, value, len);
}

/* Adds the rows of a lost chunk to the batch. The inventory counts it already. */
static void mark_lost(void *arg, const struct chunk_key *id)
{
	uint8_t key[CHUNK_KEY_SIZE], value[CHUNK_LOST_SIZE];

	chunk_key_encode(ROW_CHUNK, id, key);
	chunk_record_encode_lost(id, value);
	kv_batch_put(arg, key, sizeof(key), value, sizeof(value));
	inventory_put_name(id, arg);
}

/* Marks the collected names that have no chunk as lost. */
static int look_at_names(struct load *l)
{
	struct chunk_store *s = l->s;

	for (uint32_t i = 0; i < l->n_names; i++) {
		uint8_t key[CHUNK_KEY_SIZE];
		struct kv_value v;
		int rc;

		chunk_key_encode(ROW_CHUNK, &l->names[i], key);
		rc = kv_get(s->kv, key, sizeof(key), &v);
		if (rc == 0)
			kv_value_fini(&v);
		else if (rc != -LE_NOENT)
			return rc;
		/* Once its cell lacks nothing, a further name is that of a removed chunk. */
		if (rc == 0 || !inventory_suspects(&s->inventory, &l->names[i]))
			continue;
		inventory_named(&s->inventory, &l->names[i]);
		mark_lost(l->batch, &l->names[i]);
	}
	l->n_names = 0;
	return 0;
}

static int commit_made(struct load *l)
{
	if (!kv_batch_count(l->batch))
		return 0;
	TRY(kv_commit(l->s->kv, l->batch, l->s->p->sync));
	kv_batch_clear(l->batch);
	return 0;
}

static int load_range(struct load *l, char first)
{
	uint8_t end[1] = {(uint8_t)first + 1u};
	bool more = true;

	l->last[0] = (uint8_t)first;
	l->last_len = 1;
	while (more) {
		struct kv_range range = {l->last, l->last_len, end, sizeof(end), LOAD_BATCH};

		TRY(kv_scan(l->s->kv, NULL, &range, load_one, l, &more));
		TRY(look_at_names(l));
		TRY(commit_made(l));
	}
	return 0;
}

static int load_replay(struct load *l, const void *key, size_t key_len, const void *value,
		       size_t len)
{
	int rc = replay_load(&l->s->replay, key, key_len, value, len);

	if (rc != -LE_CORRUPT_STORE)
		return rc;
	log_error("target %u: a remembered answer is damaged: run leat-ossd check",
		  l->s->super.target);
	return 0;
}

static int load_writer(struct load *l, const void *key, size_t key_len, const void *value,
		       size_t len)
{
	int rc = writer_sessions_load(&l->s->writers, key, key_len, len);

	(void)value;
	if (rc != -LE_CORRUPT_STORE)
		return rc;
	log_error("target %u: the row of a session is damaged: run leat-ossd check",
		  l->s->super.target);
	return 0;
}

static int load_chunk(struct load *l, const void *key, size_t key_len, const void *value,
		      size_t len)
{
	struct chunk_store *s = l->s;
	struct chunk_key id = {0};
	int rc = chunk_key_decode(ROW_CHUNK, key, key_len, &id);

	if (rc == 0)
		TRY(inventory_found(&s->inventory, &id));
	if (rc == 0 && !s->inventory.named)
		inventory_put_name(&id, l->batch);
	if (rc == 0 && chunk_record_is_lost(&id, value, len)) {
		inventory_marked(&s->inventory, id.chain, 1);
		l->n_lost++;
		return 0;
	}
	if (rc == 0)
		rc = chunk_record_decode(&id, value, len, l->rec, LEAT_BLOCKS_PER_CHUNK_MAX);
	for (uint32_t i = 0; rc == 0 && i < l->rec->n_blocks; i++) {
		const struct chunk_block *b = &l->rec->blocks[i];

		if (b->len)
			rc = extent_take(&s->space.alloc, b->unit, block_units(b));
	}
	if (rc < 0)
		s->space.frozen = true;
	if (rc < 0 && l->n_bad++ < 16)
		log_error("inode=%llu gen=%u chunk=%llu target=%u: damaged record or extents: run "
			  "leat-ossd check",
			  (unsigned long long)id.ino.v, id.gen, (unsigned long long)id.idx,
			  s->super.target);
	return 0;
}

static int load_inventory(struct load *l, const void *key, size_t key_len, const void *value,
		       size_t len)
{
	int rc = inventory_load(&l->s->inventory, key, key_len, value, len);

	if (rc != -LE_CORRUPT_STORE)
		return rc;
	/* The cell counts fewer chunks than there are, so it is uncertain. */
	log_error("target %u: a row of the chunk inventory is damaged: run leat-ossd check",
		  l->s->super.target);
	return 0;
}

static int load_name(struct load *l, const void *key, size_t key_len, const void *value, size_t len)
{
	struct chunk_key id;

	(void)value, (void)len;
	if (chunk_key_decode(ROW_NAME, key, key_len, &id) < 0) {
		log_error("target %u: a name in the index is damaged: run leat-ossd check",
			  l->s->super.target);
		return 0;
	}
	if (inventory_suspects(&l->s->inventory, &id))
		l->names[l->n_names++] = id;
	return 0;
}

static int begin_inventory(struct load *l)
{
	static const uint8_t names = ROW_NAME, names_end = ROW_NAME + 1;
	struct chunk_store *s = l->s;
	struct kv_value v;
	int rc = kv_get(s->kv, INVENTORY_BEGAN_KEY, INVENTORY_BEGAN_KEY_SIZE, &v);

	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	s->inventory.began = rc == 0;
	s->inventory.named = rc == 0 && v.len > 0;
	if (rc == 0)
		kv_value_fini(&v);
	if (!s->inventory.named)
		kv_batch_delete_range(l->batch, &names, 1, &names_end, 1);
	TRY(commit_made(l));
	l->each = load_inventory;
	return load_range(l, ROW_INVENTORY);
}

static void log_uncertain(void *arg, const struct inventory_uncertain *d)
{
	const struct chunk_store *s = arg;

	log_error(
		"chain=%u target=%u: the index has lost %llu chunks and their names, of files with "
		"inode numbers up to %llu: there one chunk in %u that is not here may be one of "
		"them, and is not read as zeros",
		d->chain, s->super.target, (unsigned long long)d->n_lost,
		(unsigned long long)d->upto, INVENTORY_CELLS / d->n_cells);
}

/* Completes the inventory. In a store without one it is made of the present rows. Chunks that are
 * lost by name get a row before the first request: if a cell lacked a second chunk later, and
 * names were lost too, neither could be identified. */
static int end_inventory(struct load *l)
{
	struct chunk_store *s = l->s;
	bool began = s->inventory.began;
	uint64_t lost = inventory_loaded(&s->inventory, l->batch), n_chunks = l->n;

	if (!began && n_chunks > 0)
		log_error("target %u: the index has lost the row that marks the chunk inventory: "
			  "earlier losses cannot be detected",
			  s->super.target);
	if (lost) {
		TRY(commit_made(l));
		l->each = load_name;
		TRY(load_range(l, ROW_NAME));
		l->n = n_chunks;
	}
	(void)inventory_mark_lost(&s->inventory, mark_lost, l->batch);
	inventory_begin_uncertain(&s->inventory, l->batch);
	TRY(commit_made(l));
	metric_set(&s->metrics->lost, lost + l->n_lost);
	if (lost)
		log_error("target %u: the index has lost %llu chunks", s->super.target,
			  (unsigned long long)lost);
	inventory_each_uncertain(&s->inventory, log_uncertain, s);
	if (l->n_lost)
		log_error("target %u: %llu chunks are known to be lost", s->super.target,
			  (unsigned long long)l->n_lost);
	return 0;
}

int store_load_index(struct chunk_store *s)
{
	struct load *l = calloc(1, sizeof(*l));
	int rc = -LE_NOMEM;

	if (!l)
		return rc;
	l->s = s;
	l->rec = calloc(1, chunk_record_size(LEAT_BLOCKS_PER_CHUNK_MAX, CHUNK_GAPS_MAX));
	l->batch = kv_batch_create();
	if (!l->rec || !l->batch)
		goto out;
	l->each = load_replay;
	rc = load_range(l, ROW_REPLAY);
	l->each = load_writer;
	if (rc == 0)
		rc = load_range(l, ROW_WRITER);
	if (rc == 0)
		rc = begin_inventory(l);
	if (rc < 0)
		goto out;
	l->each = load_chunk;
	l->n = 0;
	rc = load_range(l, ROW_CHUNK);
	if (rc == 0)
		rc = end_inventory(l);
	if (rc == 0 && s->super.target == 0)
		log_info("a store of %llu MiB, not registered as a target yet",
			 (unsigned long long)(space_total(&s->space) >> 20));
	else if (rc == 0)
		log_info("target %u: %llu chunks, %llu of %llu MiB in use, %llu damaged",
			 s->super.target, (unsigned long long)l->n,
			 (unsigned long long)(space_used(&s->space) >> 20),
			 (unsigned long long)(space_total(&s->space) >> 20),
			 (unsigned long long)l->n_bad);
out:
	if (l->batch)
		kv_batch_destroy(l->batch);
	free(l->rec);
	free(l);
	return rc;
}
