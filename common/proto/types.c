#include "common/proto/types.h"

#include <inttypes.h>

void wire_put_ino(struct wire_w *w, const struct ino *v)
{
	wire_put_u64(w, &v->v);
}

void wire_get_ino(struct wire_r *r, struct ino *ret_v)
{
	wire_get_u64(r, &ret_v->v);
}

void wire_print_ino(FILE *out, const struct ino *v)
{
	fprintf(out, "%" PRIu64, v->v);
}

WIRE_DEFINE(chunk_id)
WIRE_DEFINE(layout)
WIRE_DEFINE(attr)
WIRE_DEFINE(cred)
WIRE_DEFINE(cap)
WIRE_DEFINE(target_info)
WIRE_DEFINE(chain_info)
WIRE_DEFINE(table_info)
WIRE_DEFINE(dirent_wire)

void piece_encode(const struct piece *p, uint8_t out[PIECE_WIRE_SIZE])
{
	struct wire_w w;

	wire_w_init(&w, out, PIECE_WIRE_SIZE);
	wire_put_u32(&w, &p->off);
	wire_put_u32(&w, &p->len);
	wire_put_u32(&w, &p->stored_len);
	wire_put_u32(&w, &p->flags);
	wire_put_u64(&w, &p->sum);
}

void piece_decode(const uint8_t in[PIECE_WIRE_SIZE], struct piece *ret_piece)
{
	struct wire_r r;

	wire_r_init(&r, in, PIECE_WIRE_SIZE);
	wire_get_u32(&r, &ret_piece->off);
	wire_get_u32(&r, &ret_piece->len);
	wire_get_u32(&r, &ret_piece->stored_len);
	wire_get_u32(&r, &ret_piece->flags);
	wire_get_u64(&r, &ret_piece->sum);
}
