/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tool.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "tools/help.h"

extern char **environ;

json_t *tool_json_text(const char *text)
{
	return text_json(text);
}

void tool_write_text(FILE *f, const char *text)
{
	for (size_t n; *text; text += n) {
		const unsigned char *p = (const unsigned char *)text;

		n = utf8_len(text);
		if (n == 0 || *p < ' ' || *p == 0x7f || (n == 2 && *p == 0xc2 && p[1] < 0xa0)) {
			n = n ? n : 1;
			for (size_t i = 0; i < n; i++)
				fprintf(f, "\\x%02x", p[i]);
		} else {
			fwrite(text, 1, n, f);
		}
	}
}

void tool_write_name(const char *name)
{
	if (isatty(STDOUT_FILENO))
		tool_write_text(stdout, name);
	else
		fputs(name, stdout);
}

/* Returns the exit status. */
static int print_error(const struct tool *t, int code, const char *hint, const char *text)
{
	if (t->exit_error)
		code = t->exit_error;
	fflush(stdout);
	fprintf(stderr, "leat%s%s: ", *t->command ? " " : "", t->command);
	tool_write_text(stderr, text);
	fputc('\n', stderr);
	if (hint)
		fprintf(stderr, "  %s\n", hint);
	if (t->json) {
		json_t *e = json_pack("{s:{s:i,s:o,s:s*}}", "error", "exit", code, "message",
				      tool_json_text(text), "hint", hint);
		if (e)
			tool_print_json(e);
		fflush(stdout);
	}
	return code;
}

int tool_error(const struct tool *t, int code, const char *hint, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return print_error(t, code, hint, text);
}

int tool_usage(const struct tool *t, const char *fmt, ...)
{
	char text[2048], hint[128], more[256];
	const char *verb = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (t->of && help_explain(t->of, t->argc, t->argv, text, more, sizeof(more)))
		memcpy(text, more, sizeof(more));
	if (t->of && t->argc > 0 && help_has_verb(t->of, t->argv[0]))
		verb = t->argv[0];
	snprintf(hint, sizeof(hint), "See: leat %s%s%.40s%s--help", t->command,
		 *t->command ? " " : "", verb, *verb ? " " : "");
	return print_error(t, EXIT_USAGE, hint, text);
}

int tool_too_long(const struct tool *t, const char *path)
{
	/* The whole path would leave no space for the reason. */
	return tool_error(t, EXIT_FAILED, NULL, "%.100s...: %s", path, strerror(ENAMETOOLONG));
}

int exit_of_errno(int err)
{
	switch (err) {
	case 0:
		return EXIT_OK;
	case ENOENT:
	case ENOTDIR:
	case ESTALE:
		return EXIT_MISSING;
	case EPERM:
	case EACCES:
	case EROFS:
		return EXIT_PERMISSION;
	case ENOSPC:
	case EDQUOT:
		return EXIT_NO_SPACE;
	case ETIMEDOUT:
		return EXIT_TIMEOUT;
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED:
	case EHOSTDOWN:
	case ENETDOWN:
	case ENOTCONN:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return EXIT_UNREACHABLE;
	case EINTR:
		return EXIT_INTERRUPTED;
	case EINVAL:
		return EXIT_USAGE;
	default:
		return EXIT_FAILED;
	}
}

int exit_of_status(int status)
{
	int s = status < 0 ? -status : status;

	switch (s) {
	case LE_CONNREFUSED:
	case LE_DISCONNECTED:
	case LE_SHUTDOWN:
	case LE_TARGET_DOWN:
	case LE_NOT_READY:
	case LE_NO_HOST:
	case LE_NO_NAMES:
		return EXIT_UNREACHABLE;
	case LE_AUTH:
	case LE_WRONG_CLUSTER:
		return EXIT_PERMISSION;
	case LE_CONFIG:
		return EXIT_USAGE;
	default:
		return exit_of_errno(s == 0 ? 0 : status_errno(status));
	}
}

const char *tool_server_hint(const struct tool *t, int status)
{
	static char host_hint[PATH_MAX + 128];

	switch (status < 0 ? -status : status) {
	case LE_AUTH:
		return "The key_file of leat.conf must hold the same key as the servers'.";
	case LE_VERSION:
		return "Use the leat that came with the servers.";
	case LE_WRONG_CLUSTER:
		return "Is [cluster] mds in leat.conf the right server?";
	case LE_CONFIG:
		return "Is each address of [cluster] mds HOST:PORT, and does it go with [cluster] "
		       "transport and the devices of this machine? Does key_file hold a key?";
	case LE_PERM:
		return "The export table does not let this host do it: `leat export ls`, on a host "
		       "that it lets, shows the table.";
	case LE_ACCES:
		return "This user must be able to read the key_file of leat.conf, and no user but "
		       "its owner may (chmod 0600).";
	case LE_NOENT:
		return "Are leat.conf and its key_file there? --conf names another leat.conf.";
	case LE_NO_HOST:
		snprintf(host_hint, sizeof(host_hint),
			 "The name is in [cluster] mds of %s: check it there, and in DNS and "
			 "/etc/hosts (getent hosts NAME).",
			 tool_conf_name(t));
		return host_hint;
	case LE_NO_NAMES:
		return "Do the name servers of /etc/resolv.conf answer? [cluster] mds in "
		       "leat.conf may hold numbers instead.";
	case LE_UNKNOWN_OP:
		return "Another kind of server answers at this address: [cluster] mds must be the "
		       "address of leat-mds.";
	default:
		return "Is leat-mds running there, and is [cluster] mds in leat.conf its address?";
	}
}

const char *tool_conf_name(const struct tool *t)
{
	const char *env = getenv("LEAT_CONF");

	return t->conf ? t->conf : env ? env : "/etc/leat/leat.conf";
}

int tool_load_conf(struct tool *t)
{
	struct config_section section = {"cluster", cluster_param_table, n_cluster_params,
					 &t->cluster};
	char err[CONFIG_ERR_SIZE] = "";

	if (config_load(t->conf, &section, 1, err, sizeof(err)) < 0)
		return tool_error(t, EXIT_USAGE,
				  "`leat config sample` prints every parameter with its range.",
				  "%s", err);
	return EXIT_OK;
}

int tool_print_json(json_t *value)
{
	size_t flags = JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7) |
		       (isatty(STDOUT_FILENO) ? JSON_INDENT(2) : JSON_COMPACT);
	int rc = value ? json_dumpf(value, stdout, flags) : -1;

	json_decref(value);
	putchar('\n');
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

const char *format_size(uint64_t bytes, char buf[SIZE_TEXT])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	size_t u = 0;

	while (v >= 1024 && u + 1 < ARRAY_SIZE(units)) {
		v /= 1024;
		u++;
	}
	snprintf(buf, SIZE_TEXT, u == 0 || v >= 100 ? "%.0f %s" : "%.1f %s", v, units[u]);
	return buf;
}

bool parse_size_arg(const struct tool *t, const char *name, const char *text, uint64_t *ret_bytes)
{
	if (config_parse_size(text, ret_bytes) == 0)
		return true;
	tool_usage(t, "%s: '%s' is not a size (4096, 64K, 1M, 2G)", name, text);
	return false;
}

bool parse_number_arg(const struct tool *t, const char *name, const char *text, uint64_t max,
		      uint64_t *ret_number)
{
	char *end = NULL;
	unsigned long long v = 0;

	errno = 0;
	if (*text >= '0' && *text <= '9')
		v = strtoull(text, &end, 10);
	if (!end || *end || errno || v > max) {
		tool_usage(t, "%s: '%s' is not a number up to %llu", name, text,
			   (unsigned long long)max);
		return false;
	}
	*ret_number = v;
	return true;
}

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static volatile int was_interrupted; /* written by the signal handler */

static void on_interrupt(int signo)
{
	was_interrupted = 1;
	signal(signo, SIG_DFL);
}

void catch_interrupts(void)
{
	struct sigaction sa = {.sa_handler = on_interrupt};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

bool interrupted(void)
{
	return was_interrupted;
}

const volatile int *interrupt_flag(void)
{
	return &was_interrupted;
}

static bool try_folder(const char *folder, size_t folder_len, const char *name, char *ret_path,
		       size_t size)
{
	int n = snprintf(ret_path, size, "%.*s/%s", (int)folder_len, folder, name);

	return n > 0 && (size_t)n < size && access(ret_path, X_OK) == 0;
}

bool find_program(const char *name, char *ret_path, size_t size)
{
	static const char *const usual[] = {"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"};
	char self[4096], sbin[4200];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *path = getenv("PATH");

	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		snprintf(sbin, sizeof(sbin), "%s/../sbin", self);
		if (try_folder(self, strlen(self), name, ret_path, size) ||
		    try_folder(sbin, strlen(sbin), name, ret_path, size))
			return true;
	}
	while (path && *path) {
		size_t len = strcspn(path, ":");
		if (len > 0 && try_folder(path, len, name, ret_path, size))
			return true;
		path += len + (path[len] == ':');
	}
	for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
		if (try_folder(usual[i], strlen(usual[i]), name, ret_path, size))
			return true;
	return false;
}

int run_program(const char *const argv[])
{
	pid_t pid;
	int status, err = posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv,
				      environ);

	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
