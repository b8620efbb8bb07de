/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/formats/sniff.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format_table.h"
#include "client/dataset/formats/tar.h"
#include "client/dataset/formats/unstream.h"
#include "common/base/assert.h"
#include "common/base/crc32c.h"

#define HEAD       1024u      /* bytes that are enough for a first check */
#define CONFIG_MAX (1u << 20) /* like in mds.c */

static const struct {
	const char *name, *suffix, *tar; /* "x.tar.gz" and "x.tgz" */
	enum packing packing;
	uint8_t magic[6], len;
} kinds[] = {
	{"gzip", ".gz", ".tgz", PACKED_GZIP, {0x1f, 0x8b, 8}, 3},
	{"zstd", ".zst", ".tzst", PACKED_ZSTD, {0x28, 0xb5, 0x2f, 0xfd}, 4},
	{"zstd", ".zstd", ".tzst", PACKED_ZSTD, {0x28, 0xb5, 0x2f, 0xfd}, 4},
	{"lz4", ".lz4", ".tlz4", PACKED_LZ4, {4, 0x22, 0x4d, 0x18}, 4},
	{"xz", ".xz", ".txz", PACKED_XZ, {0xfd, '7', 'z', 'X', 'Z', 0}, 6},
	{"bzip2", ".bz2", ".tbz2", PACKED_BZIP2, {'B', 'Z', 'h'}, 3},
};

const char *packing_name(enum packing p)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (kinds[i].packing == p)
			return kinds[i].name;
	}
	return "nothing";
}

static enum packing packing_of(const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (len >= kinds[i].len && memcmp(p, kinds[i].magic, kinds[i].len) == 0)
			return kinds[i].packing;
	}
	return PACKED_NOT;
}

/* ---- names ---- */

static const struct format *format_of_name(const char *path)
{
	for (const struct format *f = format_table; f->name; f++) {
		if (f->suffixes[0] && format_matches(f, path))
			return f;
	}
	return NULL;
}

/* Splits "x.tar.gz" into the name without the end, and the packing. */
static bool without_end(const char *path, char *ret_plain, size_t size, enum packing *ret_packing)
{
	size_t len = strlen(path);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t n = strlen(kinds[i].suffix), t = strlen(kinds[i].tar);
		*ret_packing = kinds[i].packing;
		if (len > n && strcmp(path + len - n, kinds[i].suffix) == 0) {
			snprintf(ret_plain, size, "%.*s", (int)(len - n), path);
			return true;
		}
		if (len > t && strcmp(path + len - t, kinds[i].tar) == 0) {
			snprintf(ret_plain, size, "%.*s.tar", (int)(len - t), path);
			return true;
		}
	}
	return false;
}

struct sniffed sniff_name(const char *path)
{
	char plain[INDEX_PATH_MAX + 8];
	enum packing packing = PACKED_NOT;
	const struct format *f = format_of_name(path);
	if (!f && without_end(path, plain, sizeof(plain), &packing))
		f = format_of_name(plain);
	return f ? (struct sniffed){f->id, packing} : (struct sniffed){INDEX_FILES, PACKED_NOT};
}

/* ---- bytes ---- */

static uint32_t u32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t u64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

/* True for the first member of an archive of numpy.savez. */
static bool is_npz(const uint8_t *p, size_t len)
{
	if (len < 30 || memcmp(p, "PK\3\4", 4) != 0)
		return false;
	size_t n = p[26] | (size_t)p[27] << 8;
	return n > 4 && n <= len - 30 && memcmp(p + 30 + n - 4, ".npy", 4) == 0;
}

static bool is_tfrecord(const uint8_t *p, size_t len)
{
	return len >= 12 && crc32c_unmask(u32(p + 8)) == crc32c(p, 8);
}

/* Returns 1, 0 beyond the end, or a negative status of the read. */
static int has_bytes(const struct format_input *in, void *buf, size_t len, uint64_t off)
{
	struct format_fault ignored;
	if (off > in->size || len > in->size - off)
		return 0;
	int rc = format_read(in, buf, len, off, &ignored);
	return rc == 0 ? 1 : rc == -LE_CORRUPT ? 0 : rc;
}

/* The first offset is after the table, and the last one is the end of the file. */
static int is_mds(const struct format_input *in, const uint8_t *p, size_t len)
{
	uint8_t last[4], brace;
	if (len < 12)
		return 0;
	uint64_t table = 4 + 4 * ((uint64_t)u32(p) + 1), first = u32(p + 4);
	if (first <= table || first - table > CONFIG_MAX || table > in->size - 4)
		return 0;
	int rc = has_bytes(in, last, sizeof(last), table - 4);
	if (rc <= 0 || u32(last) != in->size)
		return rc < 0 ? rc : 0;
	rc = has_bytes(in, &brace, 1, table);
	return rc <= 0 ? rc : brace == '{';
}

/* The first sample begins right after the table, and the last one within the file. */
static int is_ffrecord(const struct format_input *in, const uint8_t *p, size_t len)
{
	uint8_t off[8];
	uint64_t n = len >= 12 ? u64(p + 4) : 0;
	if (n == 0 || n > (in->size - 12) / 12)
		return 0;
	int rc = has_bytes(in, off, sizeof(off), 12 + 4 * n);
	if (rc <= 0 || u64(off) != 12 + 12 * n)
		return rc < 0 ? rc : 0;
	rc = has_bytes(in, off, sizeof(off), 12 + 4 * n + 8 * (n - 1));
	return rc <= 0 ? rc : u64(off) >= 12 + 12 * n && u64(off) <= in->size;
}

/* Returns the format, or a negative status of a read. p: the first bytes of the file. */
static int format_of_bytes(const struct format_input *in, const uint8_t *p, size_t len)
{
	if (len >= TAR_BLOCK && tar_begins(p))
		return INDEX_TAR;
	if (is_tfrecord(p, len))
		return INDEX_TFRECORD;
	if (is_npz(p, len))
		return INDEX_NPZ;
	if (len >= 6 && memcmp(p, "\x93NUMPY", 6) == 0)
		return INDEX_NPY;
	int rc = is_mds(in, p, len);
	if (rc != 0)
		return rc < 0 ? rc : INDEX_MDS;
	rc = is_ffrecord(in, p, len);
	if (rc != 0)
		return rc < 0 ? rc : INDEX_FFRECORD;
	return INDEX_FILES;
}

/* ---- packed files ---- */

/* Returns how much of the file may be needed before the first byte is unpacked: streams consist
 * of blocks. */
static uint64_t first_block(enum packing packing)
{
	return packing == PACKED_LZ4 ? SNIFF_MAX : packing == PACKED_ZSTD ? 256u << 10 : 64u << 10;
}

/* Recognizes only formats that their first bytes identify: the others need whole tables. */
static int format_of_packed(const struct format_input *in, enum packing packing)
{
	uint8_t head[HEAD];
	struct format_input start = *in;
	struct format_fault ignored;
	struct unstream *s;
	if (start.size > first_block(packing))
		start.size = first_block(packing);
	int rc = unstream_create(packing, &start, &s);
	if (rc < 0)
		return rc == -LE_NOTSUP ? (int)INDEX_FILES : rc;
	int64_t n = unstream_next(s, head, sizeof(head), &ignored);
	unstream_destroy(s);
	if (n == -LE_CORRUPT || n == -LE_NOTSUP)
		return INDEX_FILES;
	TRY((int)(n < 0 ? n : 0));
	if (n >= TAR_BLOCK && tar_begins(head))
		return INDEX_TAR;
	return is_tfrecord(head, (size_t)n) ? INDEX_TFRECORD : INDEX_FILES;
}

static int look(const struct format_input *in, struct sniffed *ret)
{
	uint8_t buf[HEAD];
	size_t len = in->size < HEAD ? (size_t)in->size : HEAD;
	int rc = has_bytes(in, buf, len, 0);
	if (rc <= 0)
		return rc;
	enum packing packing = packing_of(buf, len);
	rc = format_of_bytes(in, buf, len);
	if (rc < 0)
		return rc;
	*ret = (struct sniffed){(enum index_format)rc, PACKED_NOT};
	if (rc != INDEX_FILES || packing == PACKED_NOT)
		return 0;
	rc = format_of_packed(in, packing);
	TRY(rc < 0 ? rc : 0);
	if (rc != INDEX_FILES)
		*ret = (struct sniffed){(enum index_format)rc, packing};
	return 0;
}

int sniff(const struct format_input *in, struct sniffed *ret_sniffed)
{
	struct sniffed s = {INDEX_FILES, PACKED_NOT};
	TRY(look(in, &s));
	*ret_sniffed = s.format == INDEX_FILES && in->path ? sniff_name(in->path) : s;
	return 0;
}
