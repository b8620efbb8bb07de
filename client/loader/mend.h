/*
 * Right bytes where those that were read are wrong: of a staged copy with a damaged block, from
 * other nodes, else from where it was made of; of a name whose file has changed on the servers,
 * from nodes that staged it before. Everything is compared with the manifest, so nobody is trusted.
 *
 * What was wrong in a copy is put right in the background (client/stage/heal.h), by this process if
 * it may write there.
 *
 * Belongs to the data set; any of its loops calls. Healing is a fiber of io.loop.
 */
#ifndef LEAT_LOADER_MEND_H
#define LEAT_LOADER_MEND_H

#include "client/loader/dataset.h"

struct mend;

/* Once the manifest is there. ask_peers: other nodes may be asked. -LE_NOMEM */
int mend_create(struct leat_dataset *ds, bool ask_peers, struct mend **ret_mend) CHECK_RESULT;
/* In a fiber of io.loop, yields: what is still to be put right is, for some seconds. NULL is fine.
 */
void mend_destroy(struct mend *x);

/* Bytes of a file of the manifest. */
struct mend_range {
	uint32_t file;
	uint64_t off, len;
};
/* All of it at `to`, as the manifest says; ORIGIN_NONE: nobody has it now, and what is there is
 * nothing. via: the data set that reads, ds or a mixture that it is a part of. Yields. */
enum detail_origin mend_read(struct leat_dataset *ds, const struct leat_dataset *via,
			     const struct mend_range *r, uint8_t *to);
/* Adds to the metrics' member about healing. Any thread. */
void mend_tell(const struct mend *x, struct leat_loader_metrics *m);

#endif
