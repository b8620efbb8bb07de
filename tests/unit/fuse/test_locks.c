/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of fcntl(2) and flock(2): conflicts, waiting, interrupts, closing. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include "common/proto/types.h"

#define A 100u /* owners, as the kernel numbers them */
#define B 200u

static struct kernel_reply r;
static uint64_t node, fh;

static void open_it(void)
{
	node = fake_file("a", 'a', 100)->attr.ino.v;
	fh = kernel_open_file(&rig.k, node, O_RDWR);
}

static struct fuse_lk_in lock(uint64_t owner, uint32_t type, uint64_t first, uint64_t last)
{
	return (struct fuse_lk_in){.fh = fh,
				   .owner = owner,
				   .lk = {.start = first, .end = last, .type = type, .pid = 17}};
}

static uint64_t send(uint32_t opcode, struct fuse_lk_in in)
{
	struct kernel_part part = ARG(in);

	return kernel_send(&rig.k, opcode, node, &part, 1);
}

static int call(uint32_t opcode, struct fuse_lk_in in)
{
	return kernel_wait(&rig.k, send(opcode, in), &r);
}

static void conflicts(void)
{
	open_it();
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, 9)), 0);
	assert_int_equal(fake.locks[0].l.first, 0);
	assert_int_equal(fake.locks[0].l.last, 9);
	assert_int_equal(fake.locks[0].l.pid, 17);
	assert_int_equal(fake.locks[0].l.kind, FILE_LOCK_POSIX);
	assert_int_equal(call(FUSE_SETLK, lock(B, F_RDLCK, 5, 20)), EAGAIN);
	assert_int_equal(call(FUSE_SETLK, lock(B, F_RDLCK, 10, 20)), 0);
	assert_int_equal(call(FUSE_GETLK, lock(A, F_WRLCK, 0, INT64_MAX)), 0);
	assert_int_equal(r.lk.lk.type, F_RDLCK);
	assert_int_equal(r.lk.lk.start, 10);
	assert_int_equal(r.lk.lk.end, 20);
	assert_int_equal(r.lk.lk.pid, 17);
	assert_int_equal(call(FUSE_GETLK, lock(A, F_RDLCK, 0, INT64_MAX)), 0);
	assert_int_equal(r.lk.lk.type, F_UNLCK);
	assert_int_equal(call(FUSE_SETLK, lock(B, F_UNLCK, 0, INT64_MAX)), 0);
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, INT64_MAX)), 0);
	assert_int_equal(call(FUSE_SETLK, lock(A, 77, 0, 1)), EINVAL);
	fake_fail("ll_lock", -LE_NOLCK);
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, 1)), ENOLCK);
}
RIG_TEST(conflicts)

/* The kernel's value for "to the end of the file" becomes that of the servers, and back. */
static void to_the_end(void)
{
	open_it();
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 5, INT64_MAX)), 0);
	assert_int_equal(call(FUSE_GETLK, lock(B, F_WRLCK, 0, INT64_MAX)), 0);
	assert_int_equal(r.lk.lk.start, 5);
	assert_true(r.lk.lk.end == INT64_MAX);
}
RIG_TEST(to_the_end)

static void waiting(void)
{
	uint64_t waits;

	open_it();
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, 9)), 0);
	waits = send(FUSE_SETLKW, lock(B, F_WRLCK, 0, 9));
	assert_false(kernel_has_reply(&rig.k, waits));
	assert_int_equal(rig.fs->n_waiting, 1);
	assert_int_equal(call(FUSE_SETLK, lock(A, F_UNLCK, 0, 9)), 0);
	assert_int_equal(kernel_wait(&rig.k, waits, &r), 0);
	assert_int_equal(rig.fs->n_waiting, 0);
	assert_int_equal(fake.locks[0].l.owner, B);
}
RIG_TEST(waiting)

/* Any signal ends the wait for a lock, and no other request. */
static void interrupted(void)
{
	uint64_t waits, reads;
	struct fuse_read_in in = {.size = 10, .read_flags = FUSE_READ_LOCKOWNER, .lock_owner = 1};
	struct kernel_part part = ARG(in);

	open_it();
	in.fh = fh;
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, 9)), 0);
	waits = send(FUSE_SETLKW, lock(B, F_WRLCK, 0, 9));
	fake.block_fn = "ll_read";
	reads = kernel_send(&rig.k, FUSE_READ, node, &part, 1);
	assert_false(kernel_has_reply(&rig.k, waits));
	kernel_interrupt(&rig.k, waits);
	kernel_interrupt(&rig.k, reads);
	assert_int_equal(kernel_wait(&rig.k, waits, &r), EINTR);
	assert_false(kernel_has_reply(&rig.k, reads)); /* this process is not killed */
	fake_unblock();
	assert_int_equal(kernel_wait(&rig.k, reads, &r), 0);
	assert_int_equal(r.len, 10);
	assert_int_equal(call(FUSE_SETLK, lock(A, F_UNLCK, 0, 9)), 0);
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, 9)), 0); /* B has none */
}
RIG_TEST(interrupted)

static void flocks(void)
{
	struct fuse_lk_in in;

	open_it();
	in = lock(A, F_WRLCK, 0, INT64_MAX);
	in.lk_flags = FUSE_LK_FLOCK;
	assert_int_equal(call(FUSE_SETLK, in), 0);
	assert_int_equal(fake.locks[0].l.kind, FILE_LOCK_FLOCK);
	assert_int_equal(fake.locks[0].l.type, FILE_LOCK_WRITE);
	in.owner = B;
	in.lk.type = F_RDLCK;
	assert_int_equal(call(FUSE_SETLK, in), EAGAIN);
	/* Locks of fcntl are independent of it. */
	assert_int_equal(call(FUSE_SETLK, lock(B, F_WRLCK, 0, 9)), 0);
	in.owner = A;
	in.lk.type = F_UNLCK;
	assert_int_equal(call(FUSE_SETLK, in), 0);
	in.owner = B;
	in.lk.type = F_RDLCK;
	assert_int_equal(call(FUSE_SETLK, in), 0);
}
RIG_TEST(flocks)

/* close(2) releases the fcntl locks of the closing process, the last close the locks of flock. */
static void closing(void)
{
	struct fuse_flush_in flush = {.lock_owner = A};
	struct fuse_release_in release = {.release_flags = FUSE_RELEASE_FLOCK_UNLOCK,
					  .lock_owner = B};
	struct fuse_lk_in in;

	open_it();
	flush.fh = release.fh = fh;
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, 9)), 0);
	assert_int_equal(call(FUSE_SETLK, lock(B, F_WRLCK, 10, 19)), 0);
	in = lock(B, F_WRLCK, 0, INT64_MAX);
	in.lk_flags = FUSE_LK_FLOCK;
	assert_int_equal(call(FUSE_SETLK, in), 0);
	assert_int_equal(kernel_call(&rig.k, FUSE_FLUSH, node, &r, ARG(flush)), 0);
	assert_int_equal(fake.locks[0].ino, 0);
	assert_int_equal(fake.locks[1].ino, node);
	assert_int_equal(fake.locks[2].ino, node);
	assert_int_equal(kernel_call(&rig.k, FUSE_RELEASE, node, &r, ARG(release)), 0);
	assert_int_equal(fake.locks[2].ino, 0);
	assert_int_equal(fake_count("ll_unlock_all"), 1); /* and the OFD locks that are left */
}
RIG_TEST(closing)

/* What other mounts wrote before this lock was free must be visible: the pages are dropped. */
static void pages_go(void)
{
	open_it();
	assert_int_equal(call(FUSE_SETLK, lock(A, F_RDLCK, 0, 9)), 0);
	assert_int_equal(rig.k.n_invals, 0);
	fake.leased = false;
	assert_int_equal(call(FUSE_SETLK, lock(A, F_WRLCK, 0, 9)), 0);
	assert_true(kernel_was_notified(&rig.k, node, false)); /* before the reply */
	rig.k.n_invals = 0;
	assert_int_equal(call(FUSE_SETLK, lock(A, F_UNLCK, 0, 9)), 0);
	assert_int_equal(rig.k.n_invals, 0);
}
RIG_TEST(pages_go)

/* The next daemon needs the owners that may have locks by this file: the last two are recorded. */
static void owners_are_noted(void)
{
	const struct restart_file *f = &rig.fs->restart->files[0];

	open_it();
	assert_int_equal(call(FUSE_SETLK, lock(A, F_RDLCK, 0, 9)), 0);
	assert_int_equal(call(FUSE_SETLK, lock(A, F_RDLCK, 10, 19)), 0);
	assert_int_equal(f->owners[0], A);
	assert_int_equal(f->owners[1], 0);
	assert_int_equal(call(FUSE_SETLK, lock(B, F_RDLCK, 0, 9)), 0);
	assert_int_equal(f->owners[1], B);
	assert_int_equal(call(FUSE_SETLK, lock(B + 1, F_RDLCK, 0, 9)), 0);
	assert_int_equal(f->owners[0], B + 1);
}
RIG_TEST(owners_are_noted)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_conflicts), cmocka_unit_test(run_to_the_end),
		cmocka_unit_test(run_waiting),   cmocka_unit_test(run_interrupted),
		cmocka_unit_test(run_flocks),    cmocka_unit_test(run_closing),
		cmocka_unit_test(run_pages_go),  cmocka_unit_test(run_owners_are_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
