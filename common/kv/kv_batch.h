/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of changes, in RocksDB's own write batch format (db/write_batch.cc; its log has the same
 * bytes, so the format is stable): 8 bytes of sequence, 4 bytes of count, then records. So the
 * committer merges batches by joining their records, and encodes nothing twice.
 *
 *   0x01 key value | 0x00 key | 0x0f begin end     each string with a varint32 length before it
 *
 * A batch belongs to its creator. Nothing here yields.
 */
#ifndef LEAT_COMMON_KV_KV_BATCH_H
#define LEAT_COMMON_KV_KV_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define KV_KEY_MAX   1024
#define KV_VALUE_MAX (1u << 20)

struct kv_batch;

struct kv_batch *kv_batch_create(void); /* NULL without memory */
void kv_batch_destroy(struct kv_batch *b);
void kv_batch_clear(struct kv_batch *b);
void kv_batch_put(struct kv_batch *b, const void *key, size_t key_len, const void *value,
		  size_t len);
void kv_batch_delete(struct kv_batch *b, const void *key, size_t key_len);
/* Deletes the keys [begin, end). */
void kv_batch_delete_range(struct kv_batch *b, const void *begin, size_t begin_len, const void *end,
			   size_t end_len);
uint32_t kv_batch_count(const struct kv_batch *b);
size_t kv_batch_bytes(const struct kv_batch *b);

/* ---- for the engines and the committer ---- */

#define KV_BATCH_MAGIC 0x4b564254u
#define KV_BATCH_HEAD 12

enum kv_op {
	KV_OP_DELETE = 0x0,
	KV_OP_PUT = 0x1,
	KV_OP_DELETE_RANGE = 0xf
};

struct kv_batch {
	uint32_t magic;
	int failed; /* sticky; kv_commit returns it */
	uint32_t n;
	size_t len, size;
	uint8_t *rep;
};

struct kv_record {
	enum kv_op op;
	const uint8_t *key, *value; /* value: of DELETE_RANGE, the end of the range */
	size_t key_len, value_len;
};

/* Returns the next record at *at (start with KV_BATCH_HEAD), or false at the end. The bytes are
 * those of a batch, and are not checked. */
bool kv_batch_next(const uint8_t *rep, size_t len, size_t *at, struct kv_record *ret_record);
/* Appends the records of src to dst. Returns 0 or the sticky error of dst. */
int kv_batch_append(struct kv_batch *dst, const struct kv_batch *src) CHECK_RESULT;
/* Returns the bytes that an engine writes, with the count in their head. */
const uint8_t *kv_batch_rep(struct kv_batch *b, size_t *ret_len);

#endif
