/* SPDX-License-Identifier: Apache-2.0 */
/* The table of metrics: for /metrics, and in part for `leat status`. Written by the loop. */
#ifndef LEAT_MDS_METRICS_H
#define LEAT_MDS_METRICS_H

#include "common/base/metrics.h"
#include "common/rpc/net_report.h"

#define MDS_METRICS(M)                                                                             \
	M(COUNTER, requests, "leat_mds_requests_total", "requests answered")                       \
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
	  "inodes and entries evicted from memory")                                                \
	M(GAUGE, cache_bytes, "leat_mds_cache_bytes", "memory of cached inodes and entries")       \
	M(GAUGE, inodes, "leat_mds_inodes", "inodes in the file system")                           \
	M(GAUGE, sessions, "leat_mds_sessions", "live sessions")                                   \
	M(GAUGE, opens, "leat_mds_open_files", "open files of all sessions")                       \
	M(GAUGE, locks, "leat_mds_file_locks", "locks of all sessions")                            \
	M(GAUGE, lock_waits, "leat_mds_file_lock_waits", "requests that wait for a lock")          \
	M(GAUGE, leases, "leat_mds_leases", "inodes that clients may cache, of all sessions")      \
	M(COUNTER, recalls, "leat_mds_lease_recalls_total", "leases recalled")                     \
	M(GAUGE, targets_up, "leat_mds_targets_up", "targets that send heartbeats")                \
	M(GAUGE, targets, "leat_mds_targets", "targets registered and not removed")                \
	M(GAUGE, clocks_apart, "leat_mds_clocks_apart",                                            \
	  "targets whose clock is more than a second away from this server's")                     \
	M(GAUGE, chains_degraded, "leat_mds_chains_degraded", "chains that lack replicas")         \
	M(GAUGE, chains_down, "leat_mds_chains_down", "chains that no member serves")              \
	M(GAUGE, chains_lost, "leat_mds_chains_lost", "chains whose data was declared lost")       \
	M(GAUGE, map_epoch, "leat_mds_map_epoch", "epoch of the cluster map")                      \
	M(GAUGE, disk_free_bytes, "leat_mds_disk_free_bytes",                                      \
	  "free space on the disk of the metadata store")                                          \
	M(GAUGE, free_bytes, "leat_mds_cluster_free_bytes", "free space of all targets")           \
	M(GAUGE, capacity_bytes, "leat_mds_cluster_capacity_bytes", "capacity of all targets")     \
	M(COUNTER, reclaimed, "leat_mds_reclaimed_files_total",                                    \
	  "removed files whose space was freed")                                                   \
	M(COUNTER, settled, "leat_mds_settled_files_total",                                        \
	  "files whose size was taken from the chains")                                            \
	M(GAUGE, recovering, "leat_mds_recovering",                                                \
	  "1 while the server waits for sessions to return after a restart")                       \
	NET_METRICS(M, "leat_mds")

struct mds_metrics {
	MDS_METRICS(METRIC_MEMBER)
};
extern const struct metric_desc mds_metric_table[];
extern const int n_mds_metrics;

#endif
