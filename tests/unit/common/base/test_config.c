/* SPDX-License-Identifier: Apache-2.0 */
/* leat.conf: which values are accepted, which are refused, and which line the message names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "common/base/config.h"
#include "common/base/log.h"

#define PARAMS(P)                                                                                  \
	P(bool, fast, "", 0, 1, true, "be fast")                                                   \
	P(u32, wait_ms, "ms", 1, 1000, 5, "how long to wait")                                      \
	P(u64, big, "", 0, UINT64_MAX, 7, "a big number")                                          \
	P(size, cache, "B", 4096, 1ULL << 40, 64 << 20, "bytes of cache")                          \
	P(str, dir, "", 0, 0, "/var", "where")                                                     \
	P(str, folder, "", 1, 20, "/tmp", "never empty")                                           \
	P(word, how, "never | sometimes | always", 0, 0, "never", "how often")                     \
	P(addr, page, "", 0, 0, "", "of a page")                                                   \
	P(addrs, listen, "", 1, 0, "a:1", "where to listen")                                       \
	P(addrs, tell, "", 0, 0, "", "what to tell")                                               \
	P(cores, cores, "", 0, 0, "auto", "where to run")
struct params {
	PARAMS(CONFIG_MEMBER)
};
#define ROW(...) CONFIG_ROW(struct params, __VA_ARGS__)
static const struct config_param table[] = {PARAMS(ROW)};

static struct params got;
static struct cluster_params cluster;
static const char *path;
static char err[512];

static int load(const char *text)
{
	static char file[64];
	struct config_section sections[2] = {
		{"ossd", table, ARRAY_SIZE(table), &got},
		{"cluster", cluster_param_table, n_cluster_params, &cluster},
	};
	snprintf(file, sizeof(file), "/tmp/leat-test-config-%d", getpid());
	FILE *f = fopen(file, "w");
	fputs(text, f);
	fclose(f);
	path = file;
	err[0] = '\0';
	int rc = config_load(file, sections, 2, err, sizeof(err));
	unlink(file);
	return rc;
}

static void refused(const char *text, int line, const char *what)
{
	char expect[128];
	assert_int_equal(load(text), -LE_CONFIG);
	snprintf(expect, sizeof(expect), "%s:%d: ", path, line);
	if (strncmp(err, expect, strlen(expect)) != 0 || strstr(err, what) == NULL)
		fail_msg("'%s' should begin with '%s' and hold '%s'", err, expect, what);
}

static void takes_good_files(void **state)
{
	(void)state;
	assert_int_equal(load(""), 0);
	assert_true(got.fast && got.wait_ms == 5 && got.big == 7 && got.cache == 64 << 20);
	assert_string_equal(got.dir, "/var");
	assert_string_equal(cluster.mds, "127.0.0.1:7440");
	assert_int_equal(load("# comment\n[ossd]\n  fast = no\nwait_ms=1000 ; longest\n\n"
			      "big = 0x10\ncache = 1.5G\ndir = /a b/c\n[mount]\nanything = x\n"
			      "[cluster]\nname = mill\n"),
			 0);
	assert_true(!got.fast && got.wait_ms == 1000 && got.big == 16 && got.cache == 3ULL << 29);
	assert_string_equal(got.dir, "/a b/c");
	assert_string_equal(cluster.name, "mill");
}

static void takes_long_values(void **state)
{
	char value[CONFIG_STR_MAX + 1], text[CONFIG_STR_MAX + 64];
	(void)state;
	memset(value, 'x', sizeof(value));
	value[CONFIG_STR_MAX - 1] = '\0';
	snprintf(text, sizeof(text), "[ossd]\ndir = %s\nwait_ms = 9\n", value);
	assert_int_equal(load(text), 0);
	assert_string_equal(got.dir, value);
	assert_int_equal(got.wait_ms, 9);
	snprintf(text, sizeof(text), "[ossd]\n\ndir = %sx\n", value);
	refused(text, 3, "longer than");
}

static void says_what_is_wrong_where(void **state)
{
	(void)state;
	refused("[ossd]\nwait_ms = 0\n", 2, "1..1000");
	refused("[ossd]\n\nwait_ms = 5x\n", 3, "not a number");
	refused("[ossd]\nwait_ms = -1\n", 2, "not a number");
	refused("[ossd]\ncache = 1Z\n", 2, "not a size");
	refused("[ossd]\ncache = 2K\n", 2, "4K..1T");
	refused("[ossd]\nfast = perhaps\n", 2, "yes or no");
	refused("[ossd]\nslow = 1\n", 2, "unknown parameter 'slow'");
	refused("[client]\nx = 1\n[oss]\nwait_ms = 1\n", 3, "unknown section [oss]");
	refused("[empty]\n", 1, "unknown section [empty]");
	refused("x = 1\n", 1, "no section");
	refused("[ossd]\nfast = yes\nnonsense\n", 3, "expected");
}

static void comments_and_quotes(void **state)
{
	(void)state;
	assert_int_equal(load("\xef\xbb\xbf[ossd] # ours\r\n"
			      "wait_ms = 9 # ms\r\n"
			      "cache = \"8K\" ; bytes\n"
			      "dir = \" /a # b; c \"# where\n"
			      "folder='\"x\"'\n"
			      "page =# none\n"
			      "[cluster] ; all\n"
			      "mds = m1:1, m2:2 # two\n"
			      "name = a#b;c\n"),
			 0);
	assert_int_equal(got.wait_ms, 9);
	assert_int_equal(got.cache, 8192);
	assert_string_equal(got.dir, " /a # b; c ");
	assert_string_equal(got.folder, "\"x\"");
	assert_string_equal(got.page, "");
	assert_string_equal(cluster.mds, "m1:1 m2:2");
	assert_string_equal(cluster.name, "a#b;c");
	refused("[ossd]\ndir = \"/a\n", 2, "not closed");
	refused("[ossd]\ndir = '/a' b\n", 2, "behind the closing quote");
	refused("[ossd] dir = x\n", 1, "behind the name of the section");
}

static void a_name_stands_once(void **state)
{
	(void)state;
	refused("[ossd]\nwait_ms = 1\n\n[cluster]\n[ossd]\nwait_ms = 1\n", 6, "also in line 2");
	refused("[cluster]\nname = a\nname = b\n", 3, "name is set twice");
	/* A section of another program may have duplicate names. */
	assert_int_equal(load("[mount]\nx = 1\nx = 2\n"), 0);
}

static void judges_texts(void **state)
{
	static const char *const good[] = {
		"how = sometimes",
		"page = 127.0.0.1:9450",
		"page = :9450",
		"page = [::1]:0",
		"page =",
		"listen = a:1,b:2\t[fe80::1%eth0]:3 ,tcp:tcp:4",
		"listen = verbs:a_b.c-d:65535",
		"listen = *:1 0.0.0.0:0 ::1:2",
		"tell =",
		"cores = all",
		"cores = 0-3,8",
		"wait_ms = 010",
		"big = 0x10",
	};
	static const struct {
		const char *line, *what;
	} bad[] = {
		{"how = often", "how: 'often' is not never, sometimes or always"},
		{"how = never | sometimes", "is not never, sometimes or always"},
		{"how =", "how: '' is not never"},
		{"folder =", "folder: a value is wanted"},
		{"folder = /123456789/123456789/", "longer than 20 bytes"},
		{"page = 9450", "page: '9450' is not host:port"},
		{"page = tcp:a:1", "is not host:port"},
		{"page = a:1 b:2", "is not host:port"},
		{"listen =", "an address is wanted"},
		{"listen = a", "listen: 'a' is not host:port"},
		{"listen = a:1 b", "listen: 'b' is not host:port"},
		{"listen = a:", "is not host:port"},
		{"listen = a:7x", "is not host:port"},
		{"listen = a:70000", "'a:70000' has a port that is not within 0..65535"},
		{"listen = \"a:1", "not closed"},
		{"listen = a\"b:1", "is not host:port"},
		{"listen = [::g]:1", "is not host:port"},
		{"listen = a:1:2", "is not host:port"},
		{"listen = http://a:1", "is not host:port"},
		{"cores = some", "is not auto, all, or a list"},
		{"cores = 3-1", "is not auto, all, or a list"},
		{"wait_ms = 5s", "'5s' is not a number (of ms, without the unit)"},
		{"dir = a\x01", "byte 0x01 is no text"},
		{"d\xe4r = a", "unknown parameter 'd?r'"},
	};
	char text[256];
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		snprintf(text, sizeof(text), "[ossd]\n%s\n", good[i]);
		if (load(text) != 0)
			fail_msg("'%s' refused: %s", good[i], err);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "[ossd]\n%s\n", bad[i].line);
		refused(text, 2, bad[i].what);
	}
	assert_int_equal(load("[ossd]\nlisten = a:1,b:2 ,\tc:3\nwait_ms = 010\n"), 0);
	assert_string_equal(got.listen, "a:1 b:2 c:3");
	assert_int_equal(got.wait_ms, 10);
}

static void addresses_go_with_the_transport(void **state)
{
	(void)state;
	assert_int_equal(load("[cluster]\nmds = verbs:a:1 b:2\ntransport = tcp\n"), 0);
	assert_int_equal(load("[cluster]\nmds = tcp:a:1\ntransport = auto\n"), 0);
	refused("[cluster]\nmds = verbs:a:1\ntransport = tcp\n", 3, "none of the addresses");
	refused("[cluster]\ntransport = verbs\n\nmds = tcp:a:1 tcp:b:2\n", 4, "none of the");
	refused("[cluster]\ntransport = rdma\n", 2, "transport: 'rdma' is not auto, verbs or tcp");
}

static void missing_file(void **state)
{
	struct config_section s = {"ossd", table, ARRAY_SIZE(table), &got};
	(void)state;
	assert_int_equal(config_load("/nowhere/leat.conf", &s, 1, err, sizeof(err)), -LE_CONFIG);
	assert_non_null(strstr(err, "/nowhere/leat.conf"));
	setenv("LEAT_CONF", "/nowhere/else.conf", 1);
	assert_int_equal(config_load(NULL, &s, 1, err, sizeof(err)), -LE_CONFIG);
	assert_non_null(strstr(err, "/nowhere/else.conf"));
	unsetenv("LEAT_CONF");
}

static void sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0},         {"4096", 4096},       {"64K", 65536},
		    {"64k", 65536},   {"1.5G", 3ULL << 29}, {"2TiB", 2ULL << 40},
		    {"8MB", 8 << 20}, {"0.5K", 512},        {"18446744073709551615", UINT64_MAX}};
	static const char *const bad[] = {
		"", "K", "-1", "1.K", "1KK", "16E", "1 K", "0x10", "18446744073709551616"};
	uint64_t v;
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(config_parse_size(good[i].text, &v), 0);
		assert_true(v == good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(config_parse_size(bad[i], &v), -LE_CONFIG);
}

/* The sample is a valid configuration: without its comment signs it loads as the defaults. */
static void printed_forms_load(void **state)
{
	struct config_section s = {"ossd", table, ARRAY_SIZE(table), &got};
	char *text = NULL;
	size_t len = 0;
	(void)state;
	config_defaults(&s, 1);
	assert_int_equal(config_set(&s, "cache", "3M", err, sizeof(err)), 0);
	assert_int_equal(config_set(&s, "cache", "no", err, sizeof(err)), -LE_CONFIG);
	assert_int_equal(config_set(&s, "dir", " /a # b", err, sizeof(err)), 0);
	assert_int_equal(config_set(&s, "folder", "\"x\" #", err, sizeof(err)), 0);
	FILE *f = open_memstream(&text, &len);
	config_print_values(&s, 1, f);
	fclose(f);
	assert_non_null(strstr(text, "cache = 3M\n"));
	assert_int_equal(load(text), 0);
	assert_int_equal(got.cache, 3 << 20);
	assert_string_equal(got.dir, " /a # b");
	assert_string_equal(got.folder, "\"x\" #");
	free(text);
	f = open_memstream(&text, &len);
	config_print_sample(&s, 1, f);
	fclose(f);
	assert_non_null(strstr(text, "# how long to wait (ms, 1..1000)\n#wait_ms = 5\n"));
	assert_non_null(strstr(text, "# how often (never | sometimes | always)\n#how = never\n"));
	assert_int_equal(load(text), 0);
	assert_int_equal(got.cache, 64 << 20);
	free(text);
}

static void log_levels(void **state)
{
	enum log_level level;
	(void)state;
	assert_int_equal(log_level_parse("warn", &level), 0);
	assert_int_equal(level, LOG_WARN);
	assert_int_equal(log_level_parse("loud", &level), -LE_CONFIG);
	log_set_level(LOG_ERROR);
	assert_true(log_enabled(LOG_ERROR) && !log_enabled(LOG_WARN));
}

static void log_lines(void **state)
{
	int fds[2], saved = dup(STDERR_FILENO);
	char line[4096];
	(void)state;
	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	log_init("test", LOG_INFO);
	log_info("one\ntwo %s", "three");
	log_debug("never");
	static char big[8000];
	memset(big, 'x', sizeof(big) - 1);
	dup2(saved, STDERR_FILENO);
	ssize_t n = read(fds[0], line, sizeof(line) - 1);
	assert_true(n > 0);
	line[n] = '\0';
	assert_non_null(strstr(line, "Z I test one two three\n"));
	assert_true(strchr(line, '\n') == line + n - 1);
	dup2(fds[1], STDERR_FILENO);
	log_info("%s", big);
	dup2(saved, STDERR_FILENO);
	n = read(fds[0], line, sizeof(line) - 1);
	assert_true(n > 1000 && n <= 2048 && line[n - 1] == '\n');
	close(fds[0]);
	close(fds[1]);
	close(saved);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_good_files),
		cmocka_unit_test(takes_long_values),
		cmocka_unit_test(says_what_is_wrong_where),
		cmocka_unit_test(comments_and_quotes),
		cmocka_unit_test(a_name_stands_once),
		cmocka_unit_test(judges_texts),
		cmocka_unit_test(addresses_go_with_the_transport),
		cmocka_unit_test(missing_file),
		cmocka_unit_test(sizes),
		cmocka_unit_test(printed_forms_load),
		cmocka_unit_test(log_levels),
		cmocka_unit_test(log_lines),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
