/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the kernel: INIT, large requests, callers that are killed, invalid requests. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rt/loop.h"

#define BIG (100u << 10)

static struct kernel_reply r;
static uint8_t big[BIG];

/* The reply is recorded for the next daemon; it has the flags that this file system relies on. */
static void init(void)
{
	const struct restart *k = rig.fs->restart;
	const uint32_t must = FUSE_ASYNC_READ | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS |
			      FUSE_ATOMIC_O_TRUNC | FUSE_EXPORT_SUPPORT | FUSE_DONT_MASK |
			      FUSE_DO_READDIRPLUS | FUSE_PARALLEL_DIROPS | FUSE_POSIX_ACL |
			      FUSE_EXPLICIT_INVAL_DATA | FUSE_HANDLE_KILLPRIV_V2 |
			      FUSE_SETXATTR_EXT;
	const uint32_t never = FUSE_WRITEBACK_CACHE | FUSE_AUTO_INVAL_DATA | FUSE_READDIRPLUS_AUTO |
			       FUSE_HANDLE_KILLPRIV;
	struct fuse_init_out out;

	assert_int_equal(k->init_done, 1);
	assert_int_equal(k->resend, 1);
	assert_int_equal(k->answer_len, sizeof(struct fuse_out_header) + sizeof(out));
	memcpy(&out, k->answer + sizeof(struct fuse_out_header), sizeof(out));
	assert_int_equal(out.flags & must, must);
	assert_int_equal(out.flags & never, 0);
	assert_int_equal(out.max_write, 128 << 10);
	assert_int_equal(out.max_background, 16);
	assert_int_equal(out.time_gran, 1);
	assert_true(rig.fs->setxattr_ext);
	/* A repeated INIT gets the recorded reply, not one of libfuse. */
	kernel_init(&rig.k, &r);
	assert_int_equal(r.len, sizeof(out));
	assert_memory_equal(r.data, &out, sizeof(out));
}
RIG_TEST_OF_NEW_LIBFUSE(init)

static void init_of_an_old_kernel(void)
{
	struct fuse_init_out out;

	assert_int_equal(rig.fs->restart->resend, 0);
	assert_false(rig.fs->setxattr_ext);
	memcpy(&out, rig.fs->restart->answer + sizeof(struct fuse_out_header), sizeof(out));
	assert_int_equal(out.flags & (FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS), 0); /* local ones */
}

static void run_init_of_an_old_kernel(void **state)
{
	(void)state;
	rig.o = (struct rig_options){.local_locks = true,
				     .kernel_flags = FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS |
						     FUSE_ATOMIC_O_TRUNC};
	rig_run(init_of_an_old_kernel);
}

static void odd_requests(void)
{
	assert_int_equal(kernel_call(&rig.k, 999, 1, &r, {NULL, 0}), ENOSYS);
	assert_int_equal(kernel_call(&rig.k, FUSE_BMAP, 1, &r, {big, 64}), ENOSYS);
	assert_int_equal(kernel_getattr(&rig.k, 1, &r), 0);
	kernel_interrupt(&rig.k, 123456); /* of no request */
	assert_int_equal(kernel_getattr(&rig.k, 1, &r), 0);
	assert_int_equal(rig.fs->n_running, 0);
}
RIG_TEST(odd_requests)

/* ---- large requests ---- */

static uint64_t send_write(uint64_t node, uint64_t fh, uint64_t off)
{
	struct fuse_write_in in = {.fh = fh,
				   .offset = off,
				   .size = BIG,
				   .write_flags = FUSE_WRITE_LOCKOWNER,
				   .lock_owner = 1};
	struct kernel_part parts[] = {ARG(in), {big, BIG}};

	return kernel_send(&rig.k, FUSE_WRITE, node, parts, 2);
}

/* Writes that wait for a server keep all slots, and other requests are served nevertheless. */
static void more_writes_than_slots(void)
{
	uint64_t node, fh = kernel_create(&rig.k, "a", 0644, &node), sent[2 * RIG_REQUESTS];

	memset(big, 'b', BIG);
	fake.block_fn = "ll_write";
	/* The write that finds no free slot is copied by ll_pwrite. */
	for (uint32_t i = 0; i < 2 * RIG_REQUESTS; i++)
		sent[i] = send_write(node, fh, (uint64_t)i * BIG);
	assert_int_equal(kernel_getattr(&rig.k, 1, &r), 0);
	assert_int_equal(fake.nodes[1].attr.size > 0, fake_count("ll_pwrite") > 0);
	fake_unblock();
	for (uint32_t i = 0; i < 2 * RIG_REQUESTS; i++)
		assert_int_equal(kernel_wait(&rig.k, sent[i], &r), 0);
	assert_int_equal(fake_find(1, "a")->attr.size, 2 * RIG_REQUESTS * BIG);
	assert_true(fake_count("ll_pwrite") > 0); /* from the queue of set-aside requests */
	assert_int_equal(rig.fs->aside, 0);
	assert_true(slot_pool_free(rig.fs->requests) >= RIG_REQUESTS - 1);
}
RIG_TEST(more_writes_than_slots)

/* ---- callers that are killed ---- */

static pid_t sleeper(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(pause());
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	(void)!waitpid(pid, NULL, 0);
}

static void wait_for_reply(uint64_t unique, uint32_t ms)
{
	uint64_t until = loop_deadline_ms(ms);

	while (!kernel_has_reply(&rig.k, unique) && loop_now_us() < until)
		assert_int_equal(fiber_sleep_us(5000), 0);
}

/* A signal that the program handles ends nothing; when the program is killed the change is
 * cancelled. */
static void killed(void)
{
	struct kernel_part part = NAME("a");
	uint64_t unlinks;

	fake_file("a", 'a', 1);
	fake.block_fn = "ll_unlink";
	rig.k.pid = sleeper();
	unlinks = kernel_send(&rig.k, FUSE_UNLINK, 1, &part, 1);
	kernel_interrupt(&rig.k, unlinks);
	assert_int_equal(fiber_sleep_us(250000), 0);
	assert_false(kernel_has_reply(&rig.k, unlinks));
	assert_int_equal(fake.n_withdrawn, 0);
	end(rig.k.pid);
	wait_for_reply(unlinks, 1000);
	assert_int_equal(kernel_wait(&rig.k, unlinks, &r), EINTR);
	assert_int_equal(fake.n_withdrawn, 1);
	fake_unblock();
	assert_non_null(fake_find(1, "a"));
}
RIG_TEST(killed)

/* No server answers: the program can exit, and its request continues. */
static void killed_and_answered(void)
{
	struct kernel_part part = NAME("a");
	uint64_t unlinks;

	fake_file("a", 'a', 1);
	fake.block_fn = "ll_unlink";
	fake.stubborn = true;
	rig.k.pid = sleeper();
	unlinks = kernel_send(&rig.k, FUSE_UNLINK, 1, &part, 1);
	(void)kernel_has_reply(&rig.k, unlinks);
	end(rig.k.pid);
	kernel_interrupt(&rig.k, unlinks);
	wait_for_reply(unlinks, 2000);
	assert_int_equal(kernel_wait(&rig.k, unlinks, &r), EINTR);
	assert_int_equal(rig.fs->n_running, 1);
	assert_non_null(fake_find(1, "a"));
	fake_unblock();
	kernel_take(&rig.k, 1, 1000); /* attributes that the kernel has requested since may be out
				       * of date */
	assert_true(kernel_was_notified(&rig.k, 1, true));
	assert_null(fake_find(1, "a"));
	assert_int_equal(rig.fs->n_running, 0);
}
RIG_TEST(killed_and_answered)

/* A request on an open file is interrupted directly: it has to end before the file is closed. */
static void killed_while_it_reads(void)
{
	uint64_t node, fh = kernel_create(&rig.k, "a", 0644, &node), syncs;
	struct fuse_fsync_in in = {.fh = fh};
	struct kernel_part part = ARG(in);

	fake.block_fn = "ll_fsync";
	rig.k.pid = sleeper();
	syncs = kernel_send(&rig.k, FUSE_FSYNC, node, &part, 1);
	kernel_interrupt(&rig.k, syncs);
	assert_int_equal(fiber_sleep_us(150000), 0);
	assert_false(kernel_has_reply(&rig.k, syncs));
	end(rig.k.pid);
	wait_for_reply(syncs, 1000);
	assert_int_equal(kernel_wait(&rig.k, syncs, &r), EINTR);
	assert_int_equal(fake.n_withdrawn, 0);
}
RIG_TEST(killed_while_it_reads)

/* Each request has a fiber: one that waits delays no other. */
static void out_of_order(void)
{
	struct kernel_part a = NAME("a");
	uint64_t first;

	fake.block_fn = "ll_lookup";
	first = kernel_send(&rig.k, FUSE_LOOKUP, 1, &a, 1);
	assert_int_equal(kernel_getattr(&rig.k, 1, &r), 0);
	assert_false(kernel_has_reply(&rig.k, first));
	assert_int_equal(metric_get(&rig.fs->metrics.running), 1);
	fake_unblock();
	assert_int_equal(kernel_wait(&rig.k, first, &r), 0);
}
RIG_TEST(out_of_order)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_init),
		cmocka_unit_test(run_init_of_an_old_kernel),
		cmocka_unit_test(run_odd_requests),
		cmocka_unit_test(run_more_writes_than_slots),
		cmocka_unit_test(run_killed),
		cmocka_unit_test(run_killed_and_answered),
		cmocka_unit_test(run_killed_while_it_reads),
		cmocka_unit_test(run_out_of_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
