/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging by many nodes, simulated: the shipped code that decides which node requests which chunk
 * from which node (client/stage: peers, spread, fetch and its part files), on every one of up to
 * some thousand nodes, in virtual time. Below it a model: links and servers with a rate, one queue
 * each; disks that hold what is written; nodes that die, return wrong bytes, or are slow.
 */
#ifndef LEAT_TESTS_SIM_FANOUT_H
#define LEAT_TESTS_SIM_FANOUT_H

#include <stdbool.h>
#include <stdint.h>

struct fanout_plan {
	uint64_t seed;
	uint32_t n_nodes, n_chunks;
	/* Microseconds for one chunk: on a node's link, each way; on all servers together. */
	uint32_t link_us, servers_us;
	uint32_t start_us;                      /* each node starts within this time multiplied by
						 * the number of nodes */
	uint32_t slow_by;                       /* factor by which a slow node's link is slower */
	uint32_t dead_ppm, lying_ppm, slow_ppm; /* of the nodes */
};

struct fanout_result {
	bool failed;
	char failure[256];
	uint32_t n_dead, n_lying, n_slow, n_ready;
	double seconds;     /* until all nodes that are neither dead nor slow have the data set */
	double seconds_all; /* until the slow ones have it, too */
	double amplification;
	double busiest; /* chunks that the busiest node sent to others, in data sets */
	uint64_t dropped, lied;
};

void fanout_run(const struct fanout_plan *p, struct fanout_result *ret);
/* leat-sim fanout [--nodes N] [--chunks N] ...: one line of CSV. */
int fanout_command(int argc, char **argv);

/* tests of leat-sim; the last one belongs to check-long */
int fanout_test_32(void);
int fanout_test_100(void);
int fanout_test_100_faults(void);
int fanout_test_32_late(void);
int fanout_test_1000(void);

#endif
