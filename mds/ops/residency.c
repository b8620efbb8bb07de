/* SPDX-License-Identifier: Apache-2.0 */
/* Locations of staged copies: nodes report them; nodes, users and schedulers query them. */
#include "common/rt/loop.h"
#include "mds/ops/ops.h"

#define PAGE_BYTES (128u << 10)

int mds_residency_set(struct op *op, const void *vin, void *vout)
{
	(void)vout;
	return residency_set(&op->m->residency, vin, loop_now_us());
}

int mds_residency_get(struct op *op, const void *vin, void *vout)
{
	struct mds_residency_get_rep *out = vout;
	uint8_t *buf = op_alloc(op, PAGE_BYTES);
	struct wire_w w;

	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, PAGE_BYTES);
	residency_get(&op->m->residency, vin, loop_now_us(), &w, &out->next);
	out->rows = bytes_of(buf, (uint32_t)w.len);
	return 0;
}
