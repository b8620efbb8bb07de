/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of staging by many nodes, and the command for other numbers. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/fanout.h"

/* Links of 200 MB/s for each node, servers that give eight times that: 10 s for 2000 chunks. */
static struct fanout_plan plan_of(uint32_t n_nodes, uint32_t n_chunks)
{
	return (struct fanout_plan){.seed = 1,
				    .n_nodes = n_nodes,
				    .n_chunks = n_chunks,
				    .link_us = 5000,
				    .servers_us = 625,
				    .start_us = 1000,
				    .slow_by = 20};
}

static void with_faults(struct fanout_plan *p)
{
	p->dead_ppm = 20000;
	p->lying_ppm = 10000;
	p->slow_ppm = 20000;
}

static void print(const struct fanout_plan *p, const struct fanout_result *r)
{
	printf("%u,%u,%u,%u,%u,%u,%.3f,%.3f,%.4f,%.3f,%llu,%llu\n", p->n_nodes, p->n_chunks,
	       r->n_ready, r->n_dead, r->n_lying, r->n_slow, r->seconds, r->seconds_all,
	       r->amplification, r->busiest, (unsigned long long)r->dropped,
	       (unsigned long long)r->lied);
	if (r->failed)
		printf("FAILED: %s\n", r->failure);
	fflush(stdout);
}

int fanout_command(int argc, char **argv)
{
	static const struct option longs[] = {
		{"nodes", required_argument, NULL, 'n'},
		{"chunks", required_argument, NULL, 'c'},
		{"seed", required_argument, NULL, 's'},
		{"start-us", required_argument, NULL, 'b'},
		{"link-us", required_argument, NULL, 'l'},
		{"servers-us", required_argument, NULL, 'S'},
		{"faults", no_argument, NULL, 'f'},
		{NULL, 0, NULL, 0},
	};
	struct fanout_plan p = plan_of(100, 2000);
	struct fanout_result r;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		uint32_t v = optarg ? (uint32_t)strtoul(optarg, NULL, 0) : 0;
		if (c == 'n')
			p.n_nodes = v;
		else if (c == 'c')
			p.n_chunks = v;
		else if (c == 's')
			p.seed = v;
		else if (c == 'b')
			p.start_us = v;
		else if (c == 'l')
			p.link_us = v;
		else if (c == 'S')
			p.servers_us = v;
		else if (c == 'f')
			with_faults(&p);
		else
			return 2;
	}
	fanout_run(&p, &r);
	print(&p, &r);
	return r.failed;
}

/* Takes as long as one node alone, and at most 1.3 times that; reads the source about once. */
static int compare(uint32_t n_nodes, uint32_t n_chunks, bool faults)
{
	struct fanout_plan one = plan_of(1, n_chunks), p = plan_of(n_nodes, n_chunks);
	struct fanout_result alone, r;
	/* A thousand nodes take a second to start, and each finds out by itself which nodes are
	 * slow. */
	bool many = n_nodes > 500;
	double times = faults ? (many ? 3 : 2.3) : many ? 1.4 : 1.3;
	double amplification = faults ? 1.1 : 1.05;

	if (faults)
		with_faults(&p);
	fanout_run(&one, &alone);
	print(&one, &alone);
	fanout_run(&p, &r);
	print(&p, &r);
	if (alone.failed || r.failed)
		return 1;
	if (r.seconds > alone.seconds * times || r.amplification > amplification) {
		printf("FAILED: %.2f times one node's time, amplification %.3f\n",
		       r.seconds / alone.seconds, r.amplification);
		return 1;
	}
	return r.n_ready + r.n_dead < n_nodes;
}

int fanout_test_32(void)
{
	return compare(32, 1000, false);
}

int fanout_test_100(void)
{
	return compare(100, 1000, false);
}

int fanout_test_100_faults(void)
{
	return compare(100, 2000, true);
}

/* Nodes that start within five seconds: the others wait for the chunks that a late node owns, and
 * do not read them from the source too. */
int fanout_test_32_late(void)
{
	struct fanout_plan p = plan_of(32, 1000);
	struct fanout_result r;

	p.start_us = 160000;
	fanout_run(&p, &r);
	print(&p, &r);
	return r.failed || r.n_ready < p.n_nodes || r.amplification > 1.001;
}

int fanout_test_1000(void)
{
	const char *is_long = getenv("LEAT_LONG");

	if (is_long == NULL || is_long[0] != '1') {
		printf("a minute: by check-long only\n");
		return 77;
	}
	return compare(1000, 1000, false) || compare(1000, 1000, true);
}
