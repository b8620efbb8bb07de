/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all messages: op number to name, kind, sizes, encode, decode, print. Generated from
 * MDS_OPS, MDS_CALLBACKS, OSS_OPS and PEER_OPS.
 */
#ifndef LEAT_COMMON_PROTO_MESSAGES_H
#define LEAT_COMMON_PROTO_MESSAGES_H

#include "common/proto/peer_proto.h"

enum msg_kind { MSG_READ, MSG_WRITE, MSG_CTRL };

struct msg_desc {
	uint16_t op;
	const char *name; /* "mds_lookup" */
	enum msg_kind kind;
	size_t req_size, rep_size; /* of the C structs */
	void (*put_req)(struct wire_w *w, const void *m);
	void (*get_req)(struct wire_r *r, void *ret_m);
	void (*print_req)(FILE *out, const void *m);
	void (*put_rep)(struct wire_w *w, const void *m);
	void (*get_rep)(struct wire_r *r, void *ret_m);
	void (*print_rep)(FILE *out, const void *m);
};

#define MSG_STRUCT_MAX 512u /* no C struct of a message is larger (checked at compile time) */

const struct msg_desc *msg_find(uint16_t op); /* NULL: unknown */
const struct msg_desc *msg_table(uint32_t *ret_n);

#endif
