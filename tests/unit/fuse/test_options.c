/* SPDX-License-Identifier: Apache-2.0 */
/* The words that name a cluster on the command line of mount.leat. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/base/build.h"
#include "fuse/options.h"

const char leat_build[] = "test"; /* else defined in the programs */

static char conf[] = "/tmp/test_options.XXXXXX", key[] = "/tmp/test_options.XXXXXX";
static struct mount_options o;

/* Parses SOURCE and -o conf=FILE,words like mount.leat. */
static int parse(const char *source, const char *words)
{
	char text[256], name[512];
	char *argv[] = {(char[]){"mount.leat"}, name, (char[]){"/"}, (char[]){"-o"}, text, NULL};

	snprintf(name, sizeof(name), "%s", source);
	snprintf(text, sizeof(text), "conf=%s%s", conf, words);
	optind = 0;
	return mount_options_parse(5, argv, NULL, &o);
}

static void takes(const char *source, const char *mds, const char *subtree)
{
	assert_int_equal(parse(source, ""), 0);
	assert_string_equal(o.cluster.mds, mds);
	assert_string_equal(o.subtree, subtree);
	assert_string_equal(o.source, source);
}

static void test_leat_means_what_the_configuration_names(void **state)
{
	(void)state;
	takes("leat:", "here:7440", "");
	takes("leat", "here:7440", "");
	takes("leat:/home", "here:7440", "/home");
	takes("leat:/", "here:7440", "/");
	takes("leat/home", "here:7440", "/home");
}

static void test_addresses(void **state)
{
	(void)state;
	takes("mds1:7440", "mds1:7440", "");
	takes("mds1:7440,mds2:7440", "mds1:7440 mds2:7440", "");
	takes("mds1:7440:/home/a", "mds1:7440", "/home/a");
	takes("mds1:7440/home", "mds1:7440", "/home");
	takes("[::1]:7440:/home", "[::1]:7440", "/home");
	takes("leat:7440", "leat:7440", "");
	takes("leaty:7440", "leaty:7440", "");
}

/* libmount makes such a path of "leat" in a directory that contains an entry "leat". */
static void test_what_names_no_cluster_is_refused(void **state)
{
	(void)state;
	assert_true(parse("/home/me/leat", "") < 0);
	assert_true(parse("/", "") < 0);
	assert_true(parse("mds1", "") < 0);
	assert_true(parse("leaty", "") < 0);
	assert_true(parse("", "") < 0);
}

static void test_a_remount_needs_none(void **state)
{
	(void)state;
	assert_int_equal(parse("/home/me/leat", ",remount,ro"), 0);
	assert_int_equal(parse("mds1", ",remount,ro"), 0);
	assert_string_equal(o.cluster.mds, "here:7440");
}

/* Parameters of three sections, flags of mount(2), and words that are ignored. */
static void test_words_of_o(void **state)
{
	(void)state;
	assert_int_equal(parse("leat:", ""), 0);
	assert_int_equal(o.ms_flags, MS_NOSUID | MS_NODEV); /* the default */
	assert_int_equal(o.ms_said, 0);
	assert_true(o.mount.supervise);
	assert_int_equal(parse("leat:",
			       ",ro,noexec,requests_max=9,local_locks,supervise=no,_netdev,"
			       "x-systemd.automount,log=/l,slow_ms=7"),
			 0);
	assert_int_equal(o.ms_flags, MS_NOSUID | MS_NODEV | MS_RDONLY | MS_NOEXEC);
	assert_int_equal(o.mount.requests_max, 9);
	assert_true(o.mount.local_locks);
	assert_false(o.mount.supervise);
	assert_int_equal(o.mount.slow_ms, 7);
	assert_string_equal(o.log_file, "/l");
	assert_int_equal(parse("leat:", ",readahead=2M"), 0);
	assert_int_equal(o.client.readahead, 2 << 20);
}

static void test_bad_words(void **state)
{
	(void)state;
	assert_true(parse("leat:", ",nonsense") < 0);
	assert_true(parse("leat:", ",requests_max=7") < 0); /* at least 8 */
	assert_true(parse("leat:", ",requests_max=x") < 0);
	assert_true(parse("leat:", ",log_level=loud") < 0);
	assert_true(parse("leat:", ",user_id=0") < 0); /* from /proc/mounts: for a remount only */
	assert_int_equal(parse("leat:", ",remount,user_id=0"), 0);
	assert_true(o.remount);
}

/* Set-user-id programs and devices of a file system that any machine may write to. */
static void test_suid_and_dev(void **state)
{
	(void)state;
	assert_int_equal(parse("leat:", ",allow_suid"), 0);
	assert_int_equal(o.ms_flags, MS_NODEV);
	assert_int_equal(parse("leat:", ",allow_dev"), 0);
	assert_int_equal(o.ms_flags, MS_NOSUID);
}

/* The supervisor passes the mountpoint; accessing what is mounted there now may hang. */
static void test_mountpoint_of_a_supervisor(void **state)
{
	char name[] = "leat:", text[256];
	char *argv[] = {(char[]){"mount.leat"}, name, (char[]){"/no/such/place"},
			(char[]){"-o"},         text, NULL};

	(void)state;
	snprintf(text, sizeof(text), "conf=%s", conf);
	optind = 0;
	assert_true(mount_options_parse(5, argv, NULL, &o) < 0);
	optind = 0;
	assert_int_equal(mount_options_parse(5, argv, "/mnt/x", &o), 0);
	assert_string_equal(o.mountpoint, "/mnt/x");
	optind = 0;
	assert_true(mount_options_parse(2, argv, "/mnt/x", &o) < 0); /* no mountpoint at all */
}

static void test_check_config(void **state)
{
	char *argv[] = {(char[]){"mount.leat"}, (char[]){"--check-config"}, conf, NULL};
	char *none[] = {(char[]){"mount.leat"}, (char[]){"--check-config"},
			(char[]){"/no/such/file"}, NULL};

	(void)state;
	optind = 0;
	assert_int_equal(mount_options_parse(3, argv, NULL, &o), 1);
	optind = 0;
	assert_true(mount_options_parse(3, none, NULL, &o) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leat_means_what_the_configuration_names),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_what_names_no_cluster_is_refused),
		cmocka_unit_test(test_a_remount_needs_none),
		cmocka_unit_test(test_words_of_o),
		cmocka_unit_test(test_bad_words),
		cmocka_unit_test(test_suid_and_dev),
		cmocka_unit_test(test_mountpoint_of_a_supervisor),
		cmocka_unit_test(test_check_config),
	};
	int failed = 1, conf_fd = mkstemp(conf), key_fd = mkstemp(key);

	if (conf_fd >= 0 && key_fd >= 0 && dprintf(key_fd, "%064d\n", 1) == 65 &&
	    dprintf(conf_fd, "[cluster]\nmds = here:7440\nkey_file = %s\n", key) > 0)
		failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(conf);
	unlink(key);
	return failed;
}
