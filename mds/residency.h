/*
 * Which node holds which staged copies, as the nodes tell. Soft state: a node that falls silent is
 * forgotten after the time it named, and all is told anew after a restart. Owned by the MDS's loop.
 */
#ifndef LEAT_MDS_RESIDENCY_H
#define LEAT_MDS_RESIDENCY_H

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

void residency_init(struct residency *r);
void residency_fini(struct residency *r);
/* -LE_INVAL, -LE_BAD_MESSAGE, -LE_TOO_BIG, -LE_NOMEM */
int residency_set(struct residency *r, const struct mds_residency_set_req *in,
		  uint64_t now_us) CHECK_RESULT;
/* Into buf. */
void residency_get(struct residency *r, const struct mds_residency_get_req *in, uint64_t now_us,
		   struct wire_w *w, uint32_t *ret_next);

#endif
