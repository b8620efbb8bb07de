/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SPANK plugin: `--stage=NAME@VERSION[,...]` of sbatch, salloc and srun.
 *
 *   submission  checks the names, passes them to Prolog, Epilog and job_submit.lua (LEAT_STAGE)
 *   each task   before it drops root: waits until every data set is staged on its node (it has
 *               been, where the burst buffer or the prolog has begun), gives the program LEAT_STAGE
 *               and LEAT_STAGE_DIR. When that fails, the task ends with the reason in its output;
 *               the node is not touched
 *
 * plugstack.conf:
 *   optional spank_leat.so leat=/usr/bin/leat stage_dir=/local/nvme timeout=3600
 * conf=/etc/leat/leat.conf stage_dir: %n is the node's name. Uses only Leat's command line.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(leat, 1)

#define NAMES_MAX 4096u

static struct {
	char names[NAMES_MAX]; /* "": no --stage */
	char leat[512], stage_dir[512], conf[512], timeout[16];
} opt = {.leat = "/usr/bin/leat", .stage_dir = "/local/nvme", .timeout = "3600"};

/* Independent of the locale. */
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool is_word(const char *s, size_t len)
{
	return len > 0 && len <= 128 && strspn(s, LETTERS) > 0 && strspn(s, LETTERS "._-") >= len;
}

/* They become arguments of commands that run as root. */
static bool are_names(const char *s)
{
	if (strlen(s) >= NAMES_MAX)
		return false;
	for (;;) {
		size_t len = strcspn(s, ","), at = strcspn(s, "@");

		if (at >= len || !is_word(s, at) || !is_word(s + at + 1, len - at - 1))
			return false;
		if (s[len] == '\0')
			return true;
		s += len + 1;
	}
}

static int take_option(int val, const char *optarg, int remote)
{
	(void)val;
	(void)remote;
	if (!optarg || !are_names(optarg)) {
		slurm_error("leat: --stage=NAME@VERSION[,NAME@VERSION...]");
		return ESPANK_BAD_ARG;
	}
	snprintf(opt.names, sizeof(opt.names), "%s", optarg);
	return 0;
}

static struct spank_option option = {
	.name = "stage",
	.arginfo = "NAME@VERSION",
	.usage = "have data sets staged on the nodes before the job starts (Leat)",
	.has_arg = 1,
	.val = 0,
	.cb = take_option,
};

static void take_argument(const char *arg)
{
	static const struct {
		const char *name;
		char *to;
		size_t size;
	} known[] = {
		{"leat=", opt.leat, sizeof(opt.leat)},
		{"stage_dir=", opt.stage_dir, sizeof(opt.stage_dir)},
		{"conf=", opt.conf, sizeof(opt.conf)},
		{"timeout=", opt.timeout, sizeof(opt.timeout)},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		size_t len = strlen(known[i].name);

		if (strncmp(arg, known[i].name, len) == 0) {
			snprintf(known[i].to, known[i].size, "%s", arg + len);
			return;
		}
	}
	slurm_error("leat: plugstack.conf: '%s' is not understood", arg);
}

int slurm_spank_init(spank_t sp, int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		take_argument(argv[i]);
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
	case S_CTX_REMOTE:
		return spank_option_register(sp, &option) == ESPANK_SUCCESS ? 0 : -1;
	default:
		return 0;
	}
}

int slurm_spank_init_post_opt(spank_t sp, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (spank_context() == S_CTX_REMOTE || opt.names[0] == '\0')
		return 0;
	/* SPANK_LEAT_STAGE of the prolog. A step of a job cannot set it. */
	(void)spank_job_control_setenv(sp, "LEAT_STAGE", opt.names, 1);
	return 0;
}

static void dir_of_node(char *ret_dir, size_t size)
{
	const char *node = getenv("SLURMD_NODENAME"), *mark = strstr(opt.stage_dir, "%n");
	char host[256] = "";

	if (!node) {
		gethostname(host, sizeof(host) - 1);
		host[strcspn(host, ".")] = '\0';
		node = host;
	}
	if (mark)
		snprintf(ret_dir, size, "%.*s%s%s", (int)(mark - opt.stage_dir), opt.stage_dir,
			 node, mark + 2);
	else
		snprintf(ret_dir, size, "%s", opt.stage_dir);
}

/* Runs argv with its output in text. Returns its exit status, or -1. */
static int run(char *const argv[], char *const envp[], char *text, size_t size)
{
	posix_spawn_file_actions_t fa;
	int fds[2], status, rc;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	text[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, fds[1], 1);
	posix_spawn_file_actions_adddup2(&fa, fds[1], 2);
	rc = posix_spawn(&pid, argv[0], &fa, NULL, argv, envp);
	posix_spawn_file_actions_destroy(&fa);
	close(fds[1]);
	if (rc != 0) {
		close(fds[0]);
		snprintf(text, size, "%s: %s", argv[0], strerror(rc));
		return -1;
	}
	while ((n = read(fds[0], text + len, size - 1 - len)) > 0 || (n < 0 && errno == EINTR)) {
		/* The last kilobytes matter: of a longer output the first half is dropped. */
		len += n > 0 ? (size_t)n : 0;
		if (len == size - 1) {
			memmove(text, text + size / 2, len - size / 2);
			len -= size / 2;
		}
	}
	text[len] = '\0';
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int stage_one(const char *name, const char *dir)
{
	char conf[600], text[4096], *line;
	char *const argv[] = {opt.leat,     "stage",     "in",        (char *)name,
			      "--to",       (char *)dir, "--timeout", opt.timeout,
			      "--progress", "none",      NULL};
	char *const envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/",
			      opt.conf[0] ? conf : NULL, NULL};

	snprintf(conf, sizeof(conf), "LEAT_CONF=%s", opt.conf);
	if (run(argv, envp, text, sizeof(text)) == 0)
		return 0;
	for (size_t len = strlen(text); len > 0 && isspace((unsigned char)text[len - 1]); len--)
		text[len - 1] = '\0';
	line = strstr(text, "leat ");
	slurm_error("leat: %s is not staged: %.*s", name, line ? (int)strcspn(line, "\n") : 300,
		    line      ? line
		    : text[0] ? text
			      : "the command failed");
	return -1;
}

int slurm_spank_task_init_privileged(spank_t sp, int argc, char **argv)
{
	char dir[1024], copy[NAMES_MAX], *save = NULL;

	(void)argc;
	(void)argv;
	if (opt.names[0] == '\0')
		return 0;
	dir_of_node(dir, sizeof(dir));
	snprintf(copy, sizeof(copy), "%s", opt.names);
	for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save))
		if (stage_one(name, dir) < 0)
			/* This process is the task's. Slurm ignores the result of an `optional`
			 * plugin, and would start the program without its data. */
			_exit(EXIT_FAILURE);
	spank_setenv(sp, "LEAT_STAGE", opt.names, 1);
	spank_setenv(sp, "LEAT_STAGE_DIR", dir, 1);
	return 0;
}
