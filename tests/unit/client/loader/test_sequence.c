/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtures: frozen vectors, exactly once; and when a sample comes next. */
#include "client/loader/source/sequence.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void set_part(struct sequence_part *p, uint64_t word, const char *rule, uint64_t weight)
{
	unsigned long long a, b, c, s;
	assert_int_equal(sscanf(rule, "%llu:%llu:%llu:%llu", &a, &b, &c, &s), 4);
	p->word = word;
	p->weight = weight;
	p->n_shards = (uint32_t)s;
	p->shard_first = malloc((s + 1) * sizeof(*p->shard_first));
	assert_non_null(p->shard_first);
	p->shard_first[0] = 0;
	for (uint64_t i = 0; i < s; i++)
		p->shard_first[i + 1] = p->shard_first[i] + a + i * b % c;
	p->n = p->shard_first[s];
}

/* "0xa/5:3:7:10/2+..." */
static void set_parts(struct sequence_of *of, char *text, uint64_t length)
{
	uint32_t n = 1;
	for (const char *c = text; *c; c++)
		n += *c == '+';
	assert_int_equal(sequence_of_init(of, n), 0);
	char *rest = text, *part;
	for (uint32_t i = 0; (part = strsep(&rest, "+")); i++) {
		char rule[128];
		uint64_t word, weight;
		assert_int_equal(
			sscanf(part, "%" SCNx64 "/%127[^/]/%" SCNu64, &word, rule, &weight), 3);
		set_part(&of->parts[i], word, rule, weight);
	}
	assert_int_equal(sequence_of_finish(of, true, length), 0);
}

static void check_vector(const char *line)
{
	char name[32], parts[512], head[256], got[256] = "";
	uint32_t window, unused, k = 0;
	uint64_t seed, epoch, length, stride, want, v, h = 0xcbf29ce484222325ULL;
	struct sequence_of of;
	struct sequence s;
	enum order_mode mode;
	assert_int_equal(sscanf(line,
				"%31s %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu64
				" %511s %" SCNu64 " %" SCNx64 " %255s",
				name, &window, &seed, &epoch, &length, parts, &stride, &want, head),
			 9);
	assert_int_equal(order_mode_parse(name, &mode, &unused), 0);
	set_parts(&of, parts, length);
	assert_int_equal(sequence_init(&s, &of, mode, window, seed), 0);
	for (uint64_t p = 0; p < of.n; p += stride, k++) {
		assert_int_equal(sequence_at(&s, epoch, p, &v), 0);
		if (k < 8)
			snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%" PRIu64,
				 k ? "," : "", v);
		for (int i = 0; i < 8; i++)
			h = (h ^ (v >> 8 * i & 255)) * 0x100000001b3ULL;
	}
	assert_string_equal(got, head);
	assert_int_equal(h, want);
	sequence_fini(&s);
	sequence_of_fini(&of);
}

static void test_frozen_vectors(void **state)
{
	(void)state;
	const char *src = getenv("LEAT_SRC");
	char path[4096], line[2048];
	snprintf(path, sizeof(path), "%s/tests/unit/client/loader/mixture_vectors.txt",
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
	assert_true(n >= 15);
}

static void open_mix(struct sequence_of *of, struct sequence *s, const char *text, uint64_t length,
		     enum order_mode mode)
{
	char copy[256];
	snprintf(copy, sizeof(copy), "%s", text);
	set_parts(of, copy, length);
	assert_int_equal(sequence_init(s, of, mode, 3, 11), 0);
}

/* At the end of a block each sample of a part has come as often as the others, or one time more. */
static void check_laps(const uint32_t *seen, uint64_t n, uint64_t drawn)
{
	for (uint64_t i = 0; i < n; i++)
		assert_true(seen[i] == drawn / n || seen[i] == drawn / n + 1);
}

/* Over many epochs of any length: every sample of a part comes once before one comes again, and
 * parts come in the ratio of their weights, in every block. */
static void test_each_lap_has_each_sample_once(void **state)
{
	(void)state;
	static const uint64_t lengths[] = {0, 7, 50, 333};
	for (int i = 0; i < 4 * 4; i++) {
		struct sequence_of of;
		struct sequence s;
		uint32_t *seen;
		uint64_t drawn[3] = {0}, v;
		open_mix(&of, &s, "0x1/5:3:7:10/4+0x2/1:0:1:9/2+0x3/100:0:1:1/1", lengths[i / 4],
			 (enum order_mode)(i % 4));
		seen = calloc(of.samples, sizeof(*seen));
		assert_non_null(seen);
		for (uint64_t t = 0; t < 7000; t++) {
			int d = 2;
			assert_int_equal(sequence_at(&s, t / of.n, t % of.n, &v), 0);
			while (of.parts[d].first > v)
				d--;
			seen[v]++;
			drawn[d]++;
			for (int k = 0; t % 7 == 6 && k < 3; k++) {
				const struct sequence_part *p = &of.parts[k];
				assert_int_equal(drawn[k], (t / 7 + 1) * p->weight);
				check_laps(seen + p->first, p->n, drawn[k]);
			}
		}
		free(seen);
		sequence_fini(&s);
		sequence_of_fini(&of);
	}
}

static void test_weights_of_their_sizes_make_one_lap_per_epoch(void **state)
{
	(void)state;
	struct sequence_of of;
	struct sequence s;
	uint8_t seen[150] = {0};
	open_mix(&of, &s, "0x1/90:0:1:1/90+0x2/60:0:1:1/60", 0, ORDER_GLOBAL);
	assert_int_equal(of.n, 150);
	assert_int_equal(of.block, 5);
	for (uint64_t p = 0; p < 150; p++) {
		uint64_t v;
		assert_int_equal(sequence_at(&s, 3, p, &v), 0);
		assert_int_equal(seen[v]++, 0);
	}
	sequence_fini(&s);
	sequence_of_fini(&of);
}

static bool any(void *arg, uint64_t time)
{
	(void)arg;
	(void)time;
	return true;
}

static bool even(void *arg, uint64_t time)
{
	(void)arg;
	return time % 2 == 0;
}

/* The predicted next use is the use that really comes next. */
static void check_next(struct sequence *s, uint64_t horizon)
{
	const struct sequence_of *of = s->of;
	uint64_t *at = malloc(horizon * sizeof(*at));
	assert_non_null(at);
	for (uint64_t t = 0; t < horizon; t++)
		assert_int_equal(sequence_at(s, t / of->n, t % of->n, &at[t]), 0);
	for (uint64_t t = 0; t < horizon; t += 3) {
		for (uint64_t sample = t % 2; sample < of->samples; sample += 1 + of->samples / 9) {
			bool (*holds)(void *, uint64_t) = t % 4 ? any : even;
			uint64_t next, want = t;
			while (want < horizon && (at[want] != sample || !holds(NULL, want)))
				want++;
			assert_int_equal(sequence_next(s, sample, t, holds, NULL, &next), 0);
			if (want < horizon && next != want) {
				/* Only if it is beyond the epochs that are searched. */
				assert_true(holds == even && next == SEQUENCE_NEVER);
			} else if (next != SEQUENCE_NEVER && next < horizon) {
				assert_int_equal(next, want);
			}
		}
	}
	free(at);
}

static void test_when_a_sample_comes_next(void **state)
{
	(void)state;
	for (int mode = ORDER_GLOBAL; mode <= ORDER_FILE; mode++) {
		struct sequence_of of;
		struct sequence s;
		open_mix(&of, &s, "0x1/5:3:7:10/4+0x2/1:0:1:9/2+0x3/100:0:1:1/1", 50,
			 (enum order_mode)mode);
		check_next(&s, 1500);
		sequence_fini(&s);
		sequence_of_fini(&of);
		assert_int_equal(sequence_of_init(&of, 1), 0);
		set_part(&of.parts[0], 7, "0:5:13:20", 0);
		assert_int_equal(sequence_of_finish(&of, false, 0), 0);
		assert_int_equal(sequence_init(&s, &of, (enum order_mode)mode, 3, 11), 0);
		check_next(&s, 5 * of.n);
		sequence_fini(&s);
		sequence_of_fini(&of);
	}
}

static void test_positions_undo_the_order(void **state)
{
	(void)state;
	for (uint64_t n = 1; n < 3000; n += 1 + n / 3) {
		struct order_perm p;
		order_perm_init(&p, n * 77, n);
		for (uint64_t x = 0; x < n; x++)
			assert_int_equal(order_perm_inverse(&p, order_perm_at(&p, x)), x);
	}
	struct order_perm big;
	order_perm_init(&big, 5, (uint64_t)1 << 62);
	for (uint64_t x = 1; x; x = x < (uint64_t)1 << 61 ? x * 3 : 0)
		assert_int_equal(order_perm_inverse(&big, order_perm_at(&big, x)), x);
}

static void test_what_makes_no_mixture(void **state)
{
	(void)state;
	struct sequence_of of;
	assert_int_equal(sequence_of_init(&of, 2), 0);
	set_part(&of.parts[0], 1, "5:0:1:2", 1);
	set_part(&of.parts[1], 1, "0:0:1:2", 1);
	assert_int_equal(sequence_of_finish(&of, true, 0), -LE_INVAL);
	of.parts[1].n = 3;
	of.parts[1].weight = 0;
	assert_int_equal(sequence_of_finish(&of, true, 0), -LE_INVAL);
	of.parts[1].weight = MIX_WEIGHT_MAX;
	assert_int_equal(sequence_of_finish(&of, true, 0), -LE_INVAL);
	sequence_of_fini(&of);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frozen_vectors),
		cmocka_unit_test(test_each_lap_has_each_sample_once),
		cmocka_unit_test(test_weights_of_their_sizes_make_one_lap_per_epoch),
		cmocka_unit_test(test_when_a_sample_comes_next),
		cmocka_unit_test(test_positions_undo_the_order),
		cmocka_unit_test(test_what_makes_no_mixture),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
