/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rails of this machine: its addresses that belong to an RDMA device. A server sends them to
 * its clients instead of a wildcard; a client ranks the addresses of servers by them.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_RAILS_H
#define LEAT_COMMON_RPC_VERBS_VERBS_RAILS_H

#include "common/rt/net.h"

#define RAILS_MAX 16u

struct rail {
	char device[32]; /* "mlx5_0" */
	uint32_t port;
	int numa_node;   /* -1: none, or unknown */
	struct net_addr addr;
	uint32_t prefix; /* bits of the network part of the address */
};

/* Lists at most RAILS_MAX rails, in the order of the interfaces; 0 in a build without verbs. In a
 * fiber. Queries the kernel, a few system calls per address, if the last list (cached per thread)
 * is older than two seconds. */
uint32_t verbs_rails(struct rail ret_rails[RAILS_MAX]);

#endif
