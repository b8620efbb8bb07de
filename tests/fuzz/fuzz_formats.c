/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file of each format of data sets (tar has a fuzzer of its own): the first byte
 * selects it. No crash, no endless list, and what is accepted is sound. The format of any bytes can
 * be detected. */
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format.h"
#include "client/dataset/formats/format_table.h"
#include "client/dataset/formats/npy.h"
#include "client/dataset/formats/sniff.h"
#include "common/base/assert.h"
#include "common/base/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes_in {
	uint8_t *data;
	size_t size;
};

static int64_t read_bytes(void *arg, void *buf, size_t len, uint64_t off)
{
	struct bytes_in *in = arg;

	if (off >= in->size)
		return 0;
	if (len > in->size - off)
		len = in->size - off;
	memcpy(buf, in->data + off, len);
	return (int64_t)len;
}

/* Corrects the CRCs of lengths, else nothing after the first would be reached. */
static void mend_lengths(uint8_t *data, size_t size)
{
	size_t off = 0;

	while (size - off >= 16) {
		uint64_t len;
		uint32_t crc = crc32c_mask(crc32c(data + off, 8));

		memcpy(&len, data + off, 8);
		memcpy(data + off + 8, &crc, 4);
		if (len > size - off - 16)
			return;
		off += 16 + (size_t)len;
	}
}

static void check(const struct sample_index *x)
{
	struct sample_index *again;
	void *data;
	size_t len;

	ASSERT(index_encode(x, &data, &len) == 0);
	ASSERT(index_decode(data, len, &again) == 0);
	ASSERT(again->n_samples == x->n_samples && again->n_members == x->n_members);
	index_destroy(again);
	free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"tfrecord", "mds", "ffrecord",
					    "npz",	"npy", "fixed:7+3"};
	struct format_options options;
	struct sample_index *x = NULL;
	struct format_fault fault;
	struct index_builder *b;
	struct npy ignored;
	struct sniffed what;

	if (size < 1)
		return 0;
	const char *name = names[data[0] % (sizeof(names) / sizeof(names[0]))];
	const struct format *f = format_find(name, &options);
	struct bytes_in in = {malloc(size), size - 1};
	struct format_input input = {read_bytes, &in, in.size, "a"};

	if (!in.data || index_builder_create(f->id, &b) < 0)
		abort();
	memcpy(in.data, data + 1, in.size);
	if (f->id == INDEX_TFRECORD)
		mend_lengths(in.data, in.size);
	index_add_file(b, "a", in.size);
	if (f->index(b, &input, &options, &fault) == 0 && index_builder_finish(b, &x) == 0)
		check(x);
	index_destroy(x);
	index_builder_destroy(b);
	(void)!npy_parse(in.data, in.size, &ignored);
	ASSERT(sniff(&input, &what) == 0 && what.format < INDEX_FORMATS);
	free(in.data);
	return 0;
}
