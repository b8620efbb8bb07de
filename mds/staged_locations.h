/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node holds which staged copies, as the nodes report. Soft state: a node that does not
 * report within the time that it named is dropped, and all nodes report again after a restart.
 * Owned by the loop. Nothing here yields.
 */
#ifndef LEAT_MDS_STAGED_LOCATIONS_H
#define LEAT_MDS_STAGED_LOCATIONS_H

#include "common/base/list.h"
#include "common/proto/mds_proto.h"

#define RESIDENCY_NODES_MAX  16384u
#define RESIDENCY_ROWS_MAX   1024u       /* of one node */
#define RESIDENCY_BYTES_MAX  (64u << 20) /* of all */
#define RESIDENCY_TTL_MAX_MS 600000u

struct residency {
	struct list nodes;
	uint32_t n_nodes;
	uint64_t bytes;
};

/* Makes an empty table. */
void residency_init(struct residency *r);
/* Frees the table. */
void residency_fini(struct residency *r);
/* Replaces what a node has reported. Returns 0, -LE_INVAL, -LE_BAD_MESSAGE, -LE_TOO_BIG or
 * -LE_NOMEM. */
int residency_set(struct residency *r, const struct mds_residency_set_req *in,
		  uint64_t now_us) CHECK_RESULT;
/* Encodes the rows that match the request into w. *ret_next: `from` of the next request; 0: no
 * rows are left. */
void residency_get(struct residency *r, const struct mds_residency_get_req *in, uint64_t now_us,
		   struct wire_w *w, uint32_t *ret_next);

#endif
