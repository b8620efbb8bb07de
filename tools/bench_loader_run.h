/* SPDX-License-Identifier: Apache-2.0 */
/* leat bench loader: the accelerators, and the measured results. */
#ifndef LEAT_TOOLS_BENCH_LOADER_RUN_H
#define LEAT_TOOLS_BENCH_LOADER_RUN_H

#include "tools/bench_loader.h"

/* Bytes that were read, by where they came from. */
struct bench_reads {
	uint64_t servers, peers, local;
};

/* The mean of all accelerators in one epoch. The first two exclude the first step, in which the
 * pipeline starts, as MLPerf Storage does. */
struct epoch_result {
	double au;         /* part of all time in which accelerators computed, as measured */
	double au_nominal; /* likewise, with the time that computing should have taken */
	double au_whole;   /* like au_nominal, with the first step */
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
/* Runs all epochs. Returns an exit status, after a message unless it is EXIT_OK. The caller ends
 * *ret_result with bench_result_fini, whatever is returned. */
int bench_run(struct loader_bench *b, struct bench_result *ret_result);
void bench_result_fini(struct bench_result *r);
/* Returns the wait in seconds that the part p (0 to 1) of all waits does not exceed. Waits of first
 * steps do not count. */
double bench_wait_percentile(const struct loader_bench *b, const struct bench_result *r, double p);

#endif
