/*
 * What a start reads of the index: the answers, the ledger, all records, whose extents are marked
 * in the free map. What is lost gets rows that say so before anybody asks.
 */
#include <stdlib.h>

#include "common/base/log.h"
#include "ossd/chunk/store_impl.h"

#define LOAD_BATCH 4096u

struct load {
	struct chunk_store *s;
	uint8_t last[KV_KEY_MAX + 1];
	size_t last_len;
	struct chunk_record *rec; /* of 256 blocks */
	uint64_t n, n_bad, n_lost;
	struct kv_batch *batch; /* rows that are made with what was read */
	/* Names of which some may be lost, of one batch of rows. */
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

/* It is in the ledger already. */
static void mark_lost(void *arg, const struct chunk_key *id)
{
	uint8_t key[CHUNK_ROW_SIZE], value[CHUNK_LOST_SIZE];

	chunk_row_encode(ROW_CHUNK, id, key);
	chunk_record_encode_lost(id, value);
	kv_batch_put(arg, key, sizeof(key), value, sizeof(value));
	ledger_put_name(id, arg);
}

/* Which of the names have no chunk? */
static int look_at_names(struct load *l)
{
	struct chunk_store *s = l->s;

	for (uint32_t i = 0; i < l->n_names; i++) {
		uint8_t key[CHUNK_ROW_SIZE];
		struct kv_value v;
		int rc;

		chunk_row_encode(ROW_CHUNK, &l->names[i], key);
		rc = kv_get(s->kv, key, sizeof(key), &v);
		if (rc == 0)
			kv_value_fini(&v);
		else if (rc != -LE_NOENT)
			return rc;
		/* A name more than its cell has lost would be one that was removed. */
		if (rc == 0 || !ledger_suspects(&s->ledger, &l->names[i]))
			continue;
		ledger_named(&s->ledger, &l->names[i]);
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
	int rc = writers_load(&l->s->writers, key, key_len, len);

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
	int rc = chunk_row_decode(ROW_CHUNK, key, key_len, &id);

	if (rc == 0)
		TRY(ledger_found(&s->ledger, &id));
	if (rc == 0 && !s->ledger.named)
		ledger_put_name(&id, l->batch);
	if (rc == 0 && chunk_record_is_lost(&id, value, len)) {
		ledger_marked(&s->ledger, id.chain, 1);
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

static int load_ledger(struct load *l, const void *key, size_t key_len, const void *value,
		       size_t len)
{
	int rc = ledger_load(&l->s->ledger, key, key_len, value, len);

	if (rc != -LE_CORRUPT_STORE)
		return rc;
	/* What is there of that cell is more than it knows of: it is in doubt. */
	log_error("target %u: a row of the ledger is damaged: run leat-ossd check",
		  l->s->super.target);
	return 0;
}

static int load_name(struct load *l, const void *key, size_t key_len, const void *value, size_t len)
{
	struct chunk_key id;

	(void)value, (void)len;
	if (chunk_row_decode(ROW_NAME, key, key_len, &id) < 0) {
		log_error("target %u: a name in the index is damaged: run leat-ossd check",
			  l->s->super.target);
		return 0;
	}
	if (ledger_suspects(&l->s->ledger, &id))
		l->names[l->n_names++] = id;
	return 0;
}

static int begin_ledger(struct load *l)
{
	static const uint8_t names = ROW_NAME, names_end = ROW_NAME + 1;
	struct chunk_store *s = l->s;
	struct kv_value v;
	int rc = kv_get(s->kv, LEDGER_BEGAN_KEY, LEDGER_BEGAN_KEY_SIZE, &v);

	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	s->ledger.began = rc == 0;
	s->ledger.named = rc == 0 && v.len > 0;
	if (rc == 0)
		kv_value_fini(&v);
	if (!s->ledger.named)
		kv_batch_delete_range(l->batch, &names, 1, &names_end, 1);
	TRY(commit_made(l));
	l->each = load_ledger;
	return load_range(l, ROW_LEDGER);
}

static void tell_doubt(void *arg, const struct ledger_doubt *d)
{
	const struct chunk_store *s = arg;

	log_error(
		"chain=%u target=%u: the index has lost %llu chunks and their names, of files with "
		"inode numbers up to %llu: there one chunk in %u that is not here may be one of "
		"them, and is not read as zeros",
		d->chain, s->super.target, (unsigned long long)d->n_lost,
		(unsigned long long)d->upto, LEDGER_CELLS / d->n_cells);
}

/* The ledger of a store that has none yet is made of what is there. What is lost by name gets a row
 * before anybody asks: of two in a cell whose names are lost too nobody would know which. */
static int end_ledger(struct load *l)
{
	struct chunk_store *s = l->s;
	bool began = s->ledger.began;
	uint64_t lost = ledger_loaded(&s->ledger, l->batch), n_chunks = l->n;

	if (!began && n_chunks > 0)
		log_error("target %u: the index has lost the row that says that there is a ledger: "
			  "what it had lost before is not known any more",
			  s->super.target);
	if (lost) {
		TRY(commit_made(l));
		l->each = load_name;
		TRY(load_range(l, ROW_NAME));
		l->n = n_chunks;
	}
	(void)ledger_mark_lost(&s->ledger, mark_lost, l->batch);
	ledger_begin_doubts(&s->ledger, l->batch);
	TRY(commit_made(l));
	metric_set(&s->metrics->lost, lost + l->n_lost);
	if (lost)
		log_error("target %u: the index has lost %llu chunks", s->super.target,
			  (unsigned long long)lost);
	ledger_each_doubt(&s->ledger, tell_doubt, s);
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
		rc = begin_ledger(l);
	if (rc < 0)
		goto out;
	l->each = load_chunk;
	l->n = 0;
	rc = load_range(l, ROW_CHUNK);
	if (rc == 0)
		rc = end_ledger(l);
	if (rc == 0)
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
