/* SPDX-License-Identifier: Apache-2.0 */
#include "common/proto/frame.h"

#include <stddef.h>
#include <sys/uio.h>

#include "common/base/checksum.h"
#include "common/proto/wire.h"

#define HASH_OFF (FRAME_HEADER_SIZE - 8u)

/* Descriptors are structs of the caller, and are sent as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "descriptors are copied unconverted");
_Static_assert(sizeof(struct frame_desc) == FRAME_DESC_SIZE &&
		       offsetof(struct frame_desc, len) == 8 &&
		       offsetof(struct frame_desc, key) == 12,
	       "struct frame_desc has the layout of the wire");

static uint64_t frame_hash(const uint8_t *header, const struct frame_hdr *h, const void *descs,
			   const void *body)
{
	struct iovec iov[3];
	int n = 0;

	iov[n++] = (struct iovec){ (void *)header, HASH_OFF };
	if (h->n_desc > 0)
		iov[n++] = (struct iovec){ (void *)descs, h->n_desc * FRAME_DESC_SIZE };
	if (h->body_len > 0)
		iov[n++] = (struct iovec){ (void *)body, h->body_len };
	return checksum64_iov(iov, n);
}

void frame_encode(const struct frame_hdr *h, const void *descs, const void *body,
		  uint8_t out[FRAME_HEADER_SIZE])
{
	struct wire_w w;

	wire_w_init(&w, out, FRAME_HEADER_SIZE);
	wire_put_u32(&w, &(uint32_t){ FRAME_MAGIC });
	wire_put_u8(&w, &h->type);
	wire_put_u8(&w, &h->flags);
	wire_put_u16(&w, &h->op);
	wire_put_u64(&w, &h->id);
	wire_put_u64(&w, &h->session);
	wire_put_u32(&w, &h->slot);
	wire_put_u32(&w, &h->epoch);
	wire_put_u64(&w, &h->seq);
	wire_put_i32(&w, &h->status);
	wire_put_u32(&w, &h->body_len);
	wire_put_u32(&w, &h->bulk_len);
	wire_put_u16(&w, &h->n_desc);
	wire_put_u16(&w, &h->credits);
	wire_put_u32(&w, &h->timeout_ms);
	wire_put_u32(&w, &h->target);
	wire_put_u32(&w, &h->chain);
	wire_put_u32(&w, &(uint32_t){ 0 });
	uint64_t hash = frame_hash(out, h, descs, body);
	wire_put_u64(&w, &hash);
}

int frame_decode(const uint8_t in[FRAME_HEADER_SIZE], struct frame_hdr *ret_hdr)
{
	struct frame_hdr h;
	struct wire_r r;
	uint32_t magic, reserved;

	wire_r_init(&r, in, FRAME_HEADER_SIZE);
	wire_get_u32(&r, &magic);
	wire_get_u8(&r, &h.type);
	wire_get_u8(&r, &h.flags);
	wire_get_u16(&r, &h.op);
	wire_get_u64(&r, &h.id);
	wire_get_u64(&r, &h.session);
	wire_get_u32(&r, &h.slot);
	wire_get_u32(&r, &h.epoch);
	wire_get_u64(&r, &h.seq);
	wire_get_i32(&r, &h.status);
	wire_get_u32(&r, &h.body_len);
	wire_get_u32(&r, &h.bulk_len);
	wire_get_u16(&r, &h.n_desc);
	wire_get_u16(&r, &h.credits);
	wire_get_u32(&r, &h.timeout_ms);
	wire_get_u32(&r, &h.target);
	wire_get_u32(&r, &h.chain);
	wire_get_u32(&r, &reserved);
	wire_get_u64(&r, &h.hash);
	if (magic != FRAME_MAGIC || h.type < FRAME_HELLO || h.type > FRAME_RELEASED ||
	    h.n_desc > FRAME_DESCS_MAX || h.status > 0 || reserved != 0)
		return -LE_BAD_FRAME;
	if (h.body_len > FRAME_BODY_MAX || h.bulk_len > FRAME_BULK_MAX)
		return -LE_TOO_BIG;
	*ret_hdr = h;
	return 0;
}

int frame_check(const uint8_t header[FRAME_HEADER_SIZE], const struct frame_hdr *h,
		const void *descs, const void *body)
{
	return frame_hash(header, h, descs, body) == h->hash ? 0 : -LE_BAD_HASH;
}
