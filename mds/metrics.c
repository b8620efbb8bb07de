/* SPDX-License-Identifier: Apache-2.0 */
/* The table of metrics. */
#include "mds/metrics.h"

#include "common/base/assert.h"

#define ROW(...) METRIC_ROW(struct mds_metrics, __VA_ARGS__)
const struct metric_desc mds_metric_table[] = {MDS_METRICS(ROW)};
#undef ROW
const int n_mds_metrics = ARRAY_SIZE(mds_metric_table);
