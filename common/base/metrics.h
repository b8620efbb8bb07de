/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters, gauges and latency histograms: one table (X-macro) per program in its metrics.h, from
 * which the Prometheus page is generated.
 *
 *   #define OSSD_METRICS(M) \
 *       M(COUNTER, read_bytes, "leat_ossd_read_bytes_total", "bytes served") \
 *       M(GAUGE, free_bytes, "leat_ossd_free_bytes", "...") \
 *       M(HIST, write_us, "leat_ossd_write_seconds", "...")
 *   struct ossd_metrics { OSSD_METRICS(METRIC_MEMBER) };
 *
 * A value has one writer (the loop that owns it); readers use relaxed atomic loads, so the /metrics
 * thread never takes a lock.
 */
#ifndef LEAT_COMMON_BASE_METRICS_H
#define LEAT_COMMON_BASE_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HIST };

struct metric {
	_Atomic uint64_t v;
};

#define METRIC_BUCKETS 28 /* bucket i counts values < 2^i microseconds; the last one the rest */
struct metric_hist {
	_Atomic uint64_t sum_us;
	_Atomic uint64_t bucket[METRIC_BUCKETS];
};

#define METRIC_TYPE_COUNTER struct metric
#define METRIC_TYPE_GAUGE struct metric
#define METRIC_TYPE_HIST struct metric_hist
#define METRIC_MEMBER(kind, name, prom, help) METRIC_TYPE_##kind name;

struct metric_desc {
	enum metric_kind kind;
	size_t offset;
	const char *name; /* Prometheus name; histograms are in seconds */
	const char *help;
};
/* #define ROW(...) METRIC_ROW(struct ossd_metrics, __VA_ARGS__) then OSSD_METRICS(ROW) */
#define METRIC_ROW(stype, mkind, mname, prom, mhelp) \
	{ .kind = METRIC_##mkind, .offset = offsetof(stype, mname), .name = prom, .help = mhelp },

static inline void metric_add(struct metric *m, uint64_t n)
{
	uint64_t *v = (uint64_t *)&m->v;

	__atomic_store_n(v, __atomic_load_n(v, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline void metric_set(struct metric *m, uint64_t n)
{
	__atomic_store_n((uint64_t *)&m->v, n, __ATOMIC_RELAXED);
}

static inline uint64_t metric_get(const struct metric *m)
{
	return __atomic_load_n((const uint64_t *)&m->v, __ATOMIC_RELAXED);
}

void metric_hist_add(struct metric_hist *h, uint64_t us);

/* Prints metrics as Prometheus text into a malloc'd string. Each sample gets labels ("target=\"3\""
 * or ""). */
int metrics_print(const struct metric_desc *table, int n, const void *values, const char *labels,
		  char **ret_text, size_t *ret_len) CHECK_RESULT;

/* Several sets of the same table on one page, distinguished by their labels. */
struct metric_set {
	const void *values;
	const char *labels;
};
int metrics_print_sets(const struct metric_desc *table, int n, const struct metric_set *sets,
		       uint32_t n_sets, char **ret_text, size_t *ret_len) CHECK_RESULT;

#endif
