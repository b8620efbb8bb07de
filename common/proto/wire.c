/* SPDX-License-Identifier: Apache-2.0 */
#include "common/proto/wire.h"

#include <inttypes.h>

#include "common/base/assert.h"

/* An absent `bytes` field points here, so callers need not handle NULL. */
static const uint8_t empty[1];

/* Appends len bytes. Returns NULL, and sets the status, if they do not fit. */
static uint8_t *reserve(struct wire_w *w, size_t len)
{
	ASSERT(w->len <= w->cap);
	if (w->status < 0)
		return NULL;
	if (len > w->cap - w->len) {
		w->status = -LE_TOO_BIG;
		return NULL;
	}
	uint8_t *p = w->buf + w->len;
	w->len += len;
	return p;
}

const uint8_t *wire_take(struct wire_r *r, size_t len)
{
	if (r->status < 0)
		return NULL;
	size_t left = (size_t)(r->end - r->p);
	if (len > left) {
		/* A peer of an older release does not send the field: it is wholly absent. */
		if (left > 0)
			r->status = -LE_BAD_MESSAGE;
		return NULL;
	}
	const uint8_t *p = r->p;
	r->p += len;
	return p;
}

static void put_le(struct wire_w *w, uint64_t v, unsigned n)
{
	uint8_t *p = reserve(w, n);
	if (p == NULL)
		return;
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(struct wire_r *r, unsigned n)
{
	const uint8_t *p = wire_take(r, n);
	uint64_t v = 0;
	if (p == NULL)
		return 0;
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

#define DEFINE_INT(type, ctype, fmt) \
	void wire_put_##type(struct wire_w *w, const ctype *v) \
	{ \
		put_le(w, (uint64_t)*v, sizeof(ctype)); \
	} \
	void wire_get_##type(struct wire_r *r, ctype *ret_v) \
	{ \
		*ret_v = (ctype)get_le(r, sizeof(ctype)); \
	} \
	void wire_print_##type(FILE *out, const ctype *v) \
	{ \
		fprintf(out, "%" fmt, *v); \
	}

DEFINE_INT(u8, uint8_t, PRIu8)
DEFINE_INT(u16, uint16_t, PRIu16)
DEFINE_INT(u32, uint32_t, PRIu32)
DEFINE_INT(u64, uint64_t, PRIu64)
DEFINE_INT(i32, int32_t, PRId32)
DEFINE_INT(i64, int64_t, PRId64)

void wire_put_bytes(struct wire_w *w, const struct bytes *v)
{
	put_le(w, v->len, 4);
	uint8_t *p = reserve(w, v->len);
	if (p != NULL && v->len > 0)
		memcpy(p, v->data, v->len);
}

void wire_get_bytes(struct wire_r *r, struct bytes *ret_v)
{
	*ret_v = bytes_of(empty, 0);
	uint32_t len = (uint32_t)get_le(r, 4);
	if (r->status < 0 || len == 0)
		return;
	if (len > (size_t)(r->end - r->p)) {
		r->status = -LE_BAD_MESSAGE;
		return;
	}
	*ret_v = bytes_of(r->p, len);
	r->p += len;
}

/* Prints enough to recognise a name; control characters and quotes as \xNN. */
void wire_print_bytes(FILE *out, const struct bytes *v)
{
	const uint8_t *p = v->data;
	uint32_t n = v->len < 64 ? v->len : 64;

	fputc('"', out);
	for (uint32_t i = 0; i < n; i++) {
		if (p[i] < 0x20 || p[i] > 0x7e || p[i] == '"' || p[i] == '\\')
			fprintf(out, "\\x%02x", p[i]);
		else
			fputc(p[i], out);
	}
	fputc('"', out);
	if (n < v->len)
		fprintf(out, "...(%" PRIu32 ")", v->len);
}

void wire_put_uuid(struct wire_w *w, const struct uuid *v)
{
	uint8_t *p = reserve(w, sizeof(v->b));
	if (p != NULL)
		memcpy(p, v->b, sizeof(v->b));
}

void wire_get_uuid(struct wire_r *r, struct uuid *ret_v)
{
	const uint8_t *p = wire_take(r, sizeof(ret_v->b));

	memset(ret_v, 0, sizeof(*ret_v));
	if (p != NULL)
		memcpy(ret_v->b, p, sizeof(ret_v->b));
}

void wire_print_uuid(FILE *out, const struct uuid *v)
{
	char text[UUID_TEXT_SIZE];

	uuid_format(v, text);
	fputs(text, out);
}

size_t wire_begin_struct(struct wire_w *w)
{
	size_t at = w->len;

	put_le(w, 0, 2);
	return at;
}

void wire_end_struct(struct wire_w *w, size_t at)
{
	if (w->status < 0)
		return;
	ASSERT(at + 2 <= w->len);
	size_t len = w->len - at - 2;
	if (len > UINT16_MAX) {
		w->status = -LE_TOO_BIG;
		return;
	}
	w->buf[at] = (uint8_t)len;
	w->buf[at + 1] = (uint8_t)(len >> 8);
}

void wire_enter_struct(struct wire_r *outer, struct wire_r *ret_inner)
{
	uint16_t len = (uint16_t)get_le(outer, 2);

	if (outer->status == 0 && len > (size_t)(outer->end - outer->p))
		outer->status = -LE_BAD_MESSAGE;
	*ret_inner = (struct wire_r){ outer->p, outer->p, outer->status };
	if (outer->status == 0)
		ret_inner->end = outer->p + len;
}

void wire_leave_struct(struct wire_r *outer, const struct wire_r *inner)
{
	if (outer->status == 0) {
		outer->status = inner->status;
		/* Skips the fields of a newer release. */
		outer->p = inner->end;
	}
}
