/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections for status pages and /metrics: the output of rpc_client_net and rpc_server_net as
 * JSON, and counters by transport. Plain functions on memory.
 */
#ifndef LEAT_COMMON_RPC_NET_REPORT_H
#define LEAT_COMMON_RPC_NET_REPORT_H

#include "common/base/copy_counter.h"
#include "common/base/metrics.h"
#include "common/rpc/rpc.h"

#define NET_REPORT_SIZE (48u << 10) /* of the JSON in a server's status page */

/*
 * {"transport":{...},"from":F,"connections":[{...},...],"listed":L,"total":N,
 *  "data_copied_bytes":B,"rdma":{"queue_pairs":..}}
 *
 * Lists as many connections as fit, from number `from` on; a reader requests the next part with a
 * higher `from`. Call net_report_add from the fn of rpc_client_net and rpc_server_net.
 */
struct net_report {
	char *buf;
	size_t size, len;
	uint32_t from, n, n_listed; /* n: connections added, listed or not */
	bool full;
	struct transport_resources held;
};
/* Starts a report in buf about the connections of t. */
void net_report_begin(struct net_report *r, char *buf, size_t size, struct transport *t,
		      uint32_t from);
/* Adds a connection. to: "mds", "target 3"; NULL at a server: then the rail and the counters of
 * repetitions are left out, which only the connecting side has. */
void net_report_add(struct net_report *r, const char *to, const struct rpc_net *n);
/* Returns the length of the text in buf. size must be at least 1024. */
size_t net_report_end(struct net_report *r);

/* Entries for a program's table of metrics; p is the prefix of the names: "leat_mds". */
#define NET_METRICS(M, p) \
	NET_METRICS_OF(M, tcp, p "_net_tcp", "tcp") \
	NET_METRICS_OF(M, verbs, p "_net_verbs", "verbs") \
	M(GAUGE, rdma_qps, p "_rdma_queue_pairs", "queue pairs, one for each connection") \
	M(GAUGE, rdma_cqs, p "_rdma_completion_queues", "completion queues") \
	M(GAUGE, rdma_mrs, p "_rdma_memory_regions", "memory regions") \
	M(GAUGE, rdma_bytes, p "_rdma_registered_bytes", "registered memory, which is locked") \
	M(COUNTER, data_copied, p "_data_copied_bytes_total", \
	  "bytes of file data that were copied on their way")
#define NET_METRICS_OF(M, t, p, w) \
	M(GAUGE, net_##t##_connections, p "_connections", "connections over " w) \
	M(COUNTER, net_##t##_connects, p "_connects_total", "connections made over " w) \
	M(COUNTER, net_##t##_frames_in, p "_frames_in_total", "messages received over " w) \
	M(COUNTER, net_##t##_frames_out, p "_frames_out_total", "messages sent over " w) \
	M(COUNTER, net_##t##_bytes_in, p "_bytes_in_total", "bytes of data received over " w) \
	M(COUNTER, net_##t##_bytes_out, p "_bytes_out_total", "bytes of data sent over " w) \
	M(COUNTER, net_##t##_copied, p "_copied_bytes_total", "bytes of data copied, " w) \
	M(COUNTER, net_##t##_stalls, p "_stalls_total", "messages that waited for credits, " w)
#define NET_METRICS_SET(m, totals) \
	do { \
		NET_METRICS_SET_OF(m, tcp, &(totals)->tcp); \
		NET_METRICS_SET_OF(m, verbs, &(totals)->verbs); \
		metric_set(&(m)->rdma_qps, (totals)->held.queue_pairs); \
		metric_set(&(m)->rdma_cqs, (totals)->held.completion_queues); \
		metric_set(&(m)->rdma_mrs, (totals)->held.regions); \
		metric_set(&(m)->rdma_bytes, (totals)->held.registered_bytes); \
		metric_set(&(m)->data_copied, copy_counter_bytes()); \
	} while (0)
#define NET_METRICS_SET_OF(m, t, c) \
	do { \
		metric_set(&(m)->net_##t##_connections, (c)->connections); \
		metric_set(&(m)->net_##t##_connects, (c)->connects); \
		metric_set(&(m)->net_##t##_frames_in, (c)->frames_in); \
		metric_set(&(m)->net_##t##_frames_out, (c)->frames_out); \
		metric_set(&(m)->net_##t##_bytes_in, (c)->bulk_in); \
		metric_set(&(m)->net_##t##_bytes_out, (c)->bulk_out); \
		metric_set(&(m)->net_##t##_copied, (c)->copied); \
		metric_set(&(m)->net_##t##_stalls, (c)->stalls); \
	} while (0)

#endif
