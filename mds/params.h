/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of [mds]: struct, defaults, checks, help and manual follow from this table. */
#ifndef LEAT_MDS_PARAMS_H
#define LEAT_MDS_PARAMS_H

#include "common/base/config.h"

#define MDS_PARAMS(P)                                                                              \
	P(str, data_dir, "", 1, 0, "/var/lib/leat/mds", "folder that holds the metadata store")    \
	P(addrs, listen, "", 0, 0, "",                                                             \
	  "addresses to listen on, space separated (empty: those of [cluster] mds)")               \
	P(addr, metrics, "", 0, 0, "", "address of the /metrics page, host:port (empty: none)")    \
	P(word, log_level, "error | warn | info | debug", 0, 0, "info", "what is logged")          \
	P(bool, sync, "", 0, 1, true,                                                              \
	  "acknowledge only what is on stable storage; false is for scratch file systems")         \
	P(u32, cache_mib, "MiB", 1, 1 << 20, 256, "memory for inodes and directory entries")       \
	P(u32, kv_cache_mib, "MiB", 1, 1 << 20, 128, "memory for blocks of the store")             \
	P(u32, kv_write_buffer_mib, "MiB", 1, 1 << 16, 64, "write buffer of the store")            \
	P(size, reserve, "B", 0, 1ULL << 40, 256ULL << 20,                                         \
	  "space on the disk of data_dir that is kept for changes and removals: with less "        \
	  "left nothing is created (at most an eighth of the disk)")                               \
	P(u32, kv_threads, "", 1, 64, 1, "background threads of the store")                        \
	P(u32, workers, "", 1, 256, 4, "threads for reads that miss all caches")                   \
	P(cores, cores, "", 0, 0, "auto",                                                          \
	  "processors of the loop: auto (near the RDMA device), all, or a list such as 0-3,8")     \
	P(u32, spin_us, "us", 0, 10000, 50, "longest busy wait of the loop before it sleeps")      \
	P(u32, batch_ops_max, "", 1, 1 << 20, 1024, "mutations that share one sync, at most")      \
	P(size, batch_bytes_max, "B", 4096, 64 << 20, 4 << 20,                                     \
	  "bytes that share one sync, at most")                                                    \
	P(u32, lazy_us, "us", 0, 1000000, 2000,                                                    \
	  "how long a change without a waiting client may wait for other changes to share its "    \
	  "sync")                                                                                  \
	P(u32, session_ttl_ms, "ms", 1000, 86400000, 60000,                                        \
	  "silence after which a session expires")                                                 \
	P(u32, session_slots_max, "", 1, 4096, 128,                                                \
	  "mutations of a session that may be in flight")                                          \
	P(u32, sessions_max, "", 1, 32000, 16384, "sessions, at most: their list is one message")  \
	P(u32, opens_max, "", 16, 1 << 26, 1 << 20, "open files of all sessions, at most")         \
	P(u32, locks_max, "", 16, 1 << 26, 1 << 20, "locks of all sessions, at most")              \
	P(u32, leases_max, "", 16, 1 << 28, 1 << 20, "cached inodes of all sessions, at most")     \
	P(u32, client_lease_ms, "ms", 200, 600000, 4000,                                           \
	  "silence after which a client drops its cache")                                          \
	P(u32, requests_max, "", 16, 1 << 20, 8192, "requests in flight, at most")                 \
	P(u32, connections_max, "", 16, 1 << 20, 16384, "connections, at most")                    \
	P(u32, slow_ms, "ms", 0, 3600000, 1000, "requests that take longer are logged (0: none)")  \
	P(u32, heartbeat_ms, "ms", 10, 60000, 250, "interval of the targets' heartbeats")          \
	P(u32, lease_ms, "ms", 50, 600000, 1000,                                                   \
	  "how long a target may serve replicated data after an answered heartbeat")               \
	P(u32, lease_margin_ms, "ms", 10, 600000, 500,                                             \
	  "time from the end of a silent target's lease until the target is down")                 \
	P(u32, replace_after_ms, "ms", 1000, 4294967295u, 600000,                                  \
	  "absence after which the copies of a target are made again on other targets")            \
	P(u32, replace_parallel, "", 1, 4096, 16, "chains that get a new member at the same time") \
	P(u32, heads_after_ms, "ms", 10, 86400000, 10000,                                          \
	  "time without a change of members after which heads of chains are spread evenly "        \
	  "again")                                                                                 \
	P(u32, chains_per_target, "", 1, 64, 8,                                                    \
	  "chains of 2 and of 3 members that each target leads, at most")                          \
	P(u32, targets_max, "", 1, 256, 256, "targets, at most")                                   \
	P(size, default_chunk_size, "B", 65536, 64 << 20, 1 << 20, "chunk size of new files")      \
	P(u32, default_width, "", 1, 65536, 4, "chains that a new file is striped over")           \
	P(u32, default_replicas, "", 1, 3, 1,                                                      \
	  "copies of new files, as `format` writes it into the root directory; `leat layout set` " \
	  "changes it later")                                                                      \
	P(u32, cap_ttl_s, "s", 60, 31536000, 604800, "life of a capability for a file's data")     \
	P(u32, oss_timeout_ms, "ms", 50, 600000, 5000,                                             \
	  "deadline of one request to an object server")                                           \
	P(u32, oss_in_flight, "", 1, 1024, 16,                                                     \
	  "requests in flight to one object server, at most")                                      \
	P(u32, convert_after_ms, "ms", 0, 86400000, 60000,                                         \
	  "time without a change after which a file may get another number of copies; more "       \
	  "than the clients' request_timeout_ms")                                                  \
	P(u32, convert_parallel, "", 1, 64, 8, "files of a tree that are converted concurrently")  \
	P(u32, quota_grace_s, "s", 0, 315360000, 604800,                                           \
	  "how long a soft limit of a quota may be exceeded")                                      \
	P(u32, reclaim_delay_ms, "ms", 0, 10000, 100,                                              \
	  "how long removals are collected before they are sent")

struct mds_params {
	MDS_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param mds_param_table[];
extern const int n_mds_params;

#endif
