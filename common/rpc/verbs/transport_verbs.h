/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport over RDMA.
 */
#ifndef LEAT_COMMON_RPC_VERBS_TRANSPORT_VERBS_H
#define LEAT_COMMON_RPC_VERBS_TRANSPORT_VERBS_H

#include "common/rpc/transport/transport.h"

enum verbs_srq { VERBS_SRQ_AUTO, VERBS_SRQ_ON, VERBS_SRQ_OFF };

/* RDMA by libibverbs and librdmacm. Zero selects the default. All are upper limits, which a card
 * may lower further. Addresses are "host:port"; the device is the one that routes to them. */
struct transport_verbs_options {
	const char *devices;    /* use only these: "mlx5_0 mlx5_1"; NULL: any */
	uint32_t credits;       /* receive buffers per connection, 32 */
	uint32_t recv_size;     /* of a receive buffer, 8 KiB; a larger frame takes several sends */
	uint32_t qps_max;       /* queue pairs per device, as many as it has */
	uint32_t wrs_max;       /* work requests in a queue, 128; at least 8 */
	uint32_t sges_max;      /* pieces of a WRITE, 16 */
	uint32_t inline_max;    /* bytes sent without a buffer, 256; UINT32_MAX: none */
	uint32_t mrs_max;       /* memory regions per device, as many as it has */
	uint32_t reads_max;     /* RDMA READs outstanding per connection, 16 */
	/* 4.096 us << this, eight times: then a silent peer counts as dead; 16 */
	uint32_t ack_timeout;
	uint32_t keepalive_ms;  /* interval of checks of an idle link, 10000 */
	/* AUTO: not for iWARP, where an empty shared queue breaks all links */
	enum verbs_srq srq;
};

/* opts may be NULL. -LE_NODEV with a log line when there is no RDMA on this machine. */
int transport_verbs_create(const struct transport_verbs_options *opts,
			   struct transport **ret_transport) CHECK_RESULT;

#endif
