/*
 * The rails of this machine: its addresses that belong to an RDMA device. A server tells them to
 * its clients in the place of a wildcard, a client ranks servers' addresses by them.
 */
#ifndef LEAT_RPC_VERBS_RAILS_H
#define LEAT_RPC_VERBS_RAILS_H

#include "common/rt/net.h"

#define RAILS_MAX 16u

struct rail {
	char device[32]; /* "mlx5_0" */
	uint32_t port;
	int numa_node;   /* -1: none, or not known */
	struct net_addr addr;
	uint32_t prefix; /* bits of the address that name its network */
};

/* At most RAILS_MAX, in the order of the interfaces; 0 in a build without verbs. In a fiber. Asks
 * the kernel anew when the last answer (kept per thread) is older than two seconds, which takes a
 * few system calls per address. */
uint32_t verbs_rails(struct rail ret_rails[RAILS_MAX]);

#endif
