/*
 * leat bench loader: the reading side of MLPerf Storage's training workloads, with accelerators
 * that only sleep. One struct of what is asked for, one of what was measured; parts:
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
#define BENCH_STEPS_MAX        1000000u /* of all epochs; a wait of each accelerator is kept */

enum accelerator {
	ACCELERATOR_A100,
	ACCELERATOR_H100,
	ACCELERATORS
};
extern const char *const accelerator_names[ACCELERATORS];

/* As configs/dlio/workload of github.com/mlcommons/storage has them (versions 1.0 and 2.0). */
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
	uint64_t run_steps; /* of an epoch, as they are run */
};

/* ---- bench_loader_data.c ---- */

/* Enough files for the steps asked for, in a new folder below dir: its path. An exit status after a
 * message; nothing is left then. */
int bench_data_make(struct loader_bench *b, const char *dir, char *ret_path, size_t size);
/* The folder and the files in it. */
void bench_data_remove(const char *path);
/* Puts the files of a local folder out of this machine's page cache. -errno */
int bench_data_drop(const char *path);

/* ---- bench_loader_run.c ---- */

/* Bytes that were read, by where they came from. */
struct bench_reads {
	uint64_t servers, peers, local;
};

/* Of one epoch, the mean of all accelerators. The first step is left out of the first two, as
 * MLPerf Storage does: there the pipeline starts. */
struct epoch_result {
	double au;         /* time computing, as measured, of all time */
	double au_nominal; /* the same with the time that computing should have taken */
	double au_whole;   /* nominal, with the first step */
	double seconds, first_wait_s;
	uint64_t samples, bytes; /* delivered */
	struct bench_reads from; /* for this epoch, and ahead for the next one */
};

struct bench_result {
	struct epoch_result *epochs;
	float *wait_s; /* of each step (epoch after epoch): of each accelerator */
	uint64_t n_steps, n_epochs;
	uint64_t stall_us[LEAT_STALLS];
	struct bench_reads from;
	uint64_t delivered, from_disk;
	uint64_t memory; /* of all loaders, at the end */
};
/* An exit status after a message. bench_result_fini in any case. */
int bench_run(struct loader_bench *b, struct bench_result *ret_result);
void bench_result_fini(struct bench_result *r);
/* The part p (0 to 1) of all waits but those of first steps is at most this, in seconds. */
double bench_wait_percentile(const struct loader_bench *b, const struct bench_result *r, double p);

/* ---- bench_loader_plot.c ---- */

/* An SVG of the longest wait at each step. -errno; no file is left then. */
int bench_plot(const struct loader_bench *b, const struct bench_result *r, const char *path);

/* ---- bench_loader.c ---- */

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
