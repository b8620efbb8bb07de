/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/store_block.h"

#include "common/base/checksum.h"
#include "common/base/copy_counter.h"
#include "common/base/log.h"

int store_corrupt(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		  const struct chunk_block *b)
{
	metric_add(&s->metrics->corrupt, 1);
	log_error(
		"inode=%llu gen=%u chunk=%llu block=%u target=%u extent=%llu+%u: stored data does "
		"not match its checksum",
		(unsigned long long)id->ino.v, id->gen, (unsigned long long)id->idx, index,
		s->super.target, (unsigned long long)block_file_off(b), b->stored_len);
	return -LE_CORRUPT;
}

int store_data_write(struct chunk_store *s, const struct iovec *iov, int n_iov, uint64_t off)
{
	int rc = env_file_pwritev(s->data.f, iov, n_iov, off);

	/* A quota of the server's own user is reported to writers like a full disk. */
	if (rc == -LE_DQUOT)
		rc = -LE_NOSPC;
	if (rc < 0 && rc != -LE_NOSPC)
		group_commit_fail(&s->gc, rc, "a write to the data file");
	return rc;
}

static int pread_block(struct chunk_store *s, const struct chunk_block *b, uint8_t *buf)
{
	return env_file_pread(s->data.f, buf, (size_t)block_units(b) * UNIT_SIZE,
			      block_file_off(b));
}

int store_stored_read(struct chunk_store *s, const struct chunk_key *id,
		      const struct chunk_record *rec, uint32_t index, uint8_t *buf)
{
	const struct chunk_block *b = &rec->blocks[index];

	TRY(pread_block(s, b, buf));
	return chunk_block_good(b, buf) ? 0 : store_corrupt(s, id, index, b);
}

int store_block_unpack(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		       const struct chunk_block *b, uint8_t *buf)
{
	if (b->flags & BLOCK_LZ4) {
		if (!chunk_block_good(b, buf))
			return store_corrupt(s, id, index, b);
		copy_counted(s->block, buf, b->stored_len);
		if (decompress_block(s->block, b->stored_len, buf, b->len) < 0)
			return store_corrupt(s, id, index, b);
		metric_add(&s->metrics->unpacks, 1);
	}
	return checksum64(buf, b->len) == b->sum ? 0 : store_corrupt(s, id, index, b);
}

int store_block_read(struct chunk_store *s, const struct chunk_key *id,
		     const struct chunk_record *rec, uint32_t index, uint8_t *buf)
{
	TRY(pread_block(s, &rec->blocks[index], buf));
	return store_block_unpack(s, id, index, &rec->blocks[index], buf);
}
