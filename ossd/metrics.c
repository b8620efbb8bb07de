/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/metrics.h"

#include "common/base/assert.h"

#define ROW(...) METRIC_ROW(struct ossd_metrics, __VA_ARGS__)

const struct metric_desc ossd_metric_table[] = { OSSD_METRICS(ROW) };
const int n_ossd_metrics = ARRAY_SIZE(ossd_metric_table);
