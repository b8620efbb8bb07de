/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of section [ossd] of leat.conf. Struct, defaults, ranges, --help and the manual's
 * table are generated from this list.
 */
#ifndef LEAT_OSSD_PARAMS_H
#define LEAT_OSSD_PARAMS_H

#include "common/base/config.h"

#define OSSD_METRICS_DEFAULT "127.0.0.1:9450"

#define OSSD_PARAMS(P) \
	P(str, data_dir, "", 1, 0, "/var/lib/leat/ossd", \
	  "folder of the store: index and data file; several, space separated: a target for each") \
	P(size, data_size, "B", 0, 1ULL << 44, 0, \
	  "size of the data file, fixed when formatting; 0: 90 % of what is free there") \
	P(str, data_device, "", 0, 0, "", \
	  "whole path of a block device that replaces the data file; used by format") \
	P(addrs, listen, "", 1, 0, "0.0.0.0:7450", \
	  "addresses to listen on, host:port, space separated; further targets: the next ports") \
	P(addrs, advertise, "", 0, 0, "", "addresses that clients use; empty: those of listen") \
	P(str, host, "", 0, 255, "", \
	  "failure domain, reported to the metadata server; empty: host name") \
	P(addr, metrics, "", 0, 0, OSSD_METRICS_DEFAULT, \
	  "address of the /metrics page; empty: none; the default may be a later port, if taken") \
	P(word, log_level, "error | warn | info | debug", 0, 0, "info", "what is logged") \
	P(bool, sync, "", 0, 1, true, \
	  "false: nothing is synced to disk, a crash of the machine loses data") \
	P(size, zero_ahead, "B", 0, 1ULL << 40, 256ULL << 20, \
	  "space kept zeroed ahead of the allocator, filled while there are no writes; 0: " \
	  "none") \
	P(size, grow_step, "B", 1 << 20, 1ULL << 36, 64ULL << 20, \
	  "the data file grows by this much when no zeroed space is left") \
	P(size, reserve, "B", 0, 1ULL << 40, 64ULL << 20, \
	  "space kept for overwrites and deletes (at most an eighth of the data file)") \
	P(size, grant_max, "B", 0, 1ULL << 40, 64ULL << 20, \
	  "most space that one session may hold for writes that it has not sent yet") \
	P(u32, grant_ttl_ms, "ms", 1, 86400000, 30000, \
	  "space grants of a session without connection are dropped after this time") \
	P(size, cache_size, "B", 1 << 16, 1ULL << 40, 128ULL << 20, "memory for chunk records") \
	P(size, kv_cache_size, "B", 1 << 20, 1ULL << 40, 64ULL << 20, \
	  "memory for blocks of the index") \
	P(size, kv_write_buffer_size, "B", 1 << 16, 1ULL << 32, 16ULL << 20, \
	  "memory for the newest part of the index") \
	P(u32, slots, "", 4, 65536, 64, "buffers for incoming data, 1 MiB + 64 KiB each") \
	P(u32, read_slots, "", 4, 65536, 64, "buffers for large reads, 1 MiB + 64 KiB each") \
	P(u32, small_slots, "", 16, 65536, 512, "buffers for small reads, 64 KiB each") \
	P(u32, merge_slots, "", 1, 1024, 16, \
	  "buffers for merging parts of blocks, 1 MiB + 64 KiB each") \
	P(size, bulk_max, "B", 1 << 20, 16 << 20, 4 << 20, "largest read or write") \
	P(u32, in_flight_max, "", 1, 65535, 256, "requests in flight for each connection") \
	P(u32, requests_max, "", 1, 1 << 20, 8192, "requests in flight in all") \
	P(u32, connections_max, "", 1, 1 << 20, 16384, "connections") \
	P(u32, replay_rows_max, "", 16, 1 << 24, 1 << 20, \
	  "remembered replies, one for each session and slot") \
	P(u32, window_max, "", 1, 1024, 16, \
	  "versions of one chunk that may be in flight to the other members of its chain") \
	P(u32, resync_rate_mib_s, "MiB/s", 0, 1 << 20, 0, \
	  "most that is copied to returning members; 0: as fast as it goes") \
	P(u32, resync_share, "%", 1, 100, 30, \
	  "part of the time that resync, or a scrub, may work while clients are served") \
	P(u32, resync_parallel, "", 1, 64, 4, "members that are filled concurrently") \
	P(u32, resync_log_max, "", 0, 1 << 24, 65536, \
	  "chunks that are logged while members are away; if more change, all chunks are " \
	  "compared") \
	P(u32, scrub_rate_mib_s, "MiB/s", 0, 1 << 20, 32, \
	  "most that a scrub reads; 0: as fast as it goes") \
	P(u32, scrub_interval_h, "h", 0, 100000, 168, \
	  "time from the end of a scrub until the next one begins by itself; 0: never") \
	P(u32, grace_ms, "ms", 0, 600000, 4000, \
	  "after a crash, the time for clients to repeat requests that were in flight, before " \
	  "other clients are served") \
	P(u32, heartbeat_ms, "ms", 10, 60000, 1000, \
	  "time between heartbeats unless the metadata server says otherwise") \
	P(u32, slow_ms, "ms", 0, 3600000, 1000, "requests that take longer are logged; 0: none") \
	P(cores, cores, "", 0, 0, "auto", \
	  "processors of the loop: auto (near the RDMA device), all, or a list such as 0-3,8") \
	P(u32, spin_us, "us", 0, 1000, 20, "longest busy wait before the loop sleeps")

struct ossd_params {
	OSSD_PARAMS(CONFIG_MEMBER)
};
extern const struct config_param ossd_param_table[];
extern const int n_ossd_params;

#define OSSD_SLOT_SIZE ((1u << 20) + (64u << 10))
#define OSSD_SMALL_SLOT_SIZE (64u << 10)

#endif
