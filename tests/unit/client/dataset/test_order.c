/* SPDX-License-Identifier: Apache-2.0 */
/* The order of samples: frozen vectors, permutations, statistics, shares. */
#include "client/dataset/order.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shard_rule {
	unsigned long long a, b, c, n;
};

static uint64_t *shard_firsts(const struct shard_rule *r)
{
	uint64_t *first = malloc((r->n + 1) * sizeof(*first));
	assert_non_null(first);
	first[0] = 0;
	for (uint64_t i = 0; i < r->n; i++)
		first[i + 1] = first[i] + r->a + i * r->b % r->c;
	return first;
}

static void check_vector(const char *line)
{
	char mode[32], head[256], got[256] = "";
	struct shard_rule rule;
	uint64_t stride, want, h = 0xcbf29ce484222325ULL;
	uint32_t unused, k = 0;
	struct order_spec spec = {.mode = ORDER_GLOBAL};
	assert_int_equal(sscanf(line,
				"%31s %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNx64
				" %llu:%llu:%llu:%llu %" SCNu64 " %" SCNx64 " %255s",
				mode, &spec.window, &spec.seed, &spec.epoch, &spec.dataset, &rule.a,
				&rule.b, &rule.c, &rule.n, &stride, &want, head),
			 12);
	assert_int_equal(order_mode_parse(mode, &spec.mode, &unused), 0);
	uint64_t *first = shard_firsts(&rule);
	spec.n_shards = (uint32_t)rule.n;
	spec.n = first[rule.n];
	spec.shard_first = first;
	struct order o;
	assert_int_equal(order_init(&o, &spec), 0);
	for (uint64_t p = 0; p < spec.n; p += stride, k++) {
		uint64_t v = order_at(&o, p);
		if (k < 8)
			snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%" PRIu64,
				 k ? "," : "", v);
		for (int i = 0; i < 8; i++)
			h = (h ^ (v >> 8 * i & 255)) * 0x100000001b3ULL;
	}
	assert_string_equal(got, head);
	assert_int_equal(h, want);
	order_fini(&o);
	free(first);
}

static void test_frozen_vectors(void **state)
{
	(void)state;
	const char *src = getenv("LEAT_SRC");
	char path[4096], line[1024];
	snprintf(path, sizeof(path), "%s/tests/unit/client/loader/order_vectors.txt",
		 src ? src : ".");
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	int n = 0;
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '#' || line[0] == '\n')
			continue;
		check_vector(line);
		n++;
	}
	fclose(f);
	assert_true(n >= 20);
}

static void assert_permutation(const struct order_spec *spec)
{
	struct order o;
	assert_int_equal(order_init(&o, spec), 0);
	uint8_t *seen = calloc(1, spec->n + 1);
	assert_non_null(seen);
	for (uint64_t p = 0; p < spec->n; p++) {
		uint64_t s = order_at(&o, p);
		assert_true(s < spec->n);
		assert_int_equal(seen[s], 0);
		seen[s] = 1;
	}
	free(seen);
	order_fini(&o);
}

static void test_every_sample_exactly_once(void **state)
{
	(void)state;
	for (uint64_t n = 0; n < 300; n++) {
		struct order_spec spec = {.mode = ORDER_GLOBAL, .seed = n, .epoch = 1, .n = n};
		assert_permutation(&spec);
	}
	struct shard_rule rule = {0, 37, 101, 777};
	uint64_t *first = shard_firsts(&rule);
	static const uint32_t windows[] = {1, 2, 7, 64, 776, 777, 5000};
	for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		for (int mode = ORDER_GLOBAL; mode <= ORDER_FILE; mode++) {
			struct order_spec spec = {.mode = (enum order_mode)mode,
						  .window = windows[i],
						  .seed = i,
						  .dataset = 99,
						  .n = first[777],
						  .n_shards = 777,
						  .shard_first = first};
			assert_permutation(&spec);
		}
	}
	struct order_spec big = {.mode = ORDER_GLOBAL, .seed = 5, .n = 1000003};
	assert_permutation(&big);
	free(first);
}

/* A window holds the samples of its own shards and no others. */
static void test_windows_stay_apart(void **state)
{
	(void)state;
	struct shard_rule rule = {10, 0, 1, 100};
	uint64_t *first = shard_firsts(&rule);
	struct order_spec spec = {.mode = ORDER_WINDOW,
				  .window = 8,
				  .seed = 3,
				  .n = 1000,
				  .n_shards = 100,
				  .shard_first = first};
	struct order o;
	assert_int_equal(order_init(&o, &spec), 0);
	int window_of_shard[100];
	memset(window_of_shard, -1, sizeof(window_of_shard));
	for (uint64_t p = 0; p < 1000; p++) {
		int *w = &window_of_shard[order_at(&o, p) / 10];
		assert_true(*w == -1 || *w == (int)(p / 80));
		*w = (int)(p / 80);
	}
	order_fini(&o);
	free(first);
}

/* Chi-square of how often each value stands at each position, over many seeds. */
static double chi_square(uint64_t n, uint32_t seeds)
{
	uint32_t *count = calloc(n * n, sizeof(*count));
	assert_non_null(count);
	for (uint32_t s = 0; s < seeds; s++) {
		struct order_spec spec = {.mode = ORDER_GLOBAL, .seed = s, .dataset = 7, .n = n};
		struct order o;
		assert_int_equal(order_init(&o, &spec), 0);
		for (uint64_t p = 0; p < n; p++)
			count[p * n + order_at(&o, p)]++;
		order_fini(&o);
	}
	double want = (double)seeds / (double)n, chi = 0;
	for (uint64_t i = 0; i < n * n; i++)
		chi += (count[i] - want) * (count[i] - want) / want;
	free(count);
	return chi;
}

static void test_positions_are_uniform(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {2, 3, 5, 8, 10, 17, 32, 100};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		double n = (double)sizes[i], df = (n - 1) * (n - 1);
		double chi = chi_square(sizes[i], 20000);
		/* Normal approximation of chi-square: within six standard deviations. */
		if (fabs(chi - df) >= 6 * sqrt(2 * df) + 6)
			fail_msg("n=%g chi=%g df=%g", n, chi, df);
	}
}

/* Neighbours in the order are as far apart as in a random permutation, and so are successive
 * epochs. */
static void test_neighbours_and_epochs_are_unrelated(void **state)
{
	(void)state;
	enum {
		N = 100000
	};
	struct order a, b;
	struct order_spec spec = {.mode = ORDER_GLOBAL, .seed = 1, .n = N};
	assert_int_equal(order_init(&a, &spec), 0);
	spec.epoch = 1;
	assert_int_equal(order_init(&b, &spec), 0);
	double apart = 0, corr = 0, mid = (N - 1) / 2.0, var = ((double)N * N - 1) / 12;
	uint32_t ascents = 0, same = 0;
	for (uint64_t p = 0; p + 1 < N; p++) {
		double x = (double)order_at(&a, p), y = (double)order_at(&a, p + 1);
		double z = (double)order_at(&b, p);
		apart += fabs(x - y);
		ascents += y > x;
		same += x == z;
		corr += (x - mid) * (z - mid);
	}
	assert_true(fabs(apart / N - N / 3.0) < N / 3.0 * 0.01);
	assert_true(abs((int)ascents - N / 2) < 600);
	assert_true(same < 12);
	assert_true(fabs(corr / N / var) < 0.02);
	order_fini(&a);
	order_fini(&b);
}

static void test_shares_are_equal_and_complete(void **state)
{
	(void)state;
	static const uint32_t batches[] = {1, 8, 60, 100}, worlds[] = {1, 2, 4, 5, 20};
	for (uint64_t n = 0; n < 250; n += 7) {
		for (int i = 0; i < 4 * 5 * 3; i++) {
			struct order_deal d = {n, batches[i % 4], worlds[i / 4 % 5],
					       (enum order_tail)(i / 20)};
			if (d.batch % d.world)
				continue;
			uint64_t at = 0;
			for (uint64_t step = 0; step < order_steps(&d); step++) {
				for (uint32_t r = 0; r < d.world; r++) {
					uint64_t from;
					uint32_t count;
					order_share(&d, step, r, &from, &count);
					assert_int_equal(from, at);
					assert_true(d.tail == ORDER_TAIL_SHORTER ||
						    count == d.batch / d.world);
					at += count;
				}
			}
			uint64_t whole = n / d.batch * d.batch;
			if (d.tail == ORDER_TAIL_PAD && n % d.batch)
				whole += d.batch;
			assert_int_equal(at, d.tail == ORDER_TAIL_SHORTER ? n : whole);
		}
	}
}

static void test_bad_specs_are_refused(void **state)
{
	(void)state;
	static const uint64_t wrong_end[] = {0, 5, 9}, falling[] = {0, 8, 5, 10}, late[] = {1, 10};
	struct order o;
	struct order_spec spec = {
		.mode = ORDER_FILE, .n = 10, .n_shards = 2, .shard_first = wrong_end};
	assert_int_equal(order_init(&o, &spec), -LE_INVAL);
	spec = (struct order_spec){
		.mode = ORDER_FILE, .n = 10, .n_shards = 3, .shard_first = falling};
	assert_int_equal(order_init(&o, &spec), -LE_INVAL);
	spec = (struct order_spec){.mode = ORDER_FILE, .n = 10, .n_shards = 1, .shard_first = late};
	assert_int_equal(order_init(&o, &spec), -LE_INVAL);
	spec = (struct order_spec){.mode = ORDER_WINDOW, .n = 10};
	assert_int_equal(order_init(&o, &spec), -LE_INVAL);
	enum order_mode mode;
	uint32_t w;
	assert_int_equal(order_mode_parse("window:0", &mode, &w), -LE_INVAL);
	assert_int_equal(order_mode_parse("window:12x", &mode, &w), -LE_INVAL);
	assert_int_equal(order_mode_parse("window:12", &mode, &w), 0);
	assert_int_equal(w, 12);
	assert_int_equal(order_mode_parse("shuffled", &mode, &w), -LE_INVAL);
}

static void test_default_window(void **state)
{
	(void)state;
	assert_int_equal(order_default_window(1281167, 1024, 400), 64);
	assert_int_equal(order_default_window(100000, 10000, 256), 205);
	assert_int_equal(order_default_window(50, 10, 8), 10);
	assert_int_equal(order_default_window(0, 0, 8), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frozen_vectors),
		cmocka_unit_test(test_every_sample_exactly_once),
		cmocka_unit_test(test_windows_stay_apart),
		cmocka_unit_test(test_positions_are_uniform),
		cmocka_unit_test(test_neighbours_and_epochs_are_unrelated),
		cmocka_unit_test(test_shares_are_equal_and_complete),
		cmocka_unit_test(test_bad_specs_are_refused),
		cmocka_unit_test(test_default_window),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
