/* SPDX-License-Identifier: Apache-2.0 */
#include "common/proto/ranges.h"

#include "common/base/assert.h"
#include "common/base/planted_bug.h"

int ranges_get(struct bytes b, struct ranges *ret)
{
	struct ranges rs = {0};
	uint64_t at = 0;
	struct wire_r r;

	if (b.len % 16 != 0 || b.len > RANGES_SIZE)
		return -LE_BAD_MESSAGE;
	wire_r_init(&r, b.data, b.len);
	for (; rs.n < b.len / 16; rs.n++) {
		struct range *x = &rs.r[rs.n];

		wire_get_u64(&r, &x->off);
		wire_get_u64(&r, &x->end);
		if (x->off < at || x->end <= x->off)
			return -LE_BAD_MESSAGE;
		at = x->end;
	}
	*ret = rs;
	return 0;
}

struct bytes ranges_put(const struct ranges *rs, uint8_t *buf)
{
	struct wire_w w;

	wire_w_init(&w, buf, RANGES_SIZE);
	for (uint32_t i = 0; i < rs->n; i++) {
		wire_put_u64(&w, &rs->r[i].off);
		wire_put_u64(&w, &rs->r[i].end);
	}
	return bytes_of(buf, (uint32_t)w.len);
}

uint64_t ranges_bytes(const struct ranges *rs)
{
	return ranges_within(rs, 0, UINT64_MAX);
}

uint64_t ranges_within(const struct ranges *rs, uint64_t off, uint64_t end)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < rs->n; i++) {
		uint64_t from = rs->r[i].off > off ? rs->r[i].off : off;
		uint64_t to = rs->r[i].end < end ? rs->r[i].end : end;

		bytes += to > from ? to - from : 0;
	}
	return bytes;
}

static void forget_shortest(struct range *r, uint32_t *n)
{
	uint32_t least = 0;

	for (uint32_t i = 1; i < *n; i++)
		if (r[i].end - r[i].off < r[least].end - r[least].off)
			least = i;
	memmove(&r[least], &r[least + 1], (*n - least - 1) * sizeof(*r));
	--*n;
}

static void take(struct ranges *rs, struct range *r, uint32_t n)
{
	if (n > RANGES_MAX)
		forget_shortest(r, &n);
	ASSERT(n <= RANGES_MAX);
	for (uint32_t i = 0; i < n; i++)
		ASSERT(r[i].off < r[i].end && (i == 0 || r[i - 1].end <= r[i].off));
	memcpy(rs->r, r, n * sizeof(*r));
	rs->n = n;
}

void ranges_add(struct ranges *rs, uint64_t off, uint64_t end)
{
	struct range out[RANGES_MAX + 1], new = {off, end};
	uint32_t n = 0, i = 0;

	if (end <= off)
		return;
	while (i < rs->n && rs->r[i].end < off)
		out[n++] = rs->r[i++];
	for (; i < rs->n && rs->r[i].off <= end && !PLANTED_BUG(RANGES_OVERLAP); i++) {
		new.off = rs->r[i].off < new.off ? rs->r[i].off : new.off;
		new.end = rs->r[i].end > new.end ? rs->r[i].end : new.end;
	}
	out[n++] = new;
	while (i < rs->n)
		out[n++] = rs->r[i++];
	take(rs, out, n);
}

void ranges_remove(struct ranges *rs, uint64_t off, uint64_t end)
{
	struct range out[RANGES_MAX + 1];
	uint32_t n = 0;

	if (end <= off)
		return;
	for (uint32_t i = 0; i < rs->n; i++) {
		struct range x = rs->r[i];

		if (x.end <= off || x.off >= end) {
			out[n++] = x;
			continue;
		}
		if (x.off < off)
			out[n++] = (struct range){x.off, off};
		if (x.end > end)
			out[n++] = (struct range){end, x.end};
	}
	take(rs, out, n);
}
