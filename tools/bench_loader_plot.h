/* SPDX-License-Identifier: Apache-2.0 */
/* leat bench loader --plot: the waits as SVG. */
#ifndef LEAT_TOOLS_BENCH_LOADER_PLOT_H
#define LEAT_TOOLS_BENCH_LOADER_PLOT_H

#include "tools/bench_loader_run.h"

/* Writes an SVG of the longest wait at each step to path. Returns 0; or -errno, and leaves no
 * file. */
int bench_plot(const struct loader_bench *b, const struct bench_result *r, const char *path);

#endif
