/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte chooses a message, the second request or reply; the rest is its bytes. */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/proto/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t one[1u << 17], two[1u << 17];
	static FILE *null;
	uint64_t m[MSG_STRUCT_MAX / 8 + 1];
	uint32_t n;
	const struct msg_desc *table = msg_table(&n);
	struct wire_r r;
	struct wire_w w;

	if (null == NULL)
		null = fopen("/dev/null", "w");
	if (size < 2 || size > 60000)
		return 0;
	const struct msg_desc *d = &table[data[0] % n];
	bool req = data[1] % 2 == 0;
	wire_r_init(&r, data + 2, size - 2);
	(req ? d->get_req : d->get_rep)(&r, m);
	if (r.status < 0)
		return 0;
	(req ? d->print_req : d->print_rep)(null, m);
	wire_w_init(&w, one, sizeof(one));
	(req ? d->put_req : d->put_rep)(&w, m);
	ASSERT(w.status == 0);
	size_t len = w.len;
	wire_r_init(&r, one, len);
	(req ? d->get_req : d->get_rep)(&r, m);
	ASSERT(r.status == 0);
	wire_w_init(&w, two, sizeof(two));
	(req ? d->put_req : d->put_rep)(&w, m);
	ASSERT(w.len == len && memcmp(one, two, len) == 0);
	return 0;
}
