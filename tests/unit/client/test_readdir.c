/* SPDX-License-Identifier: Apache-2.0 */
/* Listing a directory while the metadata server is silent. */
#include "tests/unit/client/bed.h"

#include "client/client.h"
#include "client/ll.h"
#include "common/base/status.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define SILENT_US    5000000u
#define INTERRUPT_US 100000u

/* Memory in use at the end of the simulation leaks. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

static void interrupt_fiber(void *arg)
{
	assert_int_equal(fiber_sleep_us(INTERRUPT_US), 0);
	fiber_interrupt(arg);
}

static int count(void *arg, const struct ll_dirent *e)
{
	uint32_t *n = arg;

	(void)e;
	(*n)++;
	return 0;
}

/* The caller waits for a batch that a background fiber fetches. */
static void interrupt_body(void)
{
	struct cred cred = {.flags = CRED_CHECKED};
	uint64_t began_us = loop_now_us();
	uint32_t n = 0;
	bool eof;

	bed.readdir_us = SILENT_US;
	assert_int_equal(fiber_spawn("interrupt", interrupt_fiber, fiber_self()), 0);
	assert_int_equal(
		ll_readdir(bed.client, &cred, (struct ino){100}, 0, false, count, &n, &eof),
		-LE_INTR);
	assert_int_equal(n, 1);
	assert_int_equal(bed.n_readdirs, 2);
	assert_true(loop_now_us() < began_us + 2 * INTERRUPT_US);
	/* The background fiber's request has ended. */
	assert_int_equal(fiber_sleep_us(2 * SILENT_US), 0);
}

static void an_interrupt_ends_the_wait_for_the_next_batch(void **state)
{
	(void)state;
	bed_run(interrupt_body);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_interrupt_ends_the_wait_for_the_next_batch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
