/*
 * What kv.c and the engines of this folder know of each other. Nobody else includes this.
 *
 * A batch is kept in RocksDB's own write batch format (db/write_batch.cc; the same bytes stand in
 * its log, so the format is stable): 8 bytes of sequence, 4 bytes of count, then records. So the
 * committer merges batches by joining their records, and encodes nothing twice.
 *
 *   0x01 key value | 0x00 key | 0x0f begin end     each string with a varint32 length before it
 */
#ifndef LEAT_KV_KV_ENGINE_H
#define LEAT_KV_KV_ENGINE_H

#include "common/kv/kv.h"

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
	const uint8_t *key, *value; /* value: also the end of a range */
	size_t key_len, value_len;
};

/* Next record at *at (start with KV_BATCH_HEAD): false at the end. Our own bytes: not checked. */
bool kv_batch_next(const uint8_t *rep, size_t len, size_t *at, struct kv_record *ret_record);
/* The records of src behind those of dst. */
int kv_batch_append(struct kv_batch *dst, const struct kv_batch *src) CHECK_RESULT;
/* With the count in its head: what an engine writes. */
const uint8_t *kv_batch_rep(struct kv_batch *b, size_t *ret_len);

/*
 * kv_value_fini knows no store, so the value tells by its lowest bit: set, own is plain memory;
 * clear, it is RocksDB's. (No allocation of our own per get.)
 */
static inline void *kv_value_tag_malloc(void *p)
{
	return (char *)p + 1;
}
void kv_rocksdb_value_fini(struct kv_value *v);

/*
 * Whether what is broken in the newest write-ahead log in the folder at path is its torn tail: no
 * whole record begins behind the first damage. Blocks: on a worker.
 */
bool kv_wal_damage_is_tail(const char *path);

#endif
