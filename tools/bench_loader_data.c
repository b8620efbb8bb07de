/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data of a workload's shape: sizes by its distribution, bytes that do not compress, in the format
 * that the workload uses. npz: "x" (bytes) and "y" (a number), stored; TFRecord: as many records in
 * a file as there. Files are written, synced, and dropped from the page cache.
 */
#include "tools/bench_loader_data.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc32c.h"
#include "common/base/hmap.h"
#include "common/base/inflate.h"
#include "tools/progress.h"

#define SAMPLE_MIN  64u
#define NPY_HEADER  128u /* of every array here */
#define ZIP_LOCAL   30u
#define ZIP_CENTRAL 46u
#define ZIP_END     22u
#define OPEN_FILES  16

/* A file that is being written: the first error stays. */
struct out {
	int fd, rc;
	uint64_t off;
};

struct maker {
	struct loader_bench *b;
	uint8_t *noise; /* as long as the largest sample */
	uint64_t noise_len, n_samples, bytes;
	uint64_t n_files;
	struct progress progress;
};

static void put(struct out *o, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	while (len > 0 && o->rc == 0) {
		ssize_t n = write(o->fd, p, len > (1u << 20) ? 1u << 20 : len);
		if (n < 0 || interrupted()) {
			o->rc = n < 0 ? -errno : -EINTR;
			return;
		}
		p += n;
		len -= (size_t)n;
		o->off += (uint64_t)n;
	}
}

static void le(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* The sum of twelve uniform numbers has variance 1 and is normal except for its tails. */
static double normal(uint64_t seed, uint64_t i)
{
	double sum = -6;

	for (uint64_t k = 0; k < 12; k++)
		sum += (double)(hash_u64_2(seed + k, i) >> 11) / (double)(1ull << 53);
	return sum;
}

static uint64_t sample_bytes(const struct loader_bench *b, uint64_t i)
{
	double n = (b->w->record_mean + b->w->record_sd * normal(b->seed * 16, i)) * b->scale;

	return n < SAMPLE_MIN ? SAMPLE_MIN : (uint64_t)n;
}

static uint64_t sample_bytes_max(const struct loader_bench *b)
{
	/* normal() is at most 6. */
	return (uint64_t)((b->w->record_mean + 6 * b->w->record_sd) * b->scale) + SAMPLE_MIN;
}

/* ---- TFRecord ---- */

static void put_record(struct out *o, const uint8_t *data, uint64_t len)
{
	uint8_t head[12], tail[4];

	le(head, len, 8);
	le(head + 8, crc32c_mask(crc32c(head, 8)), 4);
	le(tail, crc32c_mask(crc32c(data, len)), 4);
	put(o, head, sizeof(head));
	put(o, data, len);
	put(o, tail, sizeof(tail));
}

/* ---- npz ---- */

/* Makes a header like that of numpy: padded so that the data are aligned. */
static void npy_header(uint8_t head[NPY_HEADER], const char *type, const char *shape)
{
	memset(head, ' ', NPY_HEADER);
	int n = snprintf((char *)head + 10, NPY_HEADER - 10,
			 "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);

	memcpy(head, "\x93NUMPY\x01\x00", 8);
	le(head + 8, NPY_HEADER - 10, 2);
	head[10 + n] = ' ';
	head[NPY_HEADER - 1] = '\n';
}

struct zip_member {
	const char *name;
	uint32_t crc;
	uint64_t len, off;
};

/* Fills in what the local and the central record have in common, from the version on. */
static void zip_common(uint8_t *p, const struct zip_member *m)
{
	le(p, 20, 2);
	le(p + 8, 0x5a21, 2); /* any day: 2025-01-01 */
	le(p + 10, m->crc, 4);
	le(p + 14, m->len, 4);
	le(p + 18, m->len, 4);
	le(p + 22, strlen(m->name), 2);
}

static void put_member(struct out *o, struct zip_member *m, const uint8_t *bytes)
{
	uint8_t head[ZIP_LOCAL] = "PK\3\4";

	m->off = o->off;
	m->crc = crc32_zip(bytes, m->len);
	zip_common(head + 4, m);
	put(o, head, sizeof(head));
	put(o, m->name, strlen(m->name));
	put(o, bytes, m->len);
}

static void put_directory(struct out *o, const struct zip_member *m, uint32_t n)
{
	uint64_t from = o->off;
	uint8_t end[ZIP_END] = "PK\5\6";

	for (uint32_t i = 0; i < n; i++) {
		uint8_t head[ZIP_CENTRAL] = "PK\1\2";
		le(head + 4, 20, 2);
		zip_common(head + 6, &m[i]);
		le(head + 42, m[i].off, 4);
		put(o, head, sizeof(head));
		put(o, m[i].name, strlen(m[i].name));
	}
	le(end + 8, n, 2);
	le(end + 10, n, 2);
	le(end + 12, o->off - from, 4);
	le(end + 16, from, 4);
	put(o, end, sizeof(end));
}

/* noise begins with space for the header of x. */
static void put_npz(struct out *o, uint8_t *noise, uint64_t len, uint64_t label)
{
	uint8_t y[NPY_HEADER + 8];
	char shape[32];
	struct zip_member m[2] = {{.name = "x.npy", .len = NPY_HEADER + len},
				  {.name = "y.npy", .len = sizeof(y)}};

	snprintf(shape, sizeof(shape), "(%" PRIu64 ",)", len);
	npy_header(noise, "|u1", shape);
	npy_header(y, "<i8", "(1,)");
	le(y + NPY_HEADER, label, 8);
	put_member(o, &m[0], noise);
	put_member(o, &m[1], y);
	put_directory(o, m, 2);
}

/* ---- files ---- */

static void put_samples(struct maker *m, struct out *o, uint64_t file)
{
	const struct workload *w = m->b->w;

	for (uint64_t i = 0; i < w->samples_per_file && o->rc == 0; i++) {
		uint64_t number = file * w->samples_per_file + i;
		uint64_t len = sample_bytes(m->b, number);
		le(m->noise + NPY_HEADER, number, 8); /* makes all samples differ */
		if (strcmp(w->format, "npz") == 0)
			put_npz(o, m->noise, len, number);
		else
			put_record(o, m->noise + NPY_HEADER, len);
		m->bytes += len;
		progress_update(&m->progress, m->bytes,
				(uint64_t)((double)m->n_samples * w->record_mean * m->b->scale),
				NULL);
	}
}

static int make_file(struct maker *m, const char *dir, uint64_t number)
{
	char path[PATH_MAX];
	struct out o = {.rc = 0};
	int n = snprintf(path, sizeof(path), "%s/%06" PRIu64 ".%s", dir, number, m->b->w->format);

	if (n >= (int)sizeof(path))
		return -ENAMETOOLONG;
	o.fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
	if (o.fd < 0)
		return -errno;
	put_samples(m, &o, number);
	if (o.rc == 0 && fsync(o.fd) < 0)
		o.rc = -errno;
	posix_fadvise(o.fd, 0, 0, POSIX_FADV_DONTNEED);
	if (close(o.fd) < 0 && o.rc == 0)
		o.rc = -errno;
	return o.rc;
}

static int make_files(struct maker *m, const char *dir)
{
	int rc = 0;

	m->noise_len = NPY_HEADER + sample_bytes_max(m->b);
	m->noise = malloc(m->noise_len + 8);
	if (!m->noise)
		return -ENOMEM;
	for (uint64_t i = 0; i < m->noise_len; i += 8)
		le(m->noise + i, hash_u64_2(m->b->seed, i), 8);
	progress_init(&m->progress, "generating");
	for (uint64_t i = 0; i < m->n_files && rc == 0; i++)
		rc = make_file(m, dir, i);
	progress_finish(&m->progress, 0);
	free(m->noise);
	return rc;
}

int bench_data_make(struct loader_bench *b, const char *dir, char *ret_path, size_t size)
{
	uint64_t need = b->steps * b->n_accelerators * b->w->batch;
	struct maker m = {.b = b, .n_samples = need};

	m.n_files = (need + b->w->samples_per_file - 1) / b->w->samples_per_file;
	if (sample_bytes_max(b) > UINT32_MAX / 2)
		return tool_usage(b->tool, "--scale: samples of more than 2 GiB");
	if (snprintf(ret_path, size, "%s/leat-bench.XXXXXX", dir) >= (int)size)
		return tool_usage(b->tool, "the path is too long");
	if (!mkdtemp(ret_path))
		return tool_error(b->tool, exit_of_errno(errno), NULL, "%s: %m", dir);
	int rc = make_files(&m, ret_path);
	if (rc == 0)
		return EXIT_OK;
	bench_data_remove(ret_path);
	if (rc == -EINTR)
		return tool_error(b->tool, EXIT_INTERRUPTED, NULL, "interrupted");
	return tool_error(b->tool, exit_of_errno(-rc), NULL, "%s: cannot make the data: %s", dir,
			  strerror(-rc));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	return type == FTW_DP ? rmdir(path) : unlink(path);
}

void bench_data_remove(const char *path)
{
	nftw(path, remove_one, OPEN_FILES, FTW_DEPTH | FTW_PHYS);
}

static int drop_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	int fd = type == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return type == FTW_F ? -1 : 0;
	int rc = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return rc ? -1 : 0;
}

int bench_data_drop(const char *path)
{
	return nftw(path, drop_one, OPEN_FILES, FTW_PHYS) == 0 ? 0 : errno ? -errno : -EIO;
}
