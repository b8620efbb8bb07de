/* SPDX-License-Identifier: Apache-2.0 */
/* Flags of mount(2) by name, and mounts as in /proc/self/mountinfo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fuse/kernel/kernel_mount.h"
#include "fuse/options.h"

static void test_words(void **state)
{
	unsigned long flags = MS_NOSUID, said = 0;

	(void)state;
	assert_true(kernel_flag_word("ro", &flags, &said));
	assert_int_equal(flags, MS_NOSUID | MS_RDONLY);
	assert_int_equal(said, MS_RDONLY);
	assert_true(kernel_flag_word("rw", &flags, &said));
	assert_int_equal(flags, MS_NOSUID);
	assert_true(kernel_flag_word("noexec", &flags, &said));
	assert_true(kernel_flag_word("noatime", &flags, &said));
	assert_int_equal(flags, MS_NOSUID | MS_NOEXEC | MS_NOATIME);
	assert_int_equal(said, MS_RDONLY | MS_NOEXEC | MS_NOATIME);
	assert_false(kernel_flag_word("readahead", &flags, &said));
	assert_false(kernel_flag_word("", &flags, &said));
	assert_int_equal(flags, MS_NOSUID | MS_NOEXEC | MS_NOATIME);
}

/* mount(8) moves nosuid before the other options. */
static void test_the_stricter_word_holds(void **state)
{
	unsigned long flags = MS_NOSUID | MS_NODEV, said = 0;

	(void)state;
	assert_true(kernel_flag_word("nosuid", &flags, &said));
	assert_true(kernel_flag_word("allow_suid", &flags, &said));
	assert_true(kernel_flag_word("allow_dev", &flags, &said));
	assert_int_equal(flags, MS_NOSUID);
	assert_true(kernel_flag_word("nodev", &flags, &said));
	assert_int_equal(flags, MS_NOSUID | MS_NODEV);
}

static void test_a_mount_is_found(void **state)
{
	struct kernel_mount_info info;
	struct stat st;

	(void)state;
	assert_int_equal(stat("/proc", &st), 0);
	assert_true(kernel_mount_find("/proc", &info));
	assert_int_equal(makedev(info.dev_major, info.dev_minor), st.st_dev);
	assert_false(info.is_leat);
	assert_false(kernel_mount_find("/proc/self", &info));
	assert_false(kernel_mount_find("/no/such/place", &info));
}

/* mount(2) would change any other file system as well. */
static void test_only_leat_is_remounted(void **state)
{
	static struct mount_options o = {.source = "x", .mountpoint = "/proc"};

	(void)state;
	assert_int_equal(kernel_remount(&o), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_the_stricter_word_holds),
		cmocka_unit_test(test_a_mount_is_found),
		cmocka_unit_test(test_only_leat_is_remounted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
