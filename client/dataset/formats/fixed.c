/* SPDX-License-Identifier: Apache-2.0 */
/* Records of equal size after a header. */
#include "client/dataset/formats/fixed.h"

#include <stdio.h>

#include "client/dataset/formats/format.h"

int fixed_index(struct index_builder *b, const struct format_input *in,
		const struct format_options *o, struct format_fault *ret_fault)
{
	*ret_fault = (struct format_fault){0, ""};
	if (in->size < o->skip || (in->size - o->skip) % o->record != 0)
		return format_damaged(ret_fault, in->size,
				      "the file is not a header and whole records");
	for (uint64_t i = 0; i < (in->size - o->skip) / o->record; i++) {
		char key[24];

		index_add_sample(b, key, (size_t)snprintf(key, sizeof(key), "%llu",
							  (unsigned long long)i), -1);
		index_add_member(b, "record", 6, o->skip + i * o->record, o->record);
		TRY(index_builder_error(b));
	}
	return 0;
}
