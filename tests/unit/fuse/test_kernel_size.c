/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's size of files: when it is notified, when a reply has to wait, which process requests
 * attributes. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "fuse/kernel/kernel_pages.h"
#include "fuse/kernel/kernel_size.h"

#define UNTIL_MS 30000u

static struct kernel_reply r;
static struct fake_node *n;
static uint64_t node, fh;

static void open_it(uint64_t size)
{
	n = fake_file("a", 'a', size);
	node = n->attr.ino.v;
	fh = kernel_open_file(&rig.k, node, O_RDWR);
	fake.leased = false;
}

/* A page that the kernel fills without a lease. */
static uint64_t send_page_read(uint64_t off)
{
	struct fuse_read_in in = {.fh = fh, .offset = off, .size = 4096};
	struct kernel_part part = ARG(in);

	return kernel_send(&rig.k, FUSE_READ, node, &part, 1);
}

static void wait_asked(uint32_t times)
{
	uint64_t until = loop_deadline_ms(UNTIL_MS);

	while (rig_helper->n_asked < times && loop_now_us() < until)
		assert_int_equal(fiber_sleep_us(1000), 0);
	/* More on a slow machine: the first request times out early, and is repeated. */
	assert_true(rig_helper->n_asked >= times);
}

/* The kernel requests attributes as it does for the helper's statx. Returns the size that it gets.
 * On a slow machine another helper may have taken over meanwhile; then that one requests them. */
static uint64_t helper_getattr(void)
{
	struct fuse_getattr_in in = {0};
	struct kernel_part part = ARG(in);
	uint64_t until = loop_deadline_ms(UNTIL_MS), request;
	pid_t pid = rig.k.pid;

	do {
		rig.k.pid = rig_helper->pid;
		request = kernel_send(&rig.k, FUSE_GETATTR, node, &part, 1);
		while (!kernel_has_reply(&rig.k, request) && rig.k.pid == rig_helper->pid) {
			assert_true(loop_now_us() < until);
			assert_int_equal(fiber_sleep_us(1000), 0);
		}
	} while (!kernel_has_reply(&rig.k, request));
	rig.k.pid = pid;
	assert_int_equal(kernel_wait(&rig.k, request, &r), 0);
	return r.attr.attr.size;
}

static void wait_notified(void)
{
	uint64_t until = loop_deadline_ms(UNTIL_MS);

	while (!kernel_was_notified(&rig.k, node, false) && loop_now_us() < until)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_true(kernel_was_notified(&rig.k, node, false));
}

/* Before a reply has a page with zeros after the end, the kernel's size is refreshed: the kernel
 * may take the file to be longer. Then the kernel's size is at most what the reply covers. */
static void a_short_page(void)
{
	uint64_t reads, n_probes;

	open_it(100);
	reads = send_page_read(0);
	wait_asked(1);
	assert_int_equal(rig_helper->node, node);
	assert_int_equal(rig_helper->end, 100);
	assert_false(kernel_has_reply(&rig.k, reads));
	rig_helper->size = helper_getattr();
	assert_int_equal(rig_helper->size, 100);
	rig.k.n_invals = 0;
	rig_helper->n_answers = UINT32_MAX;
	assert_int_equal(kernel_wait(&rig.k, reads, &r), 0);
	assert_int_equal(r.len, 100);
	assert_true(metric_get(&rig.fs->metrics.size_probes) >= 1);
	/* The page is dropped, and its leases are released. */
	wait_notified();
	for (int i = 0; fake.n_leases > 0 && i < 1000; i++)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_int_equal(fake.n_leases, 0);
	/* The size is confirmed now. On a slow machine this may have needed more than one
	 * answer. */
	for (int i = 0; i < 10; i++) {
		n_probes = metric_get(&rig.fs->metrics.size_probes);
		assert_int_equal(kernel_wait(&rig.k, send_page_read(0), &r), 0);
		if (metric_get(&rig.fs->metrics.size_probes) == n_probes)
			break;
	}
	assert_int_equal(metric_get(&rig.fs->metrics.size_probes), n_probes);
	/* A full page needs no refresh, whatever the kernel's size. */
	kernel_write(&rig.k, node, fh, 0, (char[8192]){0}, 8192);
	assert_int_equal(kernel_wait(&rig.k, send_page_read(0), &r), 0);
	assert_int_equal(r.len, 4096);
	assert_int_equal(metric_get(&rig.fs->metrics.size_probes), n_probes);
}
RIG_TEST(a_short_page)

/* No helper can run: the read fails instead of returning zeros. */
static void nobody_can_ask(void)
{
	open_it(100);
	rig_helper->dies = true;
	rig_helper->n_answers = UINT32_MAX;
	assert_int_equal(kernel_wait(&rig.k, send_page_read(0), &r), EIO);
	assert_false(rig.fs->pages.probes_refused);
	rig_helper->dies = false;
	rig_helper->err = EPERM;
	assert_int_equal(kernel_wait(&rig.k, send_page_read(0), &r), EIO);
	assert_true(rig.fs->pages.probes_refused);
	/* A program that reads without the page cache gets no zeros. */
	assert_int_equal(kernel_read(&rig.k, node, fh, 0, 4096, &r), 0);
	assert_int_equal(r.len, 100);
}
RIG_TEST(nobody_can_ask)

/* While a page contains zeros, no reply reports that the file is longer. */
static void zeros_are_not_shown(void)
{
	struct kernel_part part;
	struct fuse_getattr_in in = {0};
	struct kernel_size *k;
	uint64_t asks;

	open_it(100);
	k = kernel_size_get(rig.fs, n->attr.ino);
	kernel_size_visible(k, 100);
	assert_false(kernel_size_not_notified(rig.fs, n->attr.ino, 100));
	assert_true(kernel_size_not_notified(rig.fs, n->attr.ino, 101));
	assert_int_equal(kernel_getattr(&rig.k, node, &r), 0);
	assert_int_equal(r.attr.attr.size, 100);
	assert_int_equal(r.attr.attr_valid, 2);
	n->attr.size = 5000; /* another client has written; nothing is read here */
	part = ARG(in);
	asks = kernel_send(&rig.k, FUSE_GETATTR, node, &part, 1);
	assert_false(kernel_has_reply(&rig.k, asks));
	/* The kernel may ignore a reply that was overtaken by the drop of the pages: its size is
	 * refreshed first. */
	kernel_size_gone(k);
	wait_asked(1);
	rig_helper->size = helper_getattr();
	rig_helper->n_answers = UINT32_MAX;
	assert_int_equal(kernel_wait(&rig.k, asks, &r), 0);
	assert_int_equal(r.attr.attr.size, 5000);
	n->attr.size = 100;
	kernel_size_put(k);
}
RIG_TEST(zeros_are_not_shown)

/* Pages are gone when they have been dropped and the reads that were then in flight have replies: a
 * read may have found a page before. */
static void reads_in_flight(void)
{
	struct kernel_size_reader before, after;
	struct kernel_size *k;

	open_it(100);
	k = kernel_size_get(rig.fs, n->attr.ino);
	assert_ptr_equal(kernel_size_busy(rig.fs, n->attr.ino), k);
	kernel_size_read(k, &before);
	kernel_size_visible(k, 100);
	kernel_size_gone(k);
	assert_true(kernel_size_not_notified(rig.fs, n->attr.ino, 200));
	kernel_size_read(k, &after);
	kernel_size_answered(k, &before);
	assert_false(kernel_size_not_notified(rig.fs, n->attr.ino, 200));
	kernel_size_answered(k, &after);
	kernel_size_idle(k);
	kernel_size_put(k);
	/* A file that is not open with pages has no record. */
	assert_null(kernel_size_busy(rig.fs, n->attr.ino));
	kernel_size_idle(NULL);
	kernel_size_put(NULL);
}
RIG_TEST(reads_in_flight)

/* Makes the helper request attributes until the kernel's size is at most `size`. */
static void ask(struct kernel_size *k, uint64_t end, uint64_t size)
{
	uint64_t begun = 0;

	do
		assert_int_equal(kernel_size_before_reply(k, end, &begun), 0);
	while (!kernel_size_within(k, size));
}

/* When the kernel learns that a file is shorter, it zeroes the rest of its last page. */
static void a_file_that_becomes_shorter(void)
{
	struct kernel_size *k;

	open_it(8192);
	k = kernel_size_get(rig.fs, n->attr.ino);
	rig_helper->n_answers = UINT32_MAX;
	rig_helper->size = 8192;
	ask(k, 8000, 8192);
	assert_true(kernel_size_within(k, 8192));
	assert_false(kernel_size_within(k, 8191));
	assert_int_equal(fiber_sleep_us(20000), 0);
	n->attr.size = 1000;
	rig_helper->size = 1000;
	assert_int_equal(kernel_getattr(&rig.k, node, &r), 0);
	assert_int_equal(r.attr.attr.size, 1000);
	wait_notified();
	for (uint32_t i = 0; i < rig.k.n_invals; i++)
		if (rig.k.invals[i].off >= 0) {
			assert_int_equal(rig.k.invals[i].off, 1000);
			assert_int_equal(rig.k.invals[i].len, 1);
		}
	kernel_size_put(k);
}
RIG_TEST(a_file_that_becomes_shorter)

/* The helper's reply makes the file shorter, the READ waits for the helper no longer, and the file
 * grows. The kernel clears the rest of the page once the READ has its reply: so no reply reports
 * more until then. */
static void a_helper_that_is_late(void)
{
	uint64_t reads;

	open_it(3000);
	n->attr.size = 100;
	reads = send_page_read(0);
	wait_asked(1);
	assert_int_equal(helper_getattr(), 100);
	n->attr.size = 3000;
	wait_asked(2);
	assert_int_equal(helper_getattr(), 100);
	rig_helper->size = 100;
	rig_helper->n_answers = UINT32_MAX;
	assert_int_equal(kernel_wait(&rig.k, reads, &r), 0);
	assert_int_equal(r.len, 3000);
	wait_notified();
}
RIG_TEST(a_helper_that_is_late)

/* Another reply has reported a greater size since. */
static void a_file_that_grows(void)
{
	struct kernel_size *k;

	open_it(100);
	k = kernel_size_get(rig.fs, n->attr.ino);
	rig_helper->n_answers = UINT32_MAX;
	rig_helper->size = 100;
	ask(k, 100, 100);
	assert_true(kernel_size_within(k, 100));
	kernel_size_grown(rig.fs, n->attr.ino, 300);
	assert_false(kernel_size_within(k, 299));
	assert_true(kernel_size_within(k, 300));
	kernel_write(&rig.k, node, fh, 300, "x", 1);
	assert_false(kernel_size_within(k, 300));
	kernel_size_put(k);
}
RIG_TEST(a_file_that_grows)

/* A busy machine may need more than OWNER_MS for the helper's first answer. */
static int refresh_owner(void)
{
	int rc = -LE_TIMEDOUT;

	for (int i = 0; rc == -LE_TIMEDOUT && i < 50; i++)
		rc = kernel_owner_refresh(rig.fs, n->attr.ino);
	return rc;
}

/* Another client has changed the owner: attributes are requested until the kernel has the new
 * owner, and not for ever. */
static void owners(void)
{
	struct kernel_size *k;

	open_it(100);
	n->attr.uid = 5;
	n->attr.gid = 6;
	rig_helper->n_answers = UINT32_MAX;
	rig_helper->uid = 5;
	rig_helper->gid = 6;
	/* Starting a helper may take longer than the refresh may last: now there is an idle one. */
	k = kernel_size_get(rig.fs, n->attr.ino);
	rig_helper->size = 100;
	ask(k, 100, 100);
	kernel_size_put(k);
	assert_int_equal(refresh_owner(), 0);
	assert_true(rig_helper->end == UINT64_MAX); /* whatever the size */
	rig_helper->uid = 4;
	rig_helper->n_asked = 0;
	for (int i = 0; rig_helper->n_asked < 2 && i < 50; i++)
		assert_int_equal(kernel_owner_refresh(rig.fs, n->attr.ino), -LE_TIMEDOUT);
	assert_true(rig_helper->n_asked >= 2);
	fake_fail("ll_getattr", -LE_STALE);
	assert_int_equal(kernel_owner_refresh(rig.fs, n->attr.ino), -LE_STALE);
}
RIG_TEST(owners)

/* After another daemon: no reply reports bytes until the pages of the previous daemon are
 * dropped. */
static void pages_of_another_daemon(void)
{
	open_it(100);
	assert_int_equal(kernel_size_previous(rig.fs, n->attr.ino), 0);
	assert_int_equal(kernel_size_previous(rig.fs, n->attr.ino), 0); /* opened twice */
	assert_true(kernel_size_not_notified(rig.fs, n->attr.ino, 1));
	assert_false(kernel_size_not_notified(rig.fs, n->attr.ino, 0));
	/* The kernel is not asked for the owner either: the answer has the size. */
	rig_helper->n_answers = UINT32_MAX;
	assert_int_equal(kernel_owner_refresh(rig.fs, n->attr.ino), -LE_NOT_READY);
	assert_int_equal(rig_helper->n_asked, 0);
	kernel_size_drop_previous(rig.fs);
	assert_int_equal(kernel_owner_refresh(rig.fs, n->attr.ino), -LE_NOT_READY);
	kernel_take(&rig.k, 1, UNTIL_MS);
	for (int i = 0; rig.fs->pages.sizes.n > 0 && i < 1000; i++)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_false(kernel_size_not_notified(rig.fs, n->attr.ino, 1));
	assert_int_equal(rig.fs->pages.sizes.n, 0);
}
RIG_TEST(pages_of_another_daemon)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_a_short_page),
		cmocka_unit_test(run_nobody_can_ask),
		cmocka_unit_test(run_zeros_are_not_shown),
		cmocka_unit_test(run_reads_in_flight),
		cmocka_unit_test(run_a_file_that_becomes_shorter),
		cmocka_unit_test(run_a_helper_that_is_late),
		cmocka_unit_test(run_a_file_that_grows),
		cmocka_unit_test(run_owners),
		cmocka_unit_test(run_pages_of_another_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
