/* SPDX-License-Identifier: Apache-2.0 */
/* One daemon stops, and another one serves its mount; programs notice nothing. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>

#include "common/proto/types.h"
#include "fuse/kernel/request_loop.h"
#include "fuse/restart/handle_table.h"

static struct kernel_reply r;

/* The kernel gets no INIT; open files keep their numbers, and new ones get others. */
static void open_files(void)
{
	uint64_t node, a = kernel_create(&rig.k, "a", 0644, &node), b, c;

	b = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(kernel_write(&rig.k, node, a, 0, "before", 6), 0);
	kernel_release(&rig.k, node, b);
	rig.k.uid = 7;
	b = kernel_open_file(&rig.k, node, O_RDWR);
	assert_int_equal(rig_take_over(), 0);
	assert_int_equal(fake_count("ll_drain"), 1);
	assert_int_equal(fake_count("ll_resume_file"), 2);
	assert_int_equal(fake.cred.flags, CRED_CHECKED);
	assert_int_equal(kernel_write(&rig.k, node, a, 6, "after", 5), 0);
	assert_int_equal(rig.k.n_resends, 1);
	assert_int_equal(kernel_read(&rig.k, node, b, 0, 100, &r), 0);
	assert_memory_equal(r.data, "beforeafter", 11);
	c = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_true(c != a && c != b);
	kernel_release(&rig.k, node, a);
	kernel_release(&rig.k, node, b);
	kernel_release(&rig.k, node, c);
	assert_int_equal(rig.fs->restart->files_top, 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_false(rig.fs->restart->files[i].used);
	/* And once more. */
	assert_int_equal(rig_take_over(), 0);
	assert_int_equal(fake_count("ll_resume_file"), 2);
	assert_int_equal(kernel_lookup(&rig.k, 1, "a", &r), 0);
}
RIG_TEST(open_files)

/* Requests that arrive while there is no daemon wait for the next one. */
static void requests_between(void)
{
	struct kernel_part part = NAME("a");
	uint64_t asks;

	fake_file("a", 'a', 1);
	rig_hand_over();
	asks = kernel_send(&rig.k, FUSE_LOOKUP, 1, &part, 1);
	assert_int_equal(rig_resume(), 0);
	assert_int_equal(kernel_wait(&rig.k, asks, &r), 0);
	assert_int_equal(r.entry.attr.size, 1);
}
RIG_TEST(requests_between)

/* A request that waits for a lock does not delay the takeover; it is sent again to the next
 * daemon. */
static void waits_for_locks(void)
{
	struct fake_node *n = fake_file("a", 'a', 1);
	uint64_t node = n->attr.ino.v, fh = kernel_open_file(&rig.k, node, O_RDWR), waits;
	struct fuse_lk_in in = {.fh = fh, .owner = 1, .lk = {.end = 9, .type = F_WRLCK}};
	struct kernel_part part = ARG(in);

	assert_int_equal(kernel_call(&rig.k, FUSE_SETLK, node, &r, ARG(in)), 0);
	in.owner = 2;
	waits = kernel_send(&rig.k, FUSE_SETLKW, node, &part, 1);
	assert_false(kernel_has_reply(&rig.k, waits));
	assert_int_equal(rig_take_over(), 0);
	/* The locks of the recorded owners are released with the file, by whichever daemon they
	 * were taken. */
	assert_int_equal(rig.fs->handles.files[0]->file->n_owners, 1);
	assert_int_equal(rig.fs->handles.files[0]->file->owners[0], 1);
	kernel_send_as(&rig.k, waits | KERNEL_RESENT, FUSE_SETLKW, node, &part, 1);
	assert_false(kernel_has_reply(&rig.k, waits | KERNEL_RESENT));
	in.owner = 1;
	in.lk.type = F_UNLCK;
	assert_int_equal(kernel_call(&rig.k, FUSE_SETLK, node, &r, ARG(in)), 0);
	assert_int_equal(kernel_wait(&rig.k, waits | KERNEL_RESENT, &r), 0);
}
RIG_TEST(waits_for_locks)

/* The previous daemon was killed when it had opened the file and had not replied: the request is
 * sent again, and the file that the kernel will never release is closed. */
static void an_open_that_was_not_answered(void)
{
	uint64_t node = fake_file("a", 'a', 1)->attr.ino.v, fh, other, again;
	struct fuse_open_in in = {.flags = O_RDONLY | 0100000};
	struct kernel_part part = ARG(in);
	struct restart *k = rig.fs->restart;

	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	other = kernel_open_file(&rig.k, node, O_RDONLY);
	rig_hand_over();
	k->files[fh & 0xffffffff].unique = 1000;
	k->files[other & 0xffffffff].unique = 2000; /* is not sent again: it had a reply */
	k->files_top = 0; /* killed before that was updated */
	assert_int_equal(rig_resume(), 0);
	assert_int_equal(k->files_top, 2);
	assert_int_equal(fake_count("ll_release"), 0);
	again = 1000 | KERNEL_RESENT;
	kernel_send_as(&rig.k, again, FUSE_OPEN, node, &part, 1);
	assert_int_equal(kernel_wait(&rig.k, again, &r), 0);
	assert_int_equal(fake_count("ll_release"), 1);
	assert_true(r.open.fh != fh);
	kernel_release(&rig.k, node, fh); /* a number that is not in use any longer */
	assert_int_equal(fake_count("ll_release"), 1);
	kernel_release(&rig.k, node, other);
	assert_int_equal(fake_count("ll_release"), 2);
}
RIG_TEST(an_open_that_was_not_answered)

/* The kernel had the reply: a request with another number closes nothing. */
static void an_open_that_was_answered(void)
{
	uint64_t node = fake_file("a", 'a', 1)->attr.ino.v;
	uint64_t fh = kernel_open_file(&rig.k, node, O_RDONLY), opened = rig.k.unique;

	assert_int_equal(rig_take_over(), 0);
	kernel_send_as(&rig.k, opened | KERNEL_RESENT, FUSE_STATFS, 1, NULL, 0);
	assert_int_equal(kernel_wait(&rig.k, opened | KERNEL_RESENT, &r), 0);
	assert_int_equal(fake_count("ll_release"), 0);
	assert_int_equal(kernel_read(&rig.k, node, fh, 0, 10, &r), 0);
	assert_int_equal(r.len, 1);
}
RIG_TEST(an_open_that_was_answered)

/* A listing continues from its position, by a number that the next daemon does not have. */
static void listings(void)
{
	uint64_t fh;
	struct fuse_read_in in = {.size = 256};
	struct fuse_release_in release = {.fh = 0};
	const struct fuse_dirent *d = (const void *)r.data;

	for (int i = 0; i < 26; i++)
		fake_make(1, (char[]){(char)('a' + i), '\0'}, S_IFREG | 0600);
	in.fh = release.fh = fh = kernel_opendir(&rig.k, 1);
	assert_int_equal(kernel_call(&rig.k, FUSE_READDIR, 1, &r, ARG(in)), 0);
	for (size_t at = 0; at < r.len; at += FUSE_DIRENT_SIZE(d)) {
		d = (const void *)(r.data + at);
		in.offset = d->off;
	}
	/* The state of the previous daemon is lost, as with its process. */
	assert_int_equal(kernel_call(&rig.k, FUSE_RELEASEDIR, 1, &r, ARG(release)), 0);
	assert_int_equal(rig_take_over(), 0);
	assert_true(kernel_opendir(&rig.k, 1) != fh);
	assert_int_equal(kernel_call(&rig.k, FUSE_READDIR, 1, &r, ARG(in)), 0);
	d = (const void *)r.data;
	assert_int_equal(d->namelen, 1);
	assert_int_equal(d->name[0], 'g'); /* after ".", "..", and a to f: 256 bytes */
}
RIG_TEST(listings)

/* The pages of open files are dropped, as their leases may have ended. */
static void pages(void)
{
	uint64_t node = fake_file("a", 'a', 10)->attr.ino.v;
	struct fuse_getattr_in in = {0};

	kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(rig_take_over(), 0);
	kernel_take(&rig.k, 2, 1000);
	assert_true(kernel_was_notified(&rig.k, node, false));
	assert_true(kernel_was_notified(&rig.k, 1, true));
	for (int i = 0; fake.n_pages_gone == 0 && i < 1000; i++)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_int_equal(fiber_sleep_us(20000), 0); /* until the kernel accepts new attributes */
	assert_int_equal(kernel_call(&rig.k, FUSE_GETATTR, node, &r, ARG(in)), 0);
	assert_int_equal(r.attr.attr.size, 10);
	assert_int_equal(fake.n_pages_gone, 1);
}
RIG_TEST(pages)

/* What the reply to INIT promised cannot be changed. */
static void another_promise(void)
{
	rig_hand_over();
	rig.o.local_locks = true;
	assert_int_equal(rig_resume(), -LE_INVAL);
	assert_true(rig.daemons[1].fs.init_differs);
	rig.o.local_locks = false;
	rig.o.ino32 = true;
	assert_int_equal(rig_resume(), -LE_INVAL);
	rig.o.ino32 = false;
	assert_int_equal(rig_resume(), 0);
	assert_int_equal(rig.fs->max_background, 16); /* of the first reply */
	assert_int_equal(kernel_getattr(&rig.k, 1, &r), 0);
}
RIG_TEST(another_promise)

/* Some data is not durable yet: the daemon stays. */
static void not_now(void)
{
	fake.drain_status = -LE_TIMEDOUT;
	session_hand_over(rig.fs);
	assert_int_equal(fiber_sleep_us(50000), 0);
	assert_false(rig.daemons[0].ended);
	assert_int_equal(rig.fs->restart->n_refused, 1);
	assert_int_equal(kernel_getattr(&rig.k, 1, &r), 0);
	fake.drain_status = 0;
	assert_int_equal(rig_take_over(), 0);
}
RIG_TEST(not_now)

/* The file does not exist at the servers: no daemon starts, rather than one without the file. */
static void a_file_that_is_lost(void)
{
	kernel_open_file(&rig.k, fake_file("a", 'a', 10)->attr.ino.v, O_RDONLY);
	rig_hand_over();
	fake_fail("ll_resume_file", -LE_STALE);
	assert_int_equal(rig_resume(), -LE_STALE);
	assert_int_equal(rig_resume(), 0);
}
RIG_TEST(a_file_that_is_lost)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_open_files),
		cmocka_unit_test(run_requests_between),
		cmocka_unit_test(run_waits_for_locks),
		cmocka_unit_test(run_an_open_that_was_not_answered),
		cmocka_unit_test(run_an_open_that_was_answered),
		cmocka_unit_test(run_listings),
		cmocka_unit_test(run_pages),
		cmocka_unit_test(run_another_promise),
		cmocka_unit_test(run_not_now),
		cmocka_unit_test(run_a_file_that_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
