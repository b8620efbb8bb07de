/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding of messages and records: little-endian, fixed-width, append-only. Cursors have a sticky
 * error: the first error stays, later calls do nothing, the caller checks the status once at the
 * end.
 *
 * A struct is written once, as a list of fields:
 *
 *     #define example_FIELDS(F) F(u64, id) F(bytes, name) F(attr, attr)
 *     WIRE_STRUCT(example)          in a header: struct example, wire_put_example, _get_, _print_
 *     WIRE_DEFINE(example)          in one .c file
 *
 * A nested struct is preceded by its length (u16), so that either side may have more fields than
 * the other: missing fields read as zero, extra fields are skipped. This holds for a whole message
 * too, whose length is in the frame. Fields are only ever appended.
 */
#ifndef LEAT_COMMON_PROTO_WIRE_H
#define LEAT_COMMON_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/base/uuid.h"

/* Borrowed bytes: they point into the frame, the record or the caller's memory. */
struct bytes {
	const void *data;
	uint32_t len;
};

static inline struct bytes bytes_of(const void *data, uint32_t len)
{
	return (struct bytes){ data, len };
}
static inline struct bytes bytes_str(const char *s)
{
	return (struct bytes){ s, (uint32_t)strlen(s) };
}
static inline bool bytes_equal(struct bytes a, struct bytes b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

struct wire_w {
	uint8_t *buf;
	size_t cap, len;
	int status; /* -LE_TOO_BIG after something did not fit */
};
struct wire_r {
	const uint8_t *p, *end;
	int status; /* -LE_BAD_MESSAGE after malformed input */
};

static inline void wire_w_init(struct wire_w *w, void *buf, size_t cap)
{
	*w = (struct wire_w){ buf, cap, 0, 0 };
}
static inline void wire_r_init(struct wire_r *r, const void *data, size_t len)
{
	const uint8_t *p = data != NULL ? (const uint8_t *)data : (const uint8_t *)"";

	*r = (struct wire_r){ p, p + (data != NULL ? len : 0), 0 };
}
static inline bool wire_r_end(const struct wire_r *r)
{
	return r->status < 0 || r->p == r->end;
}

/* Returns the next len bytes. NULL if fewer are left; then status is set, unless at the very end of
 * the message, where a missing field is zero. */
const uint8_t *wire_take(struct wire_r *r, size_t len);

#define WIRE_CTYPE_u8 uint8_t
#define WIRE_CTYPE_u16 uint16_t
#define WIRE_CTYPE_u32 uint32_t
#define WIRE_CTYPE_u64 uint64_t
#define WIRE_CTYPE_i32 int32_t
#define WIRE_CTYPE_i64 int64_t
#define WIRE_CTYPE_bytes struct bytes
#define WIRE_CTYPE_uuid struct uuid

#define WIRE_DECLARE_(type, ctype) \
	void wire_put_##type(struct wire_w *w, const ctype *v); \
	void wire_get_##type(struct wire_r *r, ctype *ret_v); \
	void wire_print_##type(FILE *out, const ctype *v);
WIRE_DECLARE_(u8, uint8_t)
WIRE_DECLARE_(u16, uint16_t)
WIRE_DECLARE_(u32, uint32_t)
WIRE_DECLARE_(u64, uint64_t)
WIRE_DECLARE_(i32, int32_t)
WIRE_DECLARE_(i64, int64_t)
WIRE_DECLARE_(bytes, struct bytes) /* u32 length, then the bytes */
WIRE_DECLARE_(uuid, struct uuid)

#define WIRE_MEMBER_(type, name) WIRE_CTYPE_##type name;
#define WIRE_PUT_(type, name) wire_put_##type(w, &v->name);
#define WIRE_GET_(type, name) wire_get_##type(r, &v->name);
#define WIRE_PRINT_(type, name) \
	fputs(" " #name "=", out); \
	wire_print_##type(out, &v->name);

/* name##_FIELDS must be defined; with nested use also WIRE_CTYPE_name. */
#define WIRE_STRUCT(name) \
	struct name { \
		name##_FIELDS(WIRE_MEMBER_) \
	}; \
	WIRE_DECLARE_(name, struct name)

/* Encodes and decodes it as a field of other structs: with a length prefix. */
#define WIRE_DEFINE(name) \
	void wire_put_##name(struct wire_w *w, const struct name *v) \
	{ \
		size_t at_ = wire_begin_struct(w); \
		name##_FIELDS(WIRE_PUT_) \
		wire_end_struct(w, at_); \
	} \
	void wire_get_##name(struct wire_r *outer_, struct name *v) \
	{ \
		struct wire_r r_, *r = &r_; \
		wire_enter_struct(outer_, r); \
		name##_FIELDS(WIRE_GET_) \
		wire_leave_struct(outer_, r); \
	} \
	void wire_print_##name(FILE *out, const struct name *v) \
	{ \
		fputc('{', out); \
		name##_FIELDS(WIRE_PRINT_) \
		fputs(" }", out); \
	}

/* Encodes and decodes it as a whole message: without a length prefix. */
#define WIRE_DEFINE_MESSAGE(name) \
	void wire_put_##name(struct wire_w *w, const struct name *v) \
	{ \
		(void)w, (void)v; \
		name##_FIELDS(WIRE_PUT_) \
	} \
	void wire_get_##name(struct wire_r *r, struct name *v) \
	{ \
		(void)r, (void)v; \
		name##_FIELDS(WIRE_GET_) \
	} \
	void wire_print_##name(FILE *out, const struct name *v) \
	{ \
		(void)v; \
		fputc('{', out); \
		name##_FIELDS(WIRE_PRINT_) \
		fputs(" }", out); \
	}

size_t wire_begin_struct(struct wire_w *w);
void wire_end_struct(struct wire_w *w, size_t at);
void wire_enter_struct(struct wire_r *outer, struct wire_r *ret_inner);
void wire_leave_struct(struct wire_r *outer, const struct wire_r *inner);

#endif
