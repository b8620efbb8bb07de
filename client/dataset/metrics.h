/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of `leat agent`: its /metrics page is generated from this table. */
#ifndef LEAT_CLIENT_DATASET_METRICS_H
#define LEAT_CLIENT_DATASET_METRICS_H

#include "common/base/metrics.h"
#include "common/rpc/net_report.h"

#define AGENT_METRICS(M)                                                                           \
	M(GAUGE, jobs, "leat_agent_jobs", "staging jobs in progress")                              \
	M(COUNTER, started, "leat_agent_jobs_started_total", "staging jobs begun")                 \
	M(COUNTER, done, "leat_agent_jobs_done_total", "staging jobs that ended READY")            \
	M(COUNTER, failed, "leat_agent_jobs_failed_total", "staging jobs that did not end READY")  \
	M(COUNTER, source_bytes, "leat_agent_source_bytes_total", "bytes read from the servers")   \
	M(COUNTER, peer_bytes, "leat_agent_peer_bytes_total", "bytes received from other nodes")   \
	M(COUNTER, served_bytes, "leat_agent_served_bytes_total", "bytes sent to other nodes")     \
	M(COUNTER, served, "leat_agent_served_chunks_total", "chunks sent to other nodes")         \
	M(COUNTER, refused, "leat_agent_refused_chunks_total",                                     \
	  "requests of other nodes for chunks that were not here in time")                         \
	M(COUNTER, dropped, "leat_agent_dropped_nodes_total",                                      \
	  "other nodes left out because they were unreachable, slow or sent wrong bytes")          \
	M(COUNTER, lied, "leat_agent_lying_nodes_total", "other nodes left out for wrong bytes")   \
	M(GAUGE, copies, "leat_agent_copies", "READY copies here")                                 \
	M(GAUGE, copies_bytes, "leat_agent_copies_bytes", "bytes of READY copies here")            \
	M(COUNTER, healed, "leat_agent_healed_chunks_total", "damaged chunks of copies repaired")  \
	M(COUNTER, regranted, "leat_agent_regranted_copies_total",                                 \
	  "times that a copy's rights were changed after those of its source")                     \
	M(COUNTER, evicted_bytes, "leat_agent_evicted_bytes_total", "bytes of copies evicted")     \
	NET_METRICS(M, "leat_agent")

struct agent_metrics {
	AGENT_METRICS(METRIC_MEMBER)
};

#endif
