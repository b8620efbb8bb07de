/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/fanout_disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/rt/env_backend.h"

enum fanout_where {
	NOWHERE,
	PART_EMPTY, /* part/N, without bytes */
	PART_SIZED, /* of the right size */
	PART,       /* with its bytes */
	DATA        /* data/NAME */
};

#define NO_CHUNK UINT32_MAX

struct disk_file {
	struct env_file base;
	struct fanout_disk *disk;
	uint32_t chunk; /* NO_CHUNK: a file whose content the model ignores, such as the bitmap */
};

static struct fanout_disk *disk_of(struct env *env)
{
	return container_of(env, struct fanout_disk, env);
}

static struct disk_file *file_of(struct env_file *f)
{
	return container_of(f, struct disk_file, base);
}

void fanout_fill(uint32_t i, uint8_t ret_data[FANOUT_CHUNK])
{
	uint64_t word = hash_u64(i + 1);
	for (uint32_t at = 0; at < FANOUT_CHUNK; at += sizeof(word), word += i + 1)
		memcpy(ret_data + at, &word, sizeof(word));
}

void fanout_name(uint32_t i, char ret_name[16])
{
	snprintf(ret_name, 16, "f%08u", i);
}

/* part/N or data/fN */
static uint32_t chunk_of(const struct fanout_disk *d, const char *path, bool *ret_part)
{
	const char *name = strrchr(path, '/');
	if (!name)
		return NO_CHUNK;
	size_t dir = (size_t)(name - path);
	*ret_part = dir >= 5 && memcmp(name - 5, "/part", 5) == 0;
	bool data = dir >= 5 && memcmp(name - 5, "/data", 5) == 0;
	unsigned long i = strtoul(name + (data ? 2 : 1), NULL, 10);
	return (*ret_part || data) && i < d->n_chunks ? (uint32_t)i : NO_CHUNK;
}

static bool exists(const struct fanout_disk *d, uint32_t chunk, bool part)
{
	uint8_t w = d->where[chunk];
	return part ? w == PART_EMPTY || w == PART_SIZED || w == PART : w == DATA;
}

static int disk_open(struct env *env, const char *path, int flags, mode_t mode,
		     struct env_file **ret_file)
{
	struct fanout_disk *d = disk_of(env);
	bool part = false;
	uint32_t chunk = chunk_of(d, path, &part);
	(void)mode;
	if (chunk != NO_CHUNK && !exists(d, chunk, part)) {
		if (!(flags & O_CREAT) || !part)
			return -LE_NOENT;
		d->where[chunk] = PART_EMPTY;
	}
	struct disk_file *f = calloc(1, sizeof(*f));
	if (!f)
		return -LE_NOMEM;
	f->base.env = env;
	f->disk = d;
	f->chunk = chunk;
	*ret_file = &f->base;
	return 0;
}

static void disk_close(struct env_file *f)
{
	free(file_of(f));
}

bool fanout_disk_read(const struct fanout_disk *d, uint32_t i, uint8_t ret_data[FANOUT_CHUNK])
{
	if (d->where[i] != PART && d->where[i] != DATA)
		return false;
	fanout_fill(i, ret_data);
	return true;
}

static int64_t disk_preadv(struct env_file *base, const struct iovec *iov, int n_iov, uint64_t off)
{
	struct disk_file *f = file_of(base);
	uint8_t data[FANOUT_CHUNK];
	ASSERT(n_iov == 1 && off == 0);
	if (f->chunk == NO_CHUNK || !fanout_disk_read(f->disk, f->chunk, data))
		return 0;
	size_t len = iov->iov_len < sizeof(data) ? iov->iov_len : sizeof(data);
	memcpy(iov->iov_base, data, len);
	return (int64_t)len;
}

static int64_t disk_pwritev(struct env_file *base, const struct iovec *iov, int n_iov, uint64_t off)
{
	struct disk_file *f = file_of(base);
	uint8_t data[FANOUT_CHUNK];
	ASSERT(n_iov == 1);
	if (f->chunk == NO_CHUNK)
		return (int64_t)iov->iov_len;
	fanout_fill(f->chunk, data);
	ASSERT(off == 0 && iov->iov_len == sizeof(data));
	if (memcmp(iov->iov_base, data, sizeof(data)) == 0)
		f->disk->where[f->chunk] = PART;
	else
		f->disk->n_wrong++;
	return (int64_t)iov->iov_len;
}

static int disk_datasync(struct env_file *f)
{
	(void)f;
	return 0;
}

static int disk_fallocate(struct env_file *f, int mode, uint64_t off, uint64_t len)
{
	(void)f;
	(void)mode;
	(void)off;
	(void)len;
	return 0;
}

static int disk_truncate(struct env_file *base, uint64_t size)
{
	struct disk_file *f = file_of(base);
	if (f->chunk != NO_CHUNK)
		f->disk->where[f->chunk] = size ? PART_SIZED : PART_EMPTY;
	return 0;
}

static void fill_stat(uint8_t where, struct stat *ret_st)
{
	*ret_st = (struct stat){.st_mode = S_IFREG | 0644,
				.st_size = where > PART_EMPTY ? FANOUT_CHUNK : 0};
}

static int disk_file_stat(struct env_file *base, struct stat *ret_st)
{
	struct disk_file *f = file_of(base);
	fill_stat(f->chunk == NO_CHUNK ? PART_EMPTY : f->disk->where[f->chunk], ret_st);
	return 0;
}

static int disk_path_stat(struct env *env, const char *path, struct stat *ret_st)
{
	struct fanout_disk *d = disk_of(env);
	bool part = false;
	uint32_t chunk = chunk_of(d, path, &part);
	if (chunk == NO_CHUNK || !exists(d, chunk, part))
		return -LE_NOENT;
	fill_stat(d->where[chunk], ret_st);
	return 0;
}

static int disk_mkdir(struct env *env, const char *path, mode_t mode)
{
	(void)env;
	(void)path;
	(void)mode;
	return 0;
}

static int disk_syncdir(struct env *env, const char *path)
{
	(void)env;
	(void)path;
	return 0;
}

static int disk_unlink(struct env *env, const char *path)
{
	struct fanout_disk *d = disk_of(env);
	bool part = false;
	uint32_t chunk = chunk_of(d, path, &part);
	if (chunk == NO_CHUNK || !exists(d, chunk, part))
		return -LE_NOENT;
	d->where[chunk] = NOWHERE;
	return 0;
}

static int disk_rename(struct env *env, const char *from, const char *to)
{
	struct fanout_disk *d = disk_of(env);
	bool from_part = false, to_part = false;
	uint32_t a = chunk_of(d, from, &from_part), b = chunk_of(d, to, &to_part);
	if (a == NO_CHUNK || a != b || !exists(d, a, from_part))
		return -LE_NOENT;
	/* No file gets its name without its bytes. */
	ASSERT(to_part || d->where[a] == PART);
	d->where[a] = to_part ? PART : DATA;
	return 0;
}

static const struct env_ops disk_ops = {
	.file_open = disk_open,
	.file_close = disk_close,
	.file_preadv = disk_preadv,
	.file_pwritev = disk_pwritev,
	.file_datasync = disk_datasync,
	.file_fallocate = disk_fallocate,
	.file_truncate = disk_truncate,
	.file_stat = disk_file_stat,
	.path_stat = disk_path_stat,
	.path_mkdir = disk_mkdir,
	.path_unlink = disk_unlink,
	.path_rename = disk_rename,
	.path_syncdir = disk_syncdir,
};

int fanout_disk_init(struct fanout_disk *d, uint32_t n_chunks)
{
	*d = (struct fanout_disk){.env = {&disk_ops}, .n_chunks = n_chunks};
	d->where = calloc(n_chunks, 1);
	return d->where ? 0 : -LE_NOMEM;
}

void fanout_disk_fini(struct fanout_disk *d)
{
	free(d->where);
}

bool fanout_disk_is_whole(const struct fanout_disk *d)
{
	for (uint32_t i = 0; i < d->n_chunks; i++) {
		if (d->where[i] != DATA)
			return false;
	}
	return d->n_wrong == 0;
}
