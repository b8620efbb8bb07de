/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat-ossd check: reads the whole index of a store that is not in use. Checks that each record
 * decodes, that its extents lie inside the data file and belong to no other block, and that its
 * end matches its blocks. With --data, also reads every block and compares it with its checksum.
 * Prints one line per problem.
 */
#include "ossd/check.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "ossd/chunk/chunk_names.h"
#include "ossd/chunk/chunk_store.h"
#include "ossd/chunk/store_block.h"

#define CHECK_BATCH 256u

struct check {
	struct env *env;
	const struct ossd_params *p;
	FILE *report;
	struct kv *kv;
	struct store_super super;
	struct data_file data;
	struct extent_alloc alloc;
	struct replay replay;
	struct chunk_inventory inventory;
	uint64_t problems, n_chunks, n_blocks, bytes;
	struct chunk_names rows, names; /* chunks with a record (K), chunks with a name (N) */
	uint8_t next[KV_KEY_MAX + 1];
	size_t next_len;
	/* One batch of decoded records. Their data is read after the scan, which must not yield. */
	bool verify;
	struct chunk_key ids[CHECK_BATCH];
	struct chunk_record *recs[CHECK_BATCH];
	uint32_t n;
	struct slot_pool *pool;
	struct slot *buf, *plain;
};

static void chunk_problem(struct check *c, const struct chunk_key *id, int block, const char *what)
{
	c->problems++;
	fprintf(c->report, "chain=%u inode=%llu gen=%u chunk=%llu", id->chain,
		(unsigned long long)id->ino.v, id->gen, (unsigned long long)id->idx);
	if (block >= 0)
		fprintf(c->report, " block=%d", block);
	fprintf(c->report, ": %s\n", what);
}

static void check_extents(struct check *c, const struct chunk_key *id, const struct chunk_record *r)
{
	for (uint32_t i = 0; i < r->n_blocks; i++) {
		const struct chunk_block *b = &r->blocks[i];

		if (!b->len)
			continue;
		c->n_blocks++;
		c->bytes += b->len;
		if (b->unit + (uint64_t)block_units(b) > c->alloc.limit)
			chunk_problem(c, id, (int)i, "its extent lies outside of the data file");
		else if (extent_take(&c->alloc, b->unit, block_units(b)) < 0)
			chunk_problem(c, id, (int)i, "its extent belongs to another block as well");
	}
}

static int check_chunk(struct check *c, const void *key, size_t key_len, const void *value,
		       size_t len)
{
	struct chunk_key id = {0};
	struct chunk_record *r = c->recs[c->n];
	struct chunk_summary_info info;

	if (chunk_key_decode(ROW_CHUNK, key, key_len, &id) < 0) {
		c->problems++;
		fprintf(c->report, "a key of %zu bytes is no chunk's\n", key_len);
		return 0;
	}
	c->n_chunks++;
	chunk_names_add(&c->rows, &id);
	TRY(inventory_found(&c->inventory, &id));
	if (chunk_record_is_lost(&id, value, len)) {
		chunk_problem(c, &id, -1, "it is lost");
		return 0;
	}
	if (chunk_record_decode(&id, value, len, r, LEAT_BLOCKS_PER_CHUNK_MAX) < 0) {
		chunk_problem(c, &id, -1, "its record is damaged");
		return 0;
	}
	if (chunk_record_summary(&id, value, len, &info) < 0 || info.sum != chunk_record_sum(r))
		chunk_problem(c, &id, -1, "its content sum is not that of its blocks");
	if (r->version == 0)
		chunk_problem(c, &id, -1, "its version is 0");
	check_extents(c, &id, r);
	c->ids[c->n++] = id;
	return 0;
}

static int check_name(struct check *c, const void *key, size_t key_len)
{
	struct chunk_key id;

	if (chunk_key_decode(ROW_NAME, key, key_len, &id) < 0) {
		c->problems++;
		fprintf(c->report, "a key of %zu bytes is no chunk's name\n", key_len);
		return 0;
	}
	chunk_names_add(&c->names, &id);
	return 0;
}

/* Checks rows about a chunk or a chain that are not chunk records. */
static bool chain_row_valid(enum row_kind kind, const void *key, size_t key_len, const void *value,
			    size_t len)
{
	struct chain_info info;
	struct chunk_key k;
	struct wire_r r;
	uint32_t chain, epoch;
	uint64_t version;

	if (kind == ROW_PENDING || kind == ROW_CHANGED)
		return chunk_key_decode(kind, key, key_len, &k) == 0 && len == 0;
	if (chain_key_decode(kind, key, key_len, &chain) < 0)
		return false;
	if (kind == ROW_LOG || kind == ROW_SYNCED)
		return epoch_value_decode(value, len, &epoch) == 0;
	if (kind == ROW_FLOOR)
		return floor_value_decode(value, len, &version) == 0;
	wire_r_init(&r, value, len);
	wire_get_chain_info(&r, &info);
	return r.status == 0 && info.id == chain;
}

static int check_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;
	uint64_t session;

	memcpy(c->next, key, key_len);
	c->next[key_len] = 0;
	c->next_len = key_len + 1;
	switch (*(const uint8_t *)key) {
	case ROW_CHUNK:
		return check_chunk(c, key, key_len, value, len);
	case ROW_REPLAY:
		if (replay_load(&c->replay, key, key_len, value, len) < 0) {
			c->problems++;
			fprintf(c->report, "a remembered answer is damaged\n");
		}
		return 0;
	case ROW_INVENTORY:
		if (inventory_load(&c->inventory, key, key_len, value, len) < 0) {
			c->problems++;
			fprintf(c->report, "a row of the chunk inventory is damaged\n");
		}
		return 0;
	case ROW_META:
		if (key_len == INVENTORY_BEGAN_KEY_SIZE &&
		    memcmp(key, INVENTORY_BEGAN_KEY, key_len) == 0) {
			c->inventory.began = true;
			c->inventory.named = len > 0;
		}
		return 0;
	case ROW_NAME:
		return check_name(c, key, key_len);
	case ROW_WRITER:
		if (writer_key_decode(key, key_len, &session) < 0 || len > 1) {
			c->problems++;
			fprintf(c->report, "a row of a session is damaged\n");
		}
		return 0;
	case ROW_PENDING:
	case ROW_CHANGED:
	case ROW_LOG:
	case ROW_CHAIN:
	case ROW_FLOOR:
	case ROW_SYNCED:
		if (!chain_row_valid(*(const uint8_t *)key, key, key_len, value, len)) {
			c->problems++;
			fprintf(c->report, "a row of kind %c is damaged\n", *(const char *)key);
		}
		return 0;
	}
	c->problems++;
	fprintf(c->report, "a key of unknown kind 0x%02x\n", *(const uint8_t *)key);
	return 0;
}

/* Returns what is wrong with the block in c->buf; NULL: nothing. */
static const char *block_fault(const struct check *c, const struct chunk_block *b)
{
	const uint8_t *plain = c->buf->data;

	if (!chunk_block_good(b, c->buf->data))
		return "its data does not match its checksum";
	if (b->flags & BLOCK_LZ4) {
		if (decompress_block(plain, b->stored_len, c->plain->data, b->len) < 0)
			return "its data cannot be unpacked";
		plain = c->plain->data;
	}
	return checksum64(plain, b->len) == b->sum ? NULL : "unpacked it has another checksum";
}

static void check_data(struct check *c, const struct chunk_key *id, const struct chunk_record *r)
{
	for (uint32_t i = 0; i < r->n_blocks; i++) {
		const struct chunk_block *b = &r->blocks[i];
		const char *fault;
		int rc;

		if (!b->len || b->unit + (uint64_t)block_units(b) > c->alloc.limit)
			continue;
		rc = env_file_pread(c->data.f, c->buf->data, (size_t)block_units(b) * UNIT_SIZE,
				    block_file_off(b));
		fault = rc < 0 ? "cannot be read" : block_fault(c, b);
		if (fault)
			chunk_problem(c, id, (int)i, fault);
	}
}

static int check_index(struct check *c)
{
	bool more = true;

	while (more) {
		struct kv_range range = {
			.begin = c->next, .begin_len = c->next_len, .max_items = CHECK_BATCH};

		c->n = 0;
		TRY(kv_scan(c->kv, NULL, &range, check_row, c, &more));
		for (uint32_t i = 0; c->verify && i < c->n; i++)
			check_data(c, &c->ids[i], c->recs[i]);
	}
	return 0;
}

static int take_name(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct check *c = arg;

	(void)value, (void)len;
	memcpy(c->next, key, key_len);
	c->next[key_len] = 0;
	c->next_len = key_len + 1;
	if (chunk_key_decode(ROW_NAME, key, key_len, &c->ids[c->n]) == 0)
		c->n++;
	return 0;
}

/* Reports each chunk that has a name and no record, and then counts it among the records. */
static int look_at_names(struct check *c)
{
	static const uint8_t end = ROW_NAME + 1;
	bool more = true;

	c->next[0] = ROW_NAME;
	c->next_len = 1;
	while (more) {
		struct kv_range range = {c->next, c->next_len, &end, 1, CHECK_BATCH};

		c->n = 0;
		TRY(kv_scan(c->kv, NULL, &range, take_name, c, &more));
		for (uint32_t i = 0; i < c->n; i++) {
			uint8_t key[CHUNK_KEY_SIZE];
			struct kv_value v;
			int rc;

			chunk_key_encode(ROW_CHUNK, &c->ids[i], key);
			rc = kv_get(c->kv, key, sizeof(key), &v);
			if (rc == 0)
				kv_value_fini(&v);
			if (rc != -LE_NOENT) {
				TRY(rc);
				continue;
			}
			chunk_problem(c, &c->ids[i], -1, "the index has lost it");
			chunk_names_add(&c->rows, &c->ids[i]);
			if (inventory_suspects(&c->inventory, &c->ids[i]))
				inventory_named(&c->inventory, &c->ids[i]);
		}
	}
	return 0;
}

static int check_names(struct check *c)
{
	if (c->rows.n == c->names.n && c->rows.hash == c->names.hash)
		return 0;
	TRY(look_at_names(c));
	if (c->rows.n == c->names.n && c->rows.hash == c->names.hash)
		return 0;
	c->problems++;
	fprintf(c->report, "some of %llu chunks have no name in the index\n",
		(unsigned long long)c->rows.n);
	return 0;
}

static void print_lost(void *arg, const struct chunk_key *k)
{
	struct check *c = arg;

	chunk_problem(c, k, -1, "the index has lost it");
}

static void print_uncertain(void *arg, const struct inventory_uncertain *d)
{
	struct check *c = arg;

	fprintf(c->report,
		"chain=%u: %llu of these were of files with inode numbers up to %llu: a "
		"hole there that may be one of them cannot be read\n",
		d->chain, (unsigned long long)d->n_lost, (unsigned long long)d->upto);
}

/* Reports chunks that must exist and have no row. */
static int check_inventory(struct check *c)
{
	struct kv_batch *b = kv_batch_create();
	uint64_t lost, named;
	bool names = c->inventory.named;
	int rc;

	if (!b)
		return -LE_NOMEM;
	if (!c->inventory.began && c->rows.n > 0) {
		fprintf(c->report, "the index has lost the row that marks the chunk inventory\n");
		c->problems++;
	}
	lost = inventory_loaded(&c->inventory, b);
	named = c->problems;
	rc = names ? check_names(c) : 0;
	inventory_begin_uncertain(&c->inventory, b);
	kv_batch_destroy(b);
	TRY(rc);
	inventory_each_lost(&c->inventory, print_lost, c);
	named = c->problems - named;
	if (lost > named) {
		fprintf(c->report, "the index has lost %llu other chunks\n",
			(unsigned long long)(lost - named));
		c->problems += lost - named;
		inventory_each_uncertain(&c->inventory, print_uncertain, c);
	}
	return 0;
}

static int check_open(struct check *c)
{
	struct kv_options ko = {.cache_size = c->p->kv_cache_size};
	char path[STORE_PATH_MAX];
	struct kv_value v;
	struct wire_r r;
	int rc;

	for (uint32_t i = 0; i < CHECK_BATCH; i++) {
		c->recs[i] = calloc(
			1, chunk_record_size(LEAT_BLOCKS_PER_CHUNK_MAX, CHUNK_GAPS_MAX));
		if (!c->recs[i])
			return -LE_NOMEM;
	}
	TRY(slot_pool_create(LEAT_BLOCK_SIZE_MAX, 2, &c->pool));
	c->buf = slot_try_get(c->pool);
	c->plain = slot_try_get(c->pool);
	snprintf(path, sizeof(path), "%s/index", c->p->data_dir);
	TRY(kv_open(c->env, path, &ko, &c->kv));
	rc = kv_get(c->kv, SUPER_KEY, SUPER_KEY_SIZE, &v);
	if (rc < 0)
		return rc == -LE_NOENT ? -LE_STORE_FORMAT : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_store_super(&r, &c->super);
	kv_value_fini(&v);
	TRY(store_super_check(&r, &c->super, c->p->data_dir));
	snprintf(path, sizeof(path), "%s/data", c->p->data_dir);
	TRY(data_file_open(c->env, path, c->super.capacity, &c->super.uuid, &c->data));
	TRY(extent_alloc_init(&c->alloc, c->super.capacity / UNIT_SIZE, c->data.size / UNIT_SIZE));
	return c->data.device ? extent_take(&c->alloc, 0, DATA_LABEL_UNITS) : 0;
}

static void check_close(struct check *c)
{
	extent_alloc_fini(&c->alloc);
	replay_fini(&c->replay);
	inventory_fini(&c->inventory);
	data_file_close(&c->data);
	if (c->kv)
		kv_close(c->kv);
	slot_unref(c->buf);
	slot_unref(c->plain);
	if (c->pool)
		slot_pool_destroy(c->pool);
	for (uint32_t i = 0; i < CHECK_BATCH; i++)
		free(c->recs[i]);
	free(c);
}

int ossd_check(struct env *env, const struct ossd_params *p, bool verify_data, FILE *report,
	       uint64_t *ret_problems)
{
	struct check *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -LE_NOMEM;
	c->env = env;
	c->p = p;
	c->report = report;
	c->verify = verify_data;
	replay_init(&c->replay, UINT32_MAX);
	inventory_init(&c->inventory);
	rc = check_open(c);
	if (rc == 0)
		rc = check_index(c);
	if (rc == 0)
		rc = check_inventory(c);
	if (rc == 0) {
		fprintf(report, "%s: %llu chunks, %llu blocks, %llu bytes%s: %llu problems\n",
			p->data_dir, (unsigned long long)c->n_chunks,
			(unsigned long long)c->n_blocks, (unsigned long long)c->bytes,
			verify_data ? ", all read" : "", (unsigned long long)c->problems);
		*ret_problems = c->problems;
	}
	check_close(c);
	return rc;
}
