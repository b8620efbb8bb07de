/* SPDX-License-Identifier: Apache-2.0 */
/* Which node has which copies: reports, replacement, queries by name and by id, pages, expiry. */
#include "mds/staged_locations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static uint32_t put(uint8_t *buf, size_t size, const char *id, const char *name, uint64_t done)
{
	struct residency_row row = {.id = bytes_str(id),
				    .name = bytes_str(name),
				    .state = 2,
				    .bytes = 10,
				    .done = done};
	struct wire_w w;

	wire_w_init(&w, buf, size);
	wire_put_residency_row(&w, &row);
	assert_int_equal(w.status, 0);
	return (uint32_t)w.len;
}

static int notification(struct residency *r, const char *node, const char *id, const char *name,
		uint64_t now_us)
{
	uint8_t buf[512];
	struct mds_residency_set_req in = {
		.node = bytes_str(node), .addrs = bytes_str("host:1"), .ttl_ms = 1000};

	if (id != NULL)
		in.rows = bytes_of(buf, put(buf, sizeof(buf), id, name, now_us));
	return residency_set(r, &in, now_us);
}

static uint32_t ask(struct residency *r, const char *what, uint64_t now_us, size_t page)
{
	struct mds_residency_get_req in = {.what = bytes_str(what)};
	uint8_t buf[4096];
	uint32_t n = 0, next;

	do {
		struct wire_w w;
		struct wire_r rd;

		wire_w_init(&w, buf, page);
		residency_get(r, &in, now_us, &w, &next);
		assert_true(next == 0 || next > in.from);
		wire_r_init(&rd, buf, w.len);
		while (!wire_r_end(&rd)) {
			struct residency_node node = {0};

			wire_get_residency_node(&rd, &node);
			assert_int_equal(rd.status, 0);
			n++;
		}
		in.from = next;
	} while (next != 0);
	return n;
}

static void test_told_asked_and_forgotten(void **state)
{
	struct residency r;

	(void)state;
	residency_init(&r);
	assert_int_equal(notification(&r, "one", ID_A, "set@v1", 0), 0);
	assert_int_equal(notification(&r, "two", ID_A, "set@v1", 500000), 0);
	assert_int_equal(notification(&r, "three", ID_B, "", 500000), 0);
	assert_int_equal(ask(&r, "", 600000, 4096), 3);
	assert_int_equal(ask(&r, "set@v1", 600000, 4096), 2);
	assert_int_equal(ask(&r, ID_B, 600000, 4096), 1);
	assert_int_equal(ask(&r, "other@v1", 600000, 4096), 0);
	/* A new report of a node replaces its previous one. */
	assert_int_equal(notification(&r, "two", ID_B, "", 700000), 0);
	assert_int_equal(ask(&r, ID_A, 700000, 4096), 1);
	/* Silence, and a final report. */
	assert_int_equal(ask(&r, "", 1000000, 4096), 2);
	assert_int_equal(notification(&r, "two", NULL, NULL, 1000000), 0);
	assert_int_equal(ask(&r, "", 1000000, 4096), 1);
	assert_int_equal(ask(&r, "", 2000000, 4096), 0);
	assert_int_equal(r.bytes, 0);
	residency_fini(&r);
}

static void test_pages(void **state)
{
	struct residency r;
	char node[16];

	(void)state;
	residency_init(&r);
	for (int i = 0; i < 50; i++) {
		snprintf(node, sizeof(node), "node%d", i);
		assert_int_equal(notification(&r, node, i % 2 ? ID_A : ID_B, "", 0), 0);
	}
	assert_int_equal(ask(&r, "", 0, 300), 50);
	assert_int_equal(ask(&r, ID_A, 0, 300), 25);
	residency_fini(&r);
}

static void test_refused(void **state)
{
	struct mds_residency_set_req in = {.node = bytes_str("n"), .ttl_ms = 1000};
	struct residency r;
	uint8_t buf[512];
	uint32_t len = put(buf, sizeof(buf), ID_A, "set@v1", 0);

	(void)state;
	residency_init(&r);
	assert_int_equal(notification(&r, "", ID_A, "", 0), -LE_INVAL);
	assert_int_equal(notification(&r, "bad\nname", ID_A, "", 0), -LE_INVAL);
	assert_int_equal(notification(&r, "n", "short", "", 0), -LE_INVAL);
	assert_int_equal(notification(&r, "n", ID_A, "quo\"te", 0), -LE_INVAL);
	for (uint32_t cut = 1; cut < len; cut++) {
		in.rows = bytes_of(buf, cut);
		assert_true(residency_set(&r, &in, 0) < 0);
	}
	in.rows = bytes_of(buf, len);
	in.ttl_ms = RESIDENCY_TTL_MAX_MS + 1;
	assert_int_equal(residency_set(&r, &in, 0), -LE_INVAL);
	assert_int_equal(r.n_nodes, 0);
	residency_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told_asked_and_forgotten),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
