/* SPDX-License-Identifier: Apache-2.0 */
/* TFRecord: a sequence of records, which are found only by following their lengths. */
#include "client/dataset/formats/tfrecord.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format.h"
#include "common/base/crc32c.h"

#define HEAD 12u /* length and its CRC */
#define TAIL 4u  /* the data's CRC */
/* One read contains many small records; of a large record only its ends are read. */
#define WINDOW     (64u << 10)

struct window {
	const struct format_input *in;
	struct format_fault *fault;
	uint64_t at;
	size_t have;
	uint8_t data[WINDOW];
};

/* Returns len bytes at off, in the window. */
static int bytes_at(struct window *w, uint64_t off, size_t len, const uint8_t **ret_bytes)
{
	if (off < w->at || off + len > w->at + w->have) {
		uint64_t left = w->in->size > off ? w->in->size - off : 0;
		size_t want = left < WINDOW ? (size_t)left : WINDOW;

		if (want < len)
			return format_damaged(w->fault, off, "truncated record");
		TRY(format_read(w->in, w->data, want, off, w->fault));
		w->at = off;
		w->have = want;
	}
	*ret_bytes = w->data + (off - w->at);
	return 0;
}

static int take_record(struct window *w, struct index_builder *b, uint64_t number, uint64_t *off)
{
	const uint8_t *p;
	uint64_t len;
	uint32_t crc;
	char key[24];

	TRY(bytes_at(w, *off, HEAD, &p));
	memcpy(&len, p, 8);
	memcpy(&crc, p + 8, 4);
	if (crc32c_unmask(crc) != crc32c(p, 8))
		return format_damaged(w->fault, *off, "a record's length does not match its CRC");
	if (len > w->in->size - *off - HEAD || w->in->size - *off - HEAD - len < TAIL)
		return format_damaged(w->fault, *off, "truncated record");
	TRY(bytes_at(w, *off + HEAD + len, TAIL, &p));
	memcpy(&crc, p, 4);
	index_add_sample(b, key, (size_t)snprintf(key, sizeof(key), "%llu",
						  (unsigned long long)number), -1);
	index_add_member(b, "record", 6, *off + HEAD, len);
	index_member_check(b, INDEX_CRC32C, crc32c_unmask(crc));
	*off += HEAD + len + TAIL;
	return index_builder_error(b);
}

int tfrecord_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault)
{
	struct window *w = malloc(sizeof(*w)); /* too large for a fiber's stack */
	uint64_t off = 0;
	int rc = 0;

	(void)o;
	*ret_fault = (struct format_fault){0, ""};
	if (!w)
		return -LE_NOMEM;
	w->in = in;
	w->fault = ret_fault;
	w->at = w->have = 0;
	for (uint64_t n = 0; rc == 0 && off < in->size; n++)
		rc = take_record(w, b, n, &off);
	free(w);
	return rc;
}
