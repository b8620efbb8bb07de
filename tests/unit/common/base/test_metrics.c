/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics page, as Prometheus reads it. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "common/base/metrics.h"
#include "common/base/metrics_http.h"

#define METRICS(M)                                                                                 \
	M(COUNTER, reads, "leat_test_reads_total", "reads served")                                 \
	M(GAUGE, free_bytes, "leat_test_free_bytes", "bytes free")                                 \
	M(HIST, wait, "leat_test_wait_seconds", "time waited")
struct test_metrics {
	METRICS(METRIC_MEMBER)
};
#define ROW(...) METRIC_ROW(struct test_metrics, __VA_ARGS__)
static const struct metric_desc table[] = {METRICS(ROW)};
static struct test_metrics m;

static void prints(void **state)
{
	char *text;
	size_t len;
	(void)state;
	memset(&m, 0, sizeof(m));
	metric_add(&m.reads, 2);
	metric_add(&m.reads, 3);
	metric_set(&m.free_bytes, 77);
	metric_hist_add(&m.wait, 0);
	metric_hist_add(&m.wait, 1);
	metric_hist_add(&m.wait, 3);
	metric_hist_add(&m.wait, UINT32_MAX);
	assert_int_equal(metrics_print(table, ARRAY_SIZE(table), &m, "target=\"3\"", &text, &len),
			 0);
	assert_int_equal(len, strlen(text));
	assert_non_null(strstr(text, "# TYPE leat_test_reads_total counter\n"
				     "leat_test_reads_total{target=\"3\"} 5\n"));
	assert_non_null(strstr(text, "leat_test_free_bytes{target=\"3\"} 77\n"));
	assert_non_null(strstr(text, "_bucket{target=\"3\",le=\"1e-06\"} 1\n"));
	assert_non_null(strstr(text, "_bucket{target=\"3\",le=\"2e-06\"} 2\n"));
	assert_non_null(strstr(text, "_bucket{target=\"3\",le=\"4e-06\"} 3\n"));
	assert_non_null(strstr(text, "_bucket{target=\"3\",le=\"+Inf\"} 4\n"));
	assert_non_null(strstr(text, "leat_test_wait_seconds_count{target=\"3\"} 4\n"));
	free(text);
	assert_int_equal(metrics_print(table, 1, &m, "", &text, &len), 0);
	assert_non_null(strstr(text, "leat_test_reads_total 5\n"));
	free(text);
}

static int render(void *arg, char **ret_text, size_t *ret_len)
{
	char *a, *b;
	size_t n;
	(void)arg;
	TRY(metrics_print(table, ARRAY_SIZE(table), &m, "target=\"1\"", &a, &n));
	TRY(metrics_print(table, ARRAY_SIZE(table), &m, "target=\"2\"", &b, &n));
	int len = asprintf(ret_text, "%s%s", a, b);
	free(a);
	free(b);
	*ret_len = (size_t)len;
	return 0;
}

static void request(int port, const char *line, char *ret_page, size_t size)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	char text[128];
	inet_pton(AF_INET, "127.0.0.1", &sa.sin_addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	snprintf(text, sizeof(text), "%s HTTP/1.0\r\nHost: x\r\n\r\n", line);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	size_t at = 0;
	for (ssize_t n; at < size - 1 && (n = read(fd, ret_page + at, size - 1 - at)) > 0;)
		at += (size_t)n;
	ret_page[at] = '\0';
	close(fd);
}

static void check_by_promtool(const char *page)
{
	if (system("command -v promtool >/dev/null") != 0)
		return;
	char file[] = "/tmp/leat-test-metrics-XXXXXX", cmd[128];
	int fd = mkstemp(file);
	assert_int_equal(write(fd, page, strlen(page)), strlen(page));
	close(fd);
	snprintf(cmd, sizeof(cmd), "promtool check metrics < %s", file);
	assert_int_equal(system(cmd), 0);
	unlink(file);
}

static void serves(void **state)
{
	struct metrics_server *s, *other;
	static char page[1 << 16];
	char addr[32];
	(void)state;
	assert_int_equal(metrics_server_start("127.0.0.1:0", render, NULL, &s), 0);
	int port = metrics_server_port(s);
	assert_in_range(port, 1, 65535);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
	assert_int_equal(metrics_server_start(addr, render, NULL, &other), -LE_ADDRINUSE);
	assert_int_equal(metrics_server_start("nonsense", render, NULL, &other), -LE_INVAL);
	request(port, "GET /", page, sizeof(page));
	assert_non_null(strstr(page, " 404 "));
	request(port, "POST /metrics", page, sizeof(page));
	assert_non_null(strstr(page, " 405 "));
	request(port, "GET /metrics", page, sizeof(page));
	assert_non_null(strstr(page, " 200 "));
	/* Two targets: one group for each name. */
	char *help = strstr(page, "# HELP leat_test_reads_total");
	assert_non_null(help);
	assert_null(strstr(help + 1, "# HELP leat_test_reads_total"));
	assert_non_null(
		strstr(page, "reads_total{target=\"1\"} 5\nleat_test_reads_total{target=\"2\"}"));
	check_by_promtool(strstr(page, "\r\n\r\n") + 4);
	metrics_server_stop(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(prints), cmocka_unit_test(serves)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
