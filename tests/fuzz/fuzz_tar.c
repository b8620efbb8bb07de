/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a tar archive, and any bytes as a sample index: no crash, and what is accepted is
 * sound. */
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/tar.h"
#include "common/base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes_in {
	const uint8_t *data;
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

/* Corrects the checksums of headers, else nothing after them would be reached. */
static void mend_sums(uint8_t *data, size_t size)
{
	for (size_t off = 0; off + TAR_BLOCK <= size; off += TAR_BLOCK) {
		uint32_t sum = 8 * ' ';
		if (memcmp(data + off + 257, "ustar", 5) != 0)
			continue;
		for (size_t i = 0; i < TAR_BLOCK; i++)
			sum += i >= 148 && i < 156 ? 0 : data[off + i];
		for (int i = 5; i >= 0; i--, sum >>= 3)
			data[off + 148 + (size_t)i] = (uint8_t)('0' + (sum & 7));
		data[off + 154] = 0;
		data[off + 155] = ' ';
	}
}

static void check(const struct sample_index *x)
{
	void *data;
	size_t len;
	struct sample_index *again;
	ASSERT(index_encode(x, &data, &len) == 0);
	ASSERT(index_decode(data, len, &again) == 0);
	ASSERT(again->n_samples == x->n_samples && again->n_members == x->n_members);
	index_destroy(again);
	free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct index_builder *b;
	struct sample_index *x = NULL;
	struct format_fault fault;
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy || index_builder_create(INDEX_TAR, &b) < 0)
		abort();
	memcpy(copy, data, size);
	mend_sums(copy, size);
	struct bytes_in in = {copy, size};
	struct format_input input = {read_bytes, &in, size, NULL};
	index_add_file(b, "a.tar", size);
	if (tar_index(b, &input, &fault) == 0 && index_builder_finish(b, &x) == 0)
		check(x);
	index_destroy(x);
	index_builder_destroy(b);
	if (index_decode(data, size, &x) == 0)
		index_destroy(x);
	free(copy);
	return 0;
}
