/*
 * Copies of the data set on other nodes, as a source between the one on this node and the servers:
 * their agents hand out parts of chunks (client/stage/peers.h), which are whole blocks and are
 * compared with the manifest here, so that nobody is trusted. Who is silent, gone or wrong is left
 * out; what nobody gives is read from the servers, so nothing here makes an error.
 *
 * Belongs to one loop, that of the Leat instance, except for peer_may_serve and peer_tell, which
 * any thread may call.
 */
#ifndef LEAT_LOADER_PEER_H
#define LEAT_LOADER_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stage/manifest.h"
#include "common/base/status.h"

struct leat_fs;
struct leat_loader_metrics;
struct peer_source;
struct swarm_net_ops;

struct peer_options {
	struct leat_fs *fs; /* NULL: with ops and net of a test */
	const struct swarm_net_ops *ops;
	void *net;
	const struct manifest *m; /* borrowed */
};
/* Asks who has it. In a fiber; yields. */
int peer_create(const struct peer_options *o, struct peer_source **ret_peers) CHECK_RESULT;
void peer_destroy(struct peer_source *p); /* in a fiber, yields; NULL is fine */

/* Bytes of a file of the manifest. */
struct peer_range {
	uint32_t file;
	uint64_t off, len;
};
/* Is there anybody, and is what has to travel, whole blocks, not much more than these bytes? */
bool peer_may_serve(const struct peer_source *p, const struct peer_range *r);
/* All of it at `to`, verified; or false, and what is there is nothing. Yields. */
bool peer_read(struct peer_source *p, const struct peer_range *r, uint8_t *to);
/* The copy of this machine, which this process may not write, has a damaged chunk of the manifest:
 * the agent that made it is told. -LE_NOENT: there is none. Yields. */
int peer_tell_damage(struct peer_source *p, uint64_t chunk) CHECK_RESULT;
/* Adds to the metrics' members about peers. */
void peer_tell(const struct peer_source *p, struct leat_loader_metrics *m);

#endif
