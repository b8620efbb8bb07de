/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads right bytes from another source in place of wrong ones. For a staged copy with a damaged
 * block: from other nodes, else from the source of the copy. For a name, if a file has changed on
 * the servers: from nodes that staged it before the change. All bytes are compared with the
 * manifest.
 *
 * A damaged chunk of a copy is repaired in the background (client/stage/heal.h) if this process may
 * write to the copy; else it is reported to the agent of this machine.
 *
 * Belongs to the data set; any of its loops may call. Repair is a fiber of io.loop.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_MEND_H
#define LEAT_CLIENT_LOADER_SOURCE_MEND_H

#include "client/loader/source/dataset.h"

struct mend;

/* Requires ds->m. ask_peers: may read from other nodes. -LE_NOMEM. Does not yield. */
int mend_create(struct leat_dataset *ds, bool ask_peers, struct mend **ret_mend) CHECK_RESULT;
/* Ends the repair, which continues for at most CLOSE_US while chunks are left, and frees x. In a
 * fiber of io.loop. NULL is fine. Yields. */
void mend_destroy(struct mend *x);

/* Bytes of a file of the manifest. */
struct mend_range {
	uint32_t file;
	uint64_t off, len;
};
/* Reads the range into `to`, verified. Returns the source of the bytes; ORIGIN_NONE: no source
 * has them now, and the contents of `to` are undefined. via: the data set that reads, which is
 * ds or a mixture that contains it. Yields. */
enum detail_origin mend_read(struct leat_dataset *ds, const struct leat_dataset *via,
			     const struct mend_range *r, uint8_t *to);
/* Adds the number of repaired chunks to the metrics. Any thread. */
void mend_tell(const struct mend *x, struct leat_loader_metrics *m);

#endif
