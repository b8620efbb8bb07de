/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the data set on other nodes, as a source between the copy on this node and the servers.
 * The agents of those nodes serve parts of chunks (client/stage/fetch/peers.h), which are whole
 * blocks and are compared with the manifest here. A node that does not answer, has disappeared or
 * sends wrong bytes is left out. Bytes that no node delivers are read from the servers, so no
 * failure here becomes an error.
 *
 * Belongs to one loop, that of the Leat instance, except for peer_may_serve and peer_tell, which
 * any thread may call.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_PEER_H
#define LEAT_CLIENT_LOADER_SOURCE_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/dataset/manifest.h"
#include "common/base/status.h"

struct leat_fs;
struct leat_loader_metrics;
struct peer_source;
struct swarm_net_ops;

struct peer_options {
	struct leat_fs *fs; /* NULL: a test provides ops and net */
	const struct swarm_net_ops *ops;
	void *net;
	const struct manifest *m; /* borrowed */
};
/* Queries which nodes have the data set. In a fiber. Yields. */
int peer_create(const struct peer_options *o, struct peer_source **ret_peers) CHECK_RESULT;
void peer_destroy(struct peer_source *p); /* in a fiber, yields; NULL is fine */

/* Bytes of a file of the manifest. */
struct peer_range {
	uint32_t file;
	uint64_t off, len;
};
/* True if a node has a copy, and the whole blocks that it would send are at most TRAVEL_MAX
 * times these bytes. */
bool peer_may_serve(const struct peer_source *p, const struct peer_range *r);
/* Reads the range into `to`, verified. False: no node delivered it, and the contents of `to` are
 * undefined. Yields. */
bool peer_read(struct peer_source *p, const struct peer_range *r, uint8_t *to);
/* Reports a damaged chunk of this machine's copy, which this process may not write, to the agent
 * of this machine. -LE_NOENT: there is no agent. Yields. */
int peer_report_damage(struct peer_source *p, uint64_t chunk) CHECK_RESULT;
/* Adds the counters of peers to the metrics. */
void peer_tell(const struct peer_source *p, struct leat_loader_metrics *m);

#endif
