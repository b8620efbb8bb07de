/* SPDX-License-Identifier: Apache-2.0 */
/* Staged files: read by the kernel, by the daemon from the copy, or from the servers. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/proto/types.h"
#include "fuse/kernel/kernel_pages.h"
#include "fuse/kernel/passthrough.h"
#include "tests/unit/fuse/fake_staged.h"

#define SIZE             100u
#define KERNEL_WITH      (0x7fffffffull | 1ull << 37 | 1ull << 39) /* FUSE_PASSTHROUGH, RESEND */
#define KERNEL_WITHOUT   (0x7fffffffull | 1ull << 39)
#define OPEN_PASSTHROUGH (1u << 7) /* FOPEN_PASSTHROUGH */

static struct kernel_reply r;
static struct fake_node *n;
static uint64_t node;
static int next_id; /* of the kernel's backing files; 0: it refuses */

int __wrap_fuse_passthrough_open(fuse_req_t req, int fd);
int __wrap_fuse_passthrough_open(fuse_req_t req, int fd)
{
	(void)req;
	assert_true(fcntl(fd, F_GETFD) >= 0);
	errno = EPERM;
	return next_id;
}

static void run(void (*test)(void), const char *mode, uint64_t kernel)
{
	if (FUSE_LACKS[0] != '\0')
		skip();
	rig.o = (struct rig_options){
		.stage_dir = "/stage", .passthrough = mode, .kernel_flags = kernel};
	next_id = 5;
	fake_staged = (struct fake_staged){.fd = -1};
	rig_run(test);
	assert_int_equal(fake_staged.n_in_use, 0);
	fake_unstage();
}

#define STAGED_TEST(name, mode, kernel)                                                            \
	static void run_##name(void **state)                                                       \
	{                                                                                          \
		(void)state;                                                                       \
		run(name, mode, kernel);                                                           \
	}

/* Makes a file that has 'a' at the servers; its copy has 'c'. */
static void make(uint32_t flags)
{
	n = fake_file("a", 'a', SIZE);
	n->attr.flags = flags | ATTR_LEASED;
	node = n->attr.ino.v;
}

static void stage(void)
{
	fake_stage(node, n->attr.change, SIZE, 'c');
}

static uint64_t open_as(uint32_t flags, bool *ret_passes, uint32_t *ret_id)
{
	struct fuse_open_in in = {.flags = flags | 0100000};

	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	*ret_passes = (r.open.open_flags & OPEN_PASSTHROUGH) != 0;
	*ret_id = r.open.padding; /* backing_id, in newer kernels */
	return r.open.fh;
}

static char byte_of(uint64_t fh)
{
	assert_int_equal(kernel_read(&rig.k, node, fh, 10, SIZE, &r), 0);
	assert_int_equal(r.len, SIZE - 10);
	return (char)r.data[0];
}

static void daemon_reads(void)
{
	char status[512];
	uint64_t fh;

	make(ATTR_SEALED);
	stage();
	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(byte_of(fh), 'c');
	assert_int_equal(fake_count("ll_read"), 0);
	assert_int_equal(fake_staged.n_in_use, 1);
	passthrough_status(rig.fs, status, sizeof(status));
	assert_non_null(strstr(status, "\"passthrough\":\"off: the kernel cannot"));
	assert_non_null(strstr(status, "\"staged_opens_daemon\":1"));
	assert_non_null(strstr(status, "\"staged_bytes_daemon\":90"));
	kernel_release(&rig.k, node, fh);
	assert_int_equal(fake_staged.n_in_use, 0);
}
STAGED_TEST(daemon_reads, "sealed", KERNEL_WITHOUT)

/* The read falls back to the servers. */
static void a_damaged_copy(void)
{
	uint64_t fh;

	make(ATTR_SEALED);
	stage();
	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(ftruncate(fake_staged.fd, 5), 0);
	assert_int_equal(byte_of(fh), 'a');
	assert_int_equal(fake_count("ll_read"), 1);
}
STAGED_TEST(a_damaged_copy, "off", KERNEL_WITH)

static void kernel_reads(void)
{
	uint64_t a, b;
	uint32_t id;
	bool passes;

	make(ATTR_SEALED);
	stage();
	a = open_as(O_RDONLY, &passes, &id);
	assert_true(passes);
	assert_int_equal(id, 5);
	next_id = 6;
	b = open_as(O_RDONLY, &passes, &id);
	assert_true(passes);
	assert_int_equal(id, 5); /* the kernel has one backing file for each inode */
	kernel_release(&rig.k, node, a);
	assert_int_equal(fake_staged.n_in_use, 1);
	kernel_release(&rig.k, node, b);
	assert_int_equal(fake_staged.n_in_use, 0);
	a = open_as(O_RDONLY, &passes, &id);
	assert_int_equal(id, 6);
}
STAGED_TEST(kernel_reads, "sealed", KERNEL_WITH)

static void kernel_refuses(void)
{
	uint64_t fh;
	uint32_t id;
	bool passes;

	make(ATTR_SEALED);
	stage();
	next_id = 0;
	fh = open_as(O_RDONLY, &passes, &id);
	assert_false(passes);
	assert_int_equal(byte_of(fh), 'c');
	next_id = 5; /* the daemon does not get CAP_SYS_ADMIN later: it does not try again */
	open_as(O_RDONLY, &passes, &id);
	assert_false(passes);
}
STAGED_TEST(kernel_refuses, "sealed", KERNEL_WITH)

/* By default the kernel reads only files that cannot change. */
static void not_sealed(void)
{
	uint64_t fh;
	uint32_t id;
	bool passes;

	make(0);
	stage();
	fh = open_as(O_RDONLY, &passes, &id);
	assert_false(passes);
	assert_int_equal(byte_of(fh), 'c');
	/* Another client changes it: the copy is out of date for all readers. */
	passthrough_changed(rig.fs, node);
	assert_int_equal(byte_of(fh), 'a');
	fh = open_as(O_RDONLY, &passes, &id);
	assert_int_equal(byte_of(fh), 'a');
}
STAGED_TEST(not_sealed, "sealed", KERNEL_WITH)

/* A file that the kernel reads without the daemon cannot be opened for writing here. */
static void writers(void)
{
	struct fuse_open_in in = {.flags = O_WRONLY};
	struct fuse_setattr_in cut = {.valid = FATTR_SIZE};
	uint64_t fh;
	uint32_t id;
	bool passes;

	make(0);
	stage();
	fh = open_as(O_RDONLY, &passes, &id);
	assert_true(passes);
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), EBUSY);
	assert_int_equal(kernel_call(&rig.k, FUSE_SETATTR, node, &r, ARG(cut)), EBUSY);
	kernel_release(&rig.k, node, fh);
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	fh = open_as(O_RDONLY, &passes, &id); /* beside a writer */
	assert_false(passes);
	assert_int_equal(byte_of(fh), 'a');
}
STAGED_TEST(writers, "staged", KERNEL_WITH)

/* Another version, a writer, or no lease: the copy does not count as one of this file. */
static void which_copies_count(void)
{
	uint64_t fh;

	make(ATTR_SEALED);
	stage();
	n->attr.change++;
	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(byte_of(fh), 'a');
	kernel_release(&rig.k, node, fh);
	n->attr.change--;
	n->attr.flags |= ATTR_UNSETTLED;
	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(byte_of(fh), 'a');
	kernel_release(&rig.k, node, fh);
	n->attr.flags = 0;
	fake_staged.n_opens = 0;
	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(byte_of(fh), 'a');
	assert_int_equal(fake_staged.n_opens, 0);
	kernel_release(&rig.k, node, fh);
	n->attr.flags = ATTR_LEASED;
	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(byte_of(fh), 'c');
}
STAGED_TEST(which_copies_count, "sealed", KERNEL_WITHOUT)

/* Staged while it is open: a sealed file checks again for a copy, but not at each read. */
static void staged_later(void)
{
	uint64_t fh;

	make(ATTR_SEALED);
	fh = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(byte_of(fh), 'a');
	stage();
	assert_int_equal(byte_of(fh), 'a');
	assert_int_equal(fiber_sleep_us(110000), 0);
	assert_int_equal(byte_of(fh), 'c');
	assert_int_equal(fake_staged.n_opens, 2);
}
STAGED_TEST(staged_later, "sealed", KERNEL_WITHOUT)

/* The kernel continues with the copy, so the next daemon lets later opens pass through to this
 * copy. */
static void after_another_daemon(void)
{
	uint64_t fh;
	uint32_t id;
	bool passes;

	make(ATTR_SEALED);
	stage();
	fh = open_as(O_RDONLY, &passes, &id);
	assert_int_equal(rig.fs->restart->files[fh & 0xffffffff].pass.backing_id, 5);
	assert_int_equal(rig_take_over(), 0);
	next_id = 6;
	open_as(O_RDONLY, &passes, &id);
	assert_true(passes);
	assert_int_equal(id, 5);
	assert_int_equal(byte_of(fh), 'a'); /* reads that reach the daemon nevertheless */
}
STAGED_TEST(after_another_daemon, "sealed", KERNEL_WITH)

static void test_parameters(void **state)
{
	struct leatfs fs = {.ops = NULL};
	struct passthrough *p = NULL;

	(void)state;
	assert_int_equal(passthrough_create(&fs, "", "nonsense", &p), 0);
	assert_null(p);
	assert_int_equal(passthrough_create(&fs, "/stage", "nonsense", &p), -LE_CONFIG);
	assert_null(p);
	assert_int_equal(passthrough_create(&fs, "stage", "off", &p), 0);
	assert_int_equal(passthrough_start(p), -LE_INVAL);
	passthrough_destroy(p);
	assert_int_equal(passthrough_start(NULL), 0);
	passthrough_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_daemon_reads),         cmocka_unit_test(run_a_damaged_copy),
		cmocka_unit_test(run_kernel_reads),         cmocka_unit_test(run_kernel_refuses),
		cmocka_unit_test(run_not_sealed),           cmocka_unit_test(run_writers),
		cmocka_unit_test(run_which_copies_count),   cmocka_unit_test(run_staged_later),
		cmocka_unit_test(run_after_another_daemon), cmocka_unit_test(test_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
