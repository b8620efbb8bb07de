/* What can be watched: the table behind /metrics and part of `leat status`. Written by the loop. */
#ifndef LEAT_MDS_METRICS_H
#define LEAT_MDS_METRICS_H

#include "common/base/metrics.h"
#include "common/rpc/net_report.h"

#define MDS_METRICS(M)                                                                             \
	M(COUNTER, requests, "leat_mds_requests_total", "requests served")                         \
	M(COUNTER, errors, "leat_mds_request_errors_total", "requests answered with an error")     \
	M(HIST, request_us, "leat_mds_request_seconds", "time from request to reply")              \
	M(COUNTER, mutations, "leat_mds_mutations_total", "mutations made durable")                \
	M(COUNTER, replays, "leat_mds_replays_total",                                              \
	  "repeated requests answered from the replay rows")                                       \
	M(COUNTER, batches, "leat_mds_batches_total", "batches made durable")                      \
	M(HIST, commit_us, "leat_mds_commit_seconds", "time to make a batch durable")              \
	M(COUNTER, cache_misses, "leat_mds_cache_misses_total",                                    \
	  "inodes and entries read from the store")                                                \
	M(COUNTER, evictions, "leat_mds_cache_evictions_total",                                    \
	  "inodes and entries thrown out of memory")                                               \
	M(GAUGE, cache_bytes, "leat_mds_cache_bytes", "memory of cached inodes and entries")       \
	M(GAUGE, inodes, "leat_mds_inodes", "inodes in the file system")                           \
	M(GAUGE, sessions, "leat_mds_sessions", "live sessions")                                   \
	M(GAUGE, opens, "leat_mds_open_files", "open files of all sessions")                       \
	M(GAUGE, locks, "leat_mds_file_locks", "locks of all sessions")                            \
	M(GAUGE, lock_waits, "leat_mds_file_lock_waits", "waits for locks")                        \
	M(GAUGE, leases, "leat_mds_leases", "inodes that clients may cache, of all sessions")       \
	M(COUNTER, recalls, "leat_mds_lease_recalls_total", "leases taken back")                   \
	M(GAUGE, targets_up, "leat_mds_targets_up", "targets that send heartbeats")                \
	M(GAUGE, targets, "leat_mds_targets", "targets registered")                                \
	M(GAUGE, map_epoch, "leat_mds_map_epoch", "epoch of the cluster map")                      \
	M(GAUGE, free_bytes, "leat_mds_cluster_free_bytes", "free space of all targets")           \
	M(GAUGE, capacity_bytes, "leat_mds_cluster_capacity_bytes", "capacity of all targets")     \
	M(COUNTER, reclaimed, "leat_mds_reclaimed_files_total",                                    \
	  "removed files whose space came back")                                                   \
	M(COUNTER, settled, "leat_mds_settled_files_total", "sizes recovered from the chains")     \
	M(GAUGE, recovering, "leat_mds_recovering", "1 while sessions have yet to return")         \
	NET_METRICS(M, "leat_mds")

struct mds_metrics {
	MDS_METRICS(METRIC_MEMBER)
};
extern const struct metric_desc mds_metric_table[];
extern const int n_mds_metrics;

#endif
