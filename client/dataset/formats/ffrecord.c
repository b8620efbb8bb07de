/* SPDX-License-Identifier: Apache-2.0 */
/* FFRecord: see ffrecord.h for the layout of a file. */
#include "client/dataset/formats/ffrecord.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/formats/format.h"

#define HEAD 12u /* CRC of the head, number of samples */

static int add_samples(struct index_builder *b, const struct format_input *in, uint64_t n,
		       const uint8_t *head, struct format_fault *ret_fault)
{
	const uint8_t *crcs = head, *offsets = head + 4 * n;
	uint64_t begin, end, data = HEAD + 12 * n;

	for (uint64_t i = 0; i < n; i++) {
		char key[24];
		uint32_t crc;

		memcpy(&crc, crcs + 4 * i, 4);
		memcpy(&begin, offsets + 8 * i, 8);
		end = in->size;
		if (i + 1 < n)
			memcpy(&end, offsets + 8 * (i + 1), 8);
		if (begin < data || end < begin || end > in->size)
			return format_damaged(ret_fault, HEAD + 4 * n + 8 * i,
					      "a sample's offset is out of bounds");
		index_add_sample(b, key, (size_t)snprintf(key, sizeof(key), "%llu",
							  (unsigned long long)i), -1);
		index_add_member(b, "record", 6, begin, end - begin);
		index_member_check(b, INDEX_CRC32, crc);
		TRY(index_builder_error(b));
	}
	return 0;
}

int ffrecord_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault)
{
	uint8_t start[HEAD], *head;
	uint64_t n;
	int rc;

	(void)o;
	*ret_fault = (struct format_fault){0, ""};
	TRY(format_read(in, start, HEAD, 0, ret_fault));
	memcpy(&n, start + 4, 8);
	if (n > (in->size - HEAD) / 12)
		return format_damaged(ret_fault, 4, "more samples than fit into the file");
	head = malloc(12 * n + 1);
	if (!head)
		return -LE_NOMEM;
	rc = format_read(in, head, 12 * n, HEAD, ret_fault);
	if (rc == 0)
		rc = add_samples(b, in, n, head, ret_fault);
	free(head);
	return rc;
}
