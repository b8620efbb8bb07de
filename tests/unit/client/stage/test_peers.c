/* SPDX-License-Identifier: Apache-2.0 */
/* Which node owns a chunk: evenly spread, and independent of other nodes that join or leave. */
#include "client/stage/fetch/peers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define NODES  16u
#define CHUNKS 16384u

static uint32_t owner(uint64_t chunk, uint32_t n, uint32_t without)
{
	uint64_t best = 0;
	uint32_t who = 0;
	for (uint32_t i = 0; i < n; i++) {
		char node[32];
		snprintf(node, sizeof(node), "node%u:7460", i);
		uint64_t x = swarm_weight(node, chunk);
		if (i != without && x > best) {
			best = x;
			who = i;
		}
	}
	return who;
}

static void test_even(void **state)
{
	uint32_t owned[NODES] = {0};
	(void)state;
	for (uint64_t c = 0; c < CHUNKS; c++)
		owned[owner(c, NODES, NODES)]++;
	for (uint32_t i = 0; i < NODES; i++) {
		assert_true(owned[i] > CHUNKS / NODES * 85 / 100);
		assert_true(owned[i] < CHUNKS / NODES * 115 / 100);
	}
}

static void test_only_what_the_lost_one_had_moves(void **state)
{
	uint32_t moved_to[NODES] = {0}, moved = 0;
	(void)state;
	for (uint64_t c = 0; c < CHUNKS; c++) {
		uint32_t before = owner(c, NODES, NODES), after = owner(c, NODES, 3);
		assert_true(before == after || before == 3);
		moved += before != after;
		moved_to[after] += before != after;
	}
	assert_true(moved > 0);
	/* And it is spread over all others, not moved to one. */
	for (uint32_t i = 0; i < NODES; i++)
		assert_true(i == 3 ? moved_to[i] == 0 : moved_to[i] < moved / 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_only_what_the_lost_one_had_moves),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
