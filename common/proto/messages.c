/* SPDX-License-Identifier: Apache-2.0 */
/* The code of every message, and their table, generated from the op lists. */
#include "common/proto/messages.h"

WIRE_DEFINE(fsck_inode)
WIRE_DEFINE(fsck_entry)
WIRE_DEFINE(lost_file)
WIRE_DEFINE(residency_row)
WIRE_DEFINE(quota_state)
WIRE_DEFINE(quota_row)
WIRE_DEFINE(residency_node)
WIRE_DEFINE(chunk_summary)
WIRE_DEFINE(resync_row)
WIRE_DEFINE(version_note)
WIRE_DEFINE(readv_part)
WIRE_DEFINE(readv_result)
WIRE_DEFINE(version_state)

#define ALL_OPS(M) MDS_OPS(M) MDS_CALLBACKS(M) OSS_OPS(M) PEER_OPS(M)

/* The table's functions take void *: a call through a pointer of another type is undefined. */
#define DEFINE_ONE(msg) \
	WIRE_DEFINE_MESSAGE(msg) \
	_Static_assert(sizeof(struct msg) <= MSG_STRUCT_MAX, \
		       #msg " is larger than MSG_STRUCT_MAX"); \
	static void put_##msg(struct wire_w *w, const void *m) \
	{ \
		wire_put_##msg(w, m); \
	} \
	static void get_##msg(struct wire_r *r, void *ret_m) \
	{ \
		wire_get_##msg(r, ret_m); \
	} \
	static void print_##msg(FILE *out, const void *m) \
	{ \
		wire_print_##msg(out, m); \
	}
#define DEFINE_BOTH(num, name, kind) DEFINE_ONE(name##_req) DEFINE_ONE(name##_rep)
ALL_OPS(DEFINE_BOTH)

#define INDEX(num, name, kind) INDEX_##name,
enum { ALL_OPS(INDEX) N_MESSAGES };

#define ROW(num, opname, opkind) \
	[INDEX_##opname] = { .op = num, \
			     .name = #opname, \
			     .kind = MSG_##opkind, \
			     .req_size = sizeof(struct opname##_req), \
			     .rep_size = sizeof(struct opname##_rep), \
			     .put_req = put_##opname##_req, \
			     .get_req = get_##opname##_req, \
			     .print_req = print_##opname##_req, \
			     .put_rep = put_##opname##_rep, \
			     .get_rep = get_##opname##_rep, \
			     .print_rep = print_##opname##_rep },
static const struct msg_desc table[N_MESSAGES] = { ALL_OPS(ROW) };

#define CASE(num, name, kind) \
	case num: \
		return &table[INDEX_##name];

/* A switch: a number that is used twice does not compile. */
const struct msg_desc *msg_find(uint16_t op)
{
	switch (op) {
		ALL_OPS(CASE)
	}
	return NULL;
}

const struct msg_desc *msg_table(uint32_t *ret_n)
{
	*ret_n = N_MESSAGES;
	return table;
}
