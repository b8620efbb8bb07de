/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a RocksDB write-ahead log (db/log_format.h) just well enough to distinguish a torn tail
 * from damage inside: blocks of 32 KiB with records of {masked crc32c, length, type} and data,
 * split into fragments at the ends of blocks. Called only for a log that RocksDB has refused.
 *
 * Zeros up to the end are no damage: they were written ahead of the log. A record that ends in
 * zeros is damaged.
 *
 * Limit: damage within the very last write cannot be distinguished from a torn one. A commit
 * counter that another server has recorded shows that the store has lost commits.
 */
#include "common/kv/kv_wal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/crc32c.h"

#define LOGS_MAX   64

enum {
	RECORD_FULL = 1,
	RECORD_FIRST = 2,
	RECORD_LAST = 4
};

struct wal_state {
	uint32_t n_whole; /* whole records before the first damage */
	bool damaged;
	/* written ahead (kv_wal_ahead.h): the end of the log, unless something follows */
	bool zeros;
	bool in_record;    /* the last whole fragment was not the last of its record */
	bool whole_behind; /* a whole write begins after the damage */
};

static bool record_ok(const uint8_t *p, size_t left, size_t *ret_len)
{
	if (left < KV_WAL_HEAD_SIZE)
		return false;
	size_t len = (size_t)p[4] | (size_t)p[5] << 8;
	if (p[6] < RECORD_FULL || p[6] > RECORD_LAST || KV_WAL_HEAD_SIZE + len > left)
		return false;
	uint32_t stored =
		(uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	*ret_len = KV_WAL_HEAD_SIZE + len;
	return stored == crc32c_mask(crc32c(p + 6, len + 1));
}

static bool all_zeros(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* After damage the lengths are unreliable: a record may begin at every byte. */
static void check_block(struct wal_state *s, const uint8_t *block, size_t size)
{
	size_t at = 0;
	while (at < size && !s->whole_behind) {
		size_t len;
		if (record_ok(block + at, size - at, &len)) {
			bool begins = block[at + 6] == RECORD_FULL || block[at + 6] == RECORD_FIRST;
			/* A record after zeros: part of a write that has lost its start. */
			s->damaged = s->damaged || s->zeros;
			s->whole_behind = s->damaged && begins;
			s->n_whole += !s->damaged;
			s->in_record = block[at + 6] != RECORD_FULL && block[at + 6] != RECORD_LAST;
			at += len;
		} else if (size - at >= KV_WAL_HEAD_SIZE && all_zeros(block + at, size - at)) {
			s->damaged = s->damaged || s->in_record;
			s->zeros = true;
			return;
		} else {
			/* Less than a head at the end of a block is padding. */
			s->damaged = s->damaged || size < KV_WAL_BLOCK_SIZE ||
				     size - at >= KV_WAL_HEAD_SIZE;
			at++;
		}
	}
}

static bool check_log(const char *path, struct wal_state *s)
{
	FILE *f = fopen(path, "re");
	uint8_t *block = malloc(KV_WAL_BLOCK_SIZE);
	bool ok = f != NULL && block != NULL;
	size_t n;
	while (ok && !s->whole_behind && (n = fread(block, 1, KV_WAL_BLOCK_SIZE, f)) > 0)
		check_block(s, block, n);
	ok = ok && ferror(f) == 0;
	free(block);
	if (f != NULL)
		fclose(f);
	return ok;
}

static int newest_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x > y ? -1 : x < y;
}

static int list_logs(const char *path, uint64_t numbers[LOGS_MAX])
{
	DIR *d = opendir(path);
	int n = 0;
	if (d == NULL)
		return 0;
	for (struct dirent *e = readdir(d); e != NULL && n < LOGS_MAX; e = readdir(d)) {
		char *end;
		uint64_t number = strtoull(e->d_name, &end, 10);
		if (end != e->d_name && strcmp(end, ".log") == 0)
			numbers[n++] = number;
	}
	closedir(d);
	qsort(numbers, (size_t)n, sizeof(*numbers), newest_first);
	return n;
}

bool kv_wal_damage_is_tail(const char *path)
{
	uint64_t numbers[LOGS_MAX];
	int n = list_logs(path, numbers);
	for (int i = 0; i < n; i++) {
		char file[4096 + 32];
		struct wal_state s = {0};
		int len = snprintf(file, sizeof(file), "%s/%06llu.log", path,
				   (unsigned long long)numbers[i]);
		if (len >= (int)sizeof(file) || !check_log(file, &s))
			return false;
		/* A log without a record: the damaged tail is in the one before. */
		if (s.n_whole > 0 || s.damaged)
			return s.damaged && !s.whole_behind;
	}
	return false;
}
