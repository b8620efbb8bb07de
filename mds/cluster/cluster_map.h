/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster map on the wire: for clients, and for targets that are sent their chains. Owned by
 * the loop. Nothing here yields. */
#ifndef LEAT_MDS_CLUSTER_CLUSTER_MAP_H
#define LEAT_MDS_CLUSTER_CLUSTER_MAP_H

#include "mds/cluster/cluster.h"

#define MAP_PAGE_BYTES (160u << 10)
/* Encodes the page of the map that begins with item `from` (0: the first) into buf, which has
 * MAP_PAGE_BYTES. Returns 0 or -LE_INVAL. */
int cluster_map_encode(const struct cluster *c, uint32_t from, void *buf,
		       struct mds_map_get_rep *out) CHECK_RESULT;
/* Encodes n chains, and the targets that are their members, into one allocated buffer. The caller
 * frees ret_chains->data. Returns 0 or -LE_NOMEM. */
int cluster_chains_encode(const struct cluster *c, struct chain *const *chains, uint32_t n,
			  struct bytes *ret_chains, struct bytes *ret_targets) CHECK_RESULT;
/* Like cluster_chains_encode, with all chains that the target is a member of. */
int cluster_chains_of(const struct cluster *c, const struct target *t, struct bytes *ret_chains,
		      struct bytes *ret_targets) CHECK_RESULT;

#endif
