/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of leat-ossd. The /metrics page is generated from this table. */
#ifndef LEAT_OSSD_METRICS_H
#define LEAT_OSSD_METRICS_H

#include "common/base/metrics.h"
#include "common/rpc/net_report.h"

#define OSSD_METRICS(M) \
	M(COUNTER, requests, "leat_ossd_requests_total", "requests answered") \
	M(COUNTER, errors, "leat_ossd_errors_total", "requests answered with an error") \
	M(COUNTER, client_requests, "leat_ossd_client_requests_total", \
	  "requests answered that came from clients") \
	M(HIST, request_us, "leat_ossd_request_seconds", "time to answer a request") \
	M(HIST, read_us, "leat_ossd_read_seconds", "time to answer a read") \
	M(HIST, write_us, "leat_ossd_write_seconds", "time to answer a write") \
	M(COUNTER, reads, "leat_ossd_reads_total", "chunk reads") \
	M(COUNTER, read_bytes, "leat_ossd_read_bytes_total", "bytes returned by reads") \
	M(COUNTER, writes, "leat_ossd_writes_total", "chunk writes") \
	M(COUNTER, write_bytes, "leat_ossd_write_bytes_total", "bytes received in writes") \
	M(COUNTER, merges, "leat_ossd_merges_total", "blocks merged with a fragment") \
	M(COUNTER, packed, "leat_ossd_packed_total", "blocks stored compressed") \
	M(COUNTER, unpacks, "leat_ossd_unpacks_total", \
	  "compressed blocks unpacked to read or change a part of them") \
	M(COUNTER, copies, "leat_ossd_copies_total", "blocks copied because of alignment") \
	M(COUNTER, removes, "leat_ossd_removed_chunks_total", "chunks removed") \
	M(COUNTER, trims, "leat_ossd_trimmed_chunks_total", "chunks truncated or punched") \
	M(COUNTER, leases_run_out, "leat_ossd_chunk_leases_run_out_total", \
	  "chunk leases that expired before they were released") \
	M(COUNTER, replays, "leat_ossd_replays_total", "repeated requests answered from memory") \
	M(COUNTER, expired_caps, "leat_ossd_expired_capabilities_total", \
	  "requests whose capability had expired, by the metadata server's clock") \
	M(COUNTER, corrupt, "leat_ossd_corrupt_blocks_total", "blocks that failed their checksum") \
	M(GAUGE, lost, "leat_ossd_lost_chunks", "lost chunks found, at the start or later") \
	M(COUNTER, restored, "leat_ossd_regained_chunks_total", \
	  "lost chunks restored from members that are being filled") \
	M(COUNTER, resync_compared, "leat_ossd_resync_compared_chunks_total", \
	  "chunks compared with a returning member") \
	M(COUNTER, resync_copied, "leat_ossd_resync_copied_chunks_total", \
	  "chunks copied from here to a returning member") \
	M(COUNTER, resync_removed, "leat_ossd_resync_removed_chunks_total", \
	  "surplus chunks removed at returning members") \
	M(COUNTER, resync_bytes, "leat_ossd_resync_bytes_total", "bytes copied to returning members") \
	M(COUNTER, resync_failures, "leat_ossd_resync_failures_total", \
	  "resyncs that have to begin again") \
	M(GAUGE, resync_jobs, "leat_ossd_resync_members", "members being filled from here") \
	M(COUNTER, dropped, "leat_ossd_dropped_chunks_total", \
	  "chunks removed because their chain has left this target") \
	M(COUNTER, damaged_copies, "leat_ossd_damaged_copies_total", \
	  "copies from other members with blocks that were damaged there") \
	M(COUNTER, repaired, "leat_ossd_repaired_blocks_total", \
	  "damaged blocks that were replaced from other members") \
	M(COUNTER, scrubbed, "leat_ossd_scrubbed_chunks_total", "chunks read by scrubs") \
	M(COUNTER, scrubbed_bytes, "leat_ossd_scrubbed_bytes_total", "bytes read by scrubs") \
	M(COUNTER, scrub_differing, "leat_ossd_scrub_differing_chunks_total", \
	  "chunks that differed between members of a chain, and were made equal") \
	M(COUNTER, commits, "leat_ossd_commits_total", "group commits") \
	M(COUNTER, commit_ops, "leat_ossd_commit_ops_total", "changes in group commits") \
	M(COUNTER, syncs, "leat_ossd_data_syncs_total", "syncs of the data file") \
	M(HIST, sync_us, "leat_ossd_data_sync_seconds", "time of a sync of the data file") \
	M(HIST, commit_us, "leat_ossd_index_commit_seconds", "time of a commit of the index") \
	M(COUNTER, cache_hits, "leat_ossd_record_cache_hits_total", "chunk records found in memory") \
	M(COUNTER, cache_misses, "leat_ossd_record_cache_misses_total", "chunk records not in memory") \
	M(COUNTER, forwards, "leat_ossd_forwards_total", "versions sent downstream") \
	M(COUNTER, forward_bytes, "leat_ossd_forward_bytes_total", "data sent downstream") \
	M(COUNTER, forward_retries, "leat_ossd_forward_retries_total", "versions sent again") \
	M(COUNTER, forward_reads, "leat_ossd_forward_reads_total", \
	  "versions read from the disk to be sent") \
	M(COUNTER, applies, "leat_ossd_applied_versions_total", "versions received from upstream") \
	M(COUNTER, versions_committed, "leat_ossd_committed_versions_total", \
	  "versions that all members hold") \
	M(COUNTER, versions_taken_back, "leat_ossd_taken_back_versions_total", \
	  "versions aborted or dropped") \
	M(COUNTER, resolves, "leat_ossd_resolves_total", "queries to a head about pending versions") \
	M(GAUGE, pending, "leat_ossd_pending_versions", "versions that not all members hold yet") \
	M(GAUGE, cache_bytes, "leat_ossd_record_cache_bytes", "memory of chunk records") \
	M(GAUGE, capacity_bytes, "leat_ossd_capacity_bytes", "size of the data area") \
	M(GAUGE, used_bytes, "leat_ossd_used_bytes", "space in use") \
	M(GAUGE, free_bytes, "leat_ossd_free_bytes", "space that writes may use") \
	M(GAUGE, granted_bytes, "leat_ossd_granted_bytes", "space granted to sessions") \
	M(GAUGE, zeroed_bytes, "leat_ossd_data_file_bytes", "present size of the data file") \
	M(GAUGE, clock_apart_ms, "leat_ossd_clock_apart_ms", \
	  "how far this machine's clock is from the metadata server's") \
	M(GAUGE, registered, "leat_ossd_registered", "1 when the target is registered") \
	M(GAUGE, failed, "leat_ossd_store_failed", \
	  "1 after a failed write or sync: the store refuses writes") \
	NET_METRICS(M, "leat_ossd")

struct ossd_metrics {
	OSSD_METRICS(METRIC_MEMBER)
};
extern const struct metric_desc ossd_metric_table[];
extern const int n_ossd_metrics;

#endif
