/* SPDX-License-Identifier: Apache-2.0 */
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
WIRE_DEFINE(file_lock)
WIRE_DEFINE(export_row)
WIRE_DEFINE(target_info)
WIRE_DEFINE(chain_info)
WIRE_DEFINE(table_info)
WIRE_DEFINE(dirent_wire)

int chain_members_get(const struct chain_info *info, struct chain_member ret_m[CHAIN_MEMBERS_MAX])
{
	uint32_t n = info->states.len;
	struct wire_r t, s;

	if (n == 0 || n > CHAIN_MEMBERS_MAX || info->members.len != 4 * n)
		return -LE_BAD_MESSAGE;
	wire_r_init(&t, info->members.data, info->members.len);
	wire_r_init(&s, info->states.data, info->states.len);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t state;

		wire_get_u32(&t, &ret_m[i].target);
		wire_get_u8(&s, &state);
		ret_m[i].state = (enum member_state)state;
		if (state > MEMBER_SYNC ||
		    (i > 0 && state == MEMBER_SYNC && ret_m[i - 1].state != MEMBER_SYNC))
			return -LE_BAD_MESSAGE;
		for (uint32_t k = 0; k < i; k++)
			if (ret_m[k].target == ret_m[i].target)
				return -LE_BAD_MESSAGE;
	}
	return (int)n;
}

void chain_members_put(const struct chain_member *m, uint32_t n, uint8_t buf[CHAIN_MEMBERS_BUF],
		       struct chain_info *info)
{
	struct wire_w w;

	wire_w_init(&w, buf, CHAIN_MEMBERS_BUF);
	for (uint32_t i = 0; i < n; i++)
		wire_put_u32(&w, &m[i].target);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t state = (uint8_t)m[i].state;

		wire_put_u8(&w, &state);
	}
	info->members = bytes_of(buf, 4 * n);
	info->states = bytes_of(buf + 4 * n, n);
}

void piece_encode(const struct piece *p, uint8_t out[PIECE_WIRE_SIZE])
{
	struct wire_w w;

	wire_w_init(&w, out, PIECE_WIRE_SIZE);
	wire_put_u32(&w, &p->off);
	wire_put_u32(&w, &p->len);
	wire_put_u32(&w, &p->stored_len);
	wire_put_u32(&w, &p->flags);
	wire_put_u64(&w, &p->sum);
	wire_put_u64(&w, &p->stored_sum);
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
	wire_get_u64(&r, &ret_piece->stored_sum);
}
