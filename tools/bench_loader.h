/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat bench loader: the reading side of MLPerf Storage's training workloads, with accelerators
 * that only sleep. Parts:
 *
 *   bench_loader.c       options, the data set, the report
 *   bench_loader_data.c  makes data of a workload's shape, and removes it
 *   bench_loader_run.c   the accelerators: a thread and a loader each, in step with one another
 *   bench_loader_plot.c  the waits as SVG
 */
#ifndef LEAT_TOOLS_BENCH_LOADER_H
#define LEAT_TOOLS_BENCH_LOADER_H

#include <leat/leat_loader.h>

#include "tools/tool.h"

#define BENCH_ACCELERATORS_MAX 64u
#define BENCH_STEPS_MAX        1000000u /* of all epochs; a wait of each accelerator is stored */

enum accelerator {
	ACCELERATOR_A100,
	ACCELERATOR_H100,
	ACCELERATORS
};
extern const char *const accelerator_names[ACCELERATORS];

/* From configs/dlio/workload of github.com/mlcommons/storage (versions 1.0 and 2.0). */
struct workload {
	const char *name, *format;
	uint32_t samples_per_file, batch; /* of each accelerator */
	double record_mean, record_sd;    /* bytes of a sample */
	double compute_s[ACCELERATORS];   /* of a batch */
	double goal;                      /* utilisation that a run needs */
};
const struct workload *workload_find(const char *name);

struct loader_bench {
	struct tool *tool;
	const struct workload *w;
	enum accelerator type;
	uint64_t n_accelerators, epochs, steps, threads, depth, memory, seed;
	double scale; /* of the samples' bytes */
	const char *order, *data, *plot, *stage_dir;
	bool generate, keep, cold;
	struct leat_dataset *ds;
	uint64_t run_steps; /* of an epoch: those that are run */
};

/* Part of `leat bench --help`. */
#define BENCH_LOADER_USAGE                                                                         \
	"\n"                                                                                       \
	"usage: leat bench loader --workload NAME --data WHAT [--generate [--keep]]\n"             \
	"         [--type a100|h100] [--accelerators N] [--scale X] [--steps N] [--epochs N]\n"    \
	"         [--order ORDER] [--seed N] [--threads N] [--depth N] [--memory SIZE]\n"          \
	"         [--stage-dir DIR] [--cold] [--plot FILE.svg]\n"                                  \
	"Training as MLPerf Storage emulates it: accelerators that take a batch, sleep as long "   \
	"as\n"                                                                                     \
	"the real ones compute, and wait for each other.\n"                                        \
	"  --workload NAME   unet3d, resnet50 or cosmoflow\n"                                      \
	"  --data WHAT       a directory, leat:/DIRECTORY, or a data set NAME@VERSION; on a "      \
	"Leat\n"                                                                                   \
	"                    mount it is read straight from the servers\n"                         \
	"  --generate        makes data below that directory first, and removes it afterwards\n"   \
	"                    (--keep: not)\n"                                                      \
	"  --scale X         of the samples' bytes (1): what a second needs shrinks as much\n"     \
	"  --steps N         of an epoch (all that there are; generated: 20)\n"                    \
	"  --cold            local files out of the page cache before each epoch\n"                \
	"Examples:\n"                                                                              \
	"  leat bench loader --workload unet3d --scale 0.01 --data /mnt/leat --generate\n"         \
	"  leat bench loader --workload cosmoflow --accelerators 4 --data cosmo@v1 --plot w.svg\n"
/* argv[0] is "loader". Returns an exit status. */
int bench_loader(struct tool *t, int argc, char **argv);

#endif
