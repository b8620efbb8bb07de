/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of metrics (Prometheus exposition format 0.0.4). */
#include "common/base/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void add_relaxed(_Atomic uint64_t *v, uint64_t n)
{
	/* There is one writer, so a load and a store suffice, without a locked instruction. */
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
	/* The count is the sum of the buckets as read here, so the page is consistent. */
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

static void print_value(FILE *out, const struct metric_desc *d, const void *value,
			const char *labels)
{
	const char *open = *labels != '\0' ? "{" : "", *close = *labels != '\0' ? "}" : "";

	if (d->kind == METRIC_HIST)
		print_hist(out, d, value, labels);
	else
		fprintf(out, "%s%s%s%s %" PRIu64 "\n", d->name, open, labels, close,
			metric_get(value));
}

int metrics_print_sets(const struct metric_desc *table, int n, const struct metric_set *sets,
		       uint32_t n_sets, char **ret_text, size_t *ret_len)
{
	static const char *const kinds[] = {"counter", "gauge", "histogram"};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL)
		return -LE_NOMEM;
	for (int i = 0; i < n; i++) {
		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", table[i].name, table[i].help,
			table[i].name, kinds[table[i].kind]);
		for (uint32_t k = 0; k < n_sets; k++)
			print_value(out, &table[i], (const char *)sets[k].values + table[i].offset,
				    sets[k].labels);
	}
	int failed = ferror(out);
	if (fclose(out) != 0 || failed) {
		free(text);
		return -LE_NOMEM;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}

int metrics_print(const struct metric_desc *table, int n, const void *values, const char *labels,
		  char **ret_text, size_t *ret_len)
{
	struct metric_set set = {values, labels != NULL ? labels : ""};

	return metrics_print_sets(table, n, &set, 1, ret_text, ret_len);
}
