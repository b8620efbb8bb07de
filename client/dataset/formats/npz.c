/* SPDX-License-Identifier: Apache-2.0 */
/* The zip format of PKWARE's APPNOTE.TXT 6.3, sections 4.3.7 to 4.3.16. */
#include "client/dataset/formats/npz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format.h"

#define END_SIZE       22u
#define END_SEARCH     (END_SIZE + 65535u)
#define LOCATOR_SIZE   20u
#define END64_SIZE     56u
#define CENTRAL_SIZE   46u
#define LOCAL_SIZE     30u
#define DIRECTORY_MAX  (1u << 20)
#define INFLATE_FACTOR 1032u /* largest ratio of deflate */

enum { STORED = 0, DEFLATED = 8, ENCRYPTED = 1 };

struct zip {
	const struct format_input *in;
	struct format_fault *fault;
	struct index_builder *b;
	uint64_t dir_off, dir_len, n;
	uint8_t *dir;
};

struct entry {
	uint32_t flags, method, crc;
	uint64_t packed, raw, local;
	const char *name;
	uint32_t name_len;
};

static uint32_t u16(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8;
}
static uint32_t u32(const uint8_t *p)
{
	return u16(p) | u16(p + 2) << 16;
}
static uint64_t u64(const uint8_t *p)
{
	return u32(p) | (uint64_t)u32(p + 4) << 32;
}

/* Reads the zip64 record, which replaces the end record if its fields are too small. */
static int read_end64(struct zip *z, uint64_t end_off)
{
	uint8_t locator[LOCATOR_SIZE], end[END64_SIZE];

	if (end_off < LOCATOR_SIZE)
		return format_damaged(z->fault, end_off, "no zip64 record");
	TRY(format_read(z->in, locator, sizeof(locator), end_off - LOCATOR_SIZE, z->fault));
	if (memcmp(locator, "PK\6\7", 4) != 0)
		return format_damaged(z->fault, end_off, "no zip64 record");
	TRY(format_read(z->in, end, sizeof(end), u64(locator + 8), z->fault));
	if (memcmp(end, "PK\6\6", 4) != 0)
		return format_damaged(z->fault, u64(locator + 8), "no zip64 record");
	z->n = u64(end + 32);
	z->dir_len = u64(end + 40);
	z->dir_off = u64(end + 48);
	return 0;
}

static int take_end(struct zip *z, const uint8_t *end, uint64_t off)
{
	z->n = u16(end + 10);
	z->dir_len = u32(end + 12);
	z->dir_off = u32(end + 16);
	if (z->n == 0xffff || z->dir_len == UINT32_MAX || z->dir_off == UINT32_MAX)
		return read_end64(z, off);
	return 0;
}

/* True for the end record. Its signature may also occur in the comment, but only the end
 * record's comment ends at the end of the file. */
static bool is_end(const uint8_t *p, size_t left)
{
	return left >= END_SIZE && memcmp(p, "PK\5\6", 4) == 0 && u16(p + 20) == left - END_SIZE;
}

/* Searches the end record backwards: a comment may follow it. */
static int find_end(struct zip *z)
{
	size_t len = z->in->size < END_SEARCH ? (size_t)z->in->size : END_SEARCH;
	uint64_t at = z->in->size - len;
	uint8_t *tail = malloc(len + 1);
	int rc;

	if (!tail)
		return -LE_NOMEM;
	rc = format_read(z->in, tail, len, at, z->fault);
	if (rc == 0) {
		size_t i = len >= END_SIZE ? len - END_SIZE : 0;

		while (i > 0 && !is_end(tail + i, len - i))
			i--;
		if (!is_end(tail + i, len - i))
			rc = format_damaged(z->fault, at, "not a zip archive");
		else
			rc = take_end(z, tail + i, at + i);
	}
	free(tail);
	return rc;
}

/* Reads sizes above 32 bits from an extra field, in this order, each only if it is needed. */
static bool take_zip64(struct entry *e, const uint8_t *extra, uint32_t len)
{
	uint64_t *const wide[] = {&e->raw, &e->packed, &e->local};

	while (len >= 4) {
		uint32_t size = u16(extra + 2);
		const uint8_t *p = extra + 4;

		if (size > len - 4)
			return false;
		for (int i = 0; u16(extra) == 1 && i < 3; i++) {
			if (*wide[i] != UINT32_MAX)
				continue;
			if (p + 8 > extra + 4 + size)
				return false;
			*wide[i] = u64(p);
			p += 8;
		}
		extra += 4 + size;
		len -= 4 + size;
	}
	return true;
}

/* Reads the entry at *at of the directory and advances *at. */
static int take_entry(struct zip *z, uint64_t *at, struct entry *e)
{
	const uint8_t *p = z->dir + *at;
	uint64_t left = z->dir_len - *at, size;

	if (left < CENTRAL_SIZE || memcmp(p, "PK\1\2", 4) != 0)
		return format_damaged(z->fault, z->dir_off + *at, "damaged zip directory");
	*e = (struct entry){.flags = u16(p + 8),
			    .method = u16(p + 10),
			    .crc = u32(p + 16),
			    .packed = u32(p + 20),
			    .raw = u32(p + 24),
			    .local = u32(p + 42),
			    .name = (const char *)p + CENTRAL_SIZE,
			    .name_len = u16(p + 28)};
	size = CENTRAL_SIZE + (uint64_t)e->name_len + u16(p + 30) + u16(p + 32);
	if (size > left || !take_zip64(e, p + CENTRAL_SIZE + e->name_len, u16(p + 30)))
		return format_damaged(z->fault, z->dir_off + *at, "damaged zip directory");
	*at += size;
	return 0;
}

static int add_entry(struct zip *z, const struct entry *e)
{
	uint8_t local[LOCAL_SIZE];
	uint32_t len = e->name_len;
	uint64_t data;

	if (len <= 4 || memcmp(e->name + len - 4, ".npy", 4) != 0)
		return 0;
	len -= 4;
	if ((e->flags & ENCRYPTED) || (e->method != STORED && e->method != DEFLATED)) {
		*z->fault = (struct format_fault){e->local, "encrypted, or not deflate"};
		return -LE_NOTSUP;
	}
	TRY(format_read(z->in, local, sizeof(local), e->local, z->fault));
	if (memcmp(local, "PK\3\4", 4) != 0)
		return format_damaged(z->fault, e->local, "no member here");
	data = e->local + LOCAL_SIZE + u16(local + 26) + u16(local + 28);
	if (data > z->in->size || e->packed > z->in->size - data ||
	    (e->method == STORED && e->raw != e->packed) ||
	    (e->method == DEFLATED && e->raw / INFLATE_FACTOR > e->packed))
		return format_damaged(z->fault, e->local, "a member's size is out of bounds");
	if (index_has_member(z->b, e->name, len))
		return format_damaged(z->fault, e->local, "the same name twice");
	index_add_member(z->b, e->name, len, data, e->packed);
	if (e->method == DEFLATED)
		index_member_deflated(z->b, e->raw);
	index_member_check(z->b, INDEX_CRC32, e->crc);
	index_field_type(z->b, e->name, len, "npy");
	return index_builder_error(z->b);
}

/* The key of the sample is the file's path without ".npz". */
static int add_entries(struct zip *z)
{
	const char *path = z->in->path ? z->in->path : "0";
	size_t len = strlen(path);
	uint64_t at = 0;

	TRY(format_read(z->in, z->dir, z->dir_len, z->dir_off, z->fault));
	index_add_sample(z->b, path, len > 4 ? len - 4 : len, -1);
	for (uint64_t i = 0; i < z->n; i++) {
		struct entry e;

		TRY(take_entry(z, &at, &e));
		TRY(add_entry(z, &e));
	}
	return 0;
}

int npz_index(struct index_builder *b, const struct format_input *in,
	      const struct format_options *o, struct format_fault *ret_fault)
{
	struct zip z = {.in = in, .fault = ret_fault, .b = b};
	int rc;

	(void)o;
	*ret_fault = (struct format_fault){0, ""};
	TRY(find_end(&z));
	if (z.dir_len > DIRECTORY_MAX || z.dir_off > in->size)
		return format_damaged(ret_fault, z.dir_off, "zip directory out of bounds");
	z.dir = malloc(z.dir_len + 1);
	if (!z.dir)
		return -LE_NOMEM;
	rc = add_entries(&z);
	free(z.dir);
	return rc;
}
