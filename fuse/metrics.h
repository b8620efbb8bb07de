/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of a mount; see common/base/metrics.h. */
#ifndef LEAT_FUSE_METRICS_H
#define LEAT_FUSE_METRICS_H

#include "common/base/metrics.h"
#include "common/rpc/net_report.h"

#define MOUNT_METRICS(M)                                                                           \
	M(COUNTER, requests, "leat_mount_requests_total", "requests read from the kernel")         \
	M(COUNTER, errors, "leat_mount_errors_total",                                              \
	  "requests answered with an error other than ENOENT")                                     \
	M(COUNTER, read_bytes, "leat_mount_read_bytes_total", "bytes returned to the kernel")      \
	M(COUNTER, written_bytes, "leat_mount_written_bytes_total",                                \
	  "bytes received from the kernel")                                                        \
	M(COUNTER, size_probes, "leat_mount_size_probes_total",                                    \
	  "times that a helper process made the kernel load sizes or owners that other "           \
	  "clients had changed")                                                                   \
	M(COUNTER, invalidations, "leat_mount_invalidations_total", "kernel cache invalidations")  \
	M(GAUGE, running, "leat_mount_running_requests", "requests in progress")                   \
	M(HIST, request_us, "leat_mount_request_seconds",                                          \
	  "time from reading a request to its reply")                                              \
	NET_METRICS(M, "leat_mount")

struct mount_metrics {
	MOUNT_METRICS(METRIC_MEMBER)
};
extern const struct metric_desc mount_metric_table[];
extern const int n_mount_metrics;

#endif
