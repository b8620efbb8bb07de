/* The text form of metrics (Prometheus exposition format 0.0.4). */
#include "common/base/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void add_relaxed(_Atomic uint64_t *v, uint64_t n)
{
	/* One writer: a load and a store do, and cost no locked instruction. */
	uint64_t *p = (uint64_t *)v;
	__atomic_store_n(p, __atomic_load_n(p, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static uint64_t load_relaxed(const _Atomic uint64_t *v)
{
	return __atomic_load_n((const uint64_t *)v, __ATOMIC_RELAXED);
}

void metric_hist_add(struct metric_hist *h, uint64_t us)
{
	int i = us == 0 ? 0 : 64 - __builtin_clzll(us);
	add_relaxed(&h->sum_us, us);
	add_relaxed(&h->bucket[i < METRIC_BUCKETS ? i : METRIC_BUCKETS - 1], 1);
}

static void print_hist(FILE *out, const struct metric_desc *d, const struct metric_hist *h,
		       const char *labels)
{
	const char *comma = *labels != '\0' ? "," : "";
	const char *open = *labels != '\0' ? "{" : "", *close = *labels != '\0' ? "}" : "";
	uint64_t count = 0;
	/* The count is the sum of what was read here, so that the page never contradicts itself. */
	for (int i = 0; i < METRIC_BUCKETS; i++) {
		count += load_relaxed(&h->bucket[i]);
		if (i < METRIC_BUCKETS - 1)
			fprintf(out, "%s_bucket{%s%sle=\"%.9g\"} %" PRIu64 "\n", d->name, labels,
				comma, (double)(1ULL << i) / 1e6, count);
	}
	fprintf(out, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", d->name, labels, comma, count);
	fprintf(out, "%s_sum%s%s%s %.6f\n", d->name, open, labels, close,
		(double)load_relaxed(&h->sum_us) / 1e6);
	fprintf(out, "%s_count%s%s%s %" PRIu64 "\n", d->name, open, labels, close, count);
}

static void print_one(FILE *out, const struct metric_desc *d, const void *value, const char *labels)
{
	static const char *const kinds[] = {"counter", "gauge", "histogram"};
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", d->name, d->help, d->name, kinds[d->kind]);
	if (d->kind == METRIC_HIST) {
		print_hist(out, d, value, labels);
		return;
	}
	const struct metric *m = value;
	fprintf(out, "%s%s%s%s %" PRIu64 "\n", d->name, *labels != '\0' ? "{" : "", labels,
		*labels != '\0' ? "}" : "", metric_get(m));
}

int metrics_print(const struct metric_desc *table, int n, const void *values, const char *labels,
		  char **ret_text, size_t *ret_len)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	if (out == NULL)
		return -LE_NOMEM;
	for (int i = 0; i < n; i++)
		print_one(out, &table[i], (const char *)values + table[i].offset,
			  labels != NULL ? labels : "");
	int failed = ferror(out);
	if (fclose(out) != 0 || failed) {
		free(text);
		return -LE_NOMEM;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}
