/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat-mds: the metadata server. Threads: the loop (this one), the store's own, one for /metrics.
 */
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/build.h"
#include "common/base/log.h"
#include "common/base/metrics_http.h"
#include "common/base/notify.h"
#include "common/kv/kv.h"
#include "common/kv/kv_rocksdb.h"
#include "common/rpc/auth.h"
#include "common/rpc/transport/transport_mux.h"
#include "common/rt/alive.h"
#include "common/rt/cpus.h"
#include "common/rt/env_real.h"
#include "common/rt/loop.h"
#include "mds/check.h"
#include "mds/format.h"
#include "mds/server.h"

enum {
	EXIT_USAGE = 2,
	EXIT_STORE = 3,
	EXIT_PROBLEMS = 4
};

/* More than an orderly stop needs: ending connections, requests in flight, a table being
 * written. */
#define STOP_MAX_S 120u
/* The text mentions the disk first: to format the folder under a disk that is not mounted makes
 * an empty file system beside the one with the data. */
#define NO_STORE                                                                                   \
	"no store here: is its disk mounted? (leat-mds format makes the store of a new cluster)"

struct program {
	struct cluster_params cluster;
	struct mds_params params;
	const char *command, *argument, *ready_file;
	struct rpc_key key;
	bool repair, check_config;
	struct uuid uuid;
	struct env *env;
	struct loop *loop;
	struct mds *mds;
	struct alive alive;
	int exit_code;
};

/* Set by signal handlers; the main fiber polls it. A handler does not call loop_stop: that
 * limits the time of running fibers immediately, and an orderly stop may take longer. */
static atomic_bool stop_asked;

static const char usage_text[] =
	"usage: leat-mds [-c FILE] [--set NAME=VALUE]... COMMAND\n"
	"\n"
	"  run                   serve (the default)\n"
	"  format                make an empty file system in data_dir (--cluster UUID to choose "
	"its name)\n"
	"  check [--repair]      compare all records with each other (the server must not run)\n"
	"  backup DIR            a consistent copy of the store (the server must not run)\n"
	"  restore DIR           put such a copy in place of a missing store\n"
	"  params                all parameters with their meanings, as for leat.conf\n"
	"\n"
	"  -c, --config FILE     default $LEAT_CONF, else /etc/leat/leat.conf\n"
	"      --set NAME=VALUE  a parameter of [mds], or cluster.NAME=VALUE\n"
	"      --ready-file PATH gets the addresses once requests are served\n"
	"      --check-config [FILE]...  would it start with this configuration, and its key?\n"
	"      --version, --help\n"
	"\n"
	"example: leat-mds --set data_dir=/srv/mds format && leat-mds --set data_dir=/srv/mds run\n"
	"exit codes: 0 ended as asked, 1 failed, 2 bad usage or configuration, 3 the store failed "
	"(start again),\n"
	"            4 check found problems\n";

static void sections_of(struct program *p, struct config_section s[2])
{
	s[0] = (struct config_section){"cluster", cluster_param_table, n_cluster_params,
				       &p->cluster};
	s[1] = (struct config_section){"mds", mds_param_table, n_mds_params, &p->params};
}

/* ---- configuration ---- */

static int load_key(struct program *p, char *err, size_t err_size)
{
	struct rpc_key_problem problem;
	int rc = rpc_key_check(p->cluster.key_file, &p->key, &problem);

	if (rc < 0)
		snprintf(err, err_size, "%s. %s", problem.text, problem.hint);
	return rc;
}

/* Checks a file for --check-config with the functions that a start uses. */
static int judge(void *arg, const char *path, char *err, size_t err_size)
{
	struct program *p = arg;
	struct config_section s[2];

	sections_of(p, s);
	TRY(config_load(path, s, 2, err, err_size));
	return load_key(p, err, err_size);
}

/* ---- command line ---- */

static int bad(const char *fmt, const char *arg)
{
	fputs("leat-mds: ", stderr);
	fprintf(stderr, fmt, arg);
	fputs("\n", stderr);
	return EXIT_USAGE;
}

static int set_param(struct program *p, char *text)
{
	struct config_section s[2];
	char err[CONFIG_ERR_SIZE], *eq = strchr(text, '=');
	bool of_cluster = strncmp(text, "cluster.", 8) == 0;

	if (eq == NULL)
		return bad("--set %s: NAME=VALUE is wanted", text);
	*eq = '\0';
	sections_of(p, s);
	if (config_set(of_cluster ? &s[0] : &s[1], of_cluster ? text + 8 : text, eq + 1, err,
		       sizeof(err)) < 0)
		return bad("--set: %s", err);
	return 0;
}

enum {
	OPT_SET = 256,
	OPT_VERSION,
	OPT_HELP,
	OPT_REPAIR,
	OPT_READY,
	OPT_CLUSTER,
	OPT_CHECK_CONFIG
};
static const struct option options[] = {
	{"config", required_argument, NULL, 'c'},
	{"set", required_argument, NULL, OPT_SET},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, OPT_HELP},
	{"repair", no_argument, NULL, OPT_REPAIR},
	{"ready-file", required_argument, NULL, OPT_READY},
	{"cluster", required_argument, NULL, OPT_CLUSTER},
	{"check-config", no_argument, NULL, OPT_CHECK_CONFIG},
	{NULL, 0, NULL, 0},
};

/* Reads the file before any --set is applied, whatever their order. Returns an exit code, or -1
 * to continue. */
static int read_config(struct program *p, int argc, char **argv)
{
	struct config_section s[2];
	const char *path = NULL;
	char err[CONFIG_ERR_SIZE];
	int c;

	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
		if (c == 'c')
			path = optarg;
		if (c == OPT_CHECK_CONFIG)
			p->check_config = true;
		if (c == '?')
			return EXIT_USAGE;
	}
	if (p->check_config) {
		char **files = optind < argc || path == NULL ? argv + optind : (char **)&path;
		int n = path != NULL && optind == argc ? 1 : argc - optind;

		return config_check_files("leat-mds", files, n, judge, p) > 0 ? EXIT_USAGE : 0;
	}
	optind = 1;
	sections_of(p, s);
	if (config_load(path, s, 2, err, sizeof(err)) < 0)
		return bad("%s", err);
	return -1;
}

static int read_options(struct program *p, int argc, char **argv)
{
	int c, rc;

	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
		switch (c) {
		case 'c':
			break;
		case OPT_SET:
			rc = set_param(p, optarg);
			if (rc != 0)
				return rc;
			break;
		case OPT_VERSION:
			printf("leat-mds %s\n", leat_build);
			return 0;
		case 'h':
		case OPT_HELP:
			fputs(usage_text, stdout);
			return 0;
		case OPT_REPAIR:
			p->repair = true;
			break;
		case OPT_READY:
			p->ready_file = optarg;
			break;
		case OPT_CLUSTER:
			if (uuid_parse(optarg, &p->uuid) < 0)
				return bad("--cluster %s: not a uuid", optarg);
			break;
		default:
			return EXIT_USAGE;
		}
	}
	p->command = optind < argc ? argv[optind++] : "run";
	p->argument = optind < argc ? argv[optind++] : NULL;
	return optind < argc ? bad("too many arguments: %s", argv[optind]) : -1;
}

/* ---- commands ---- */

static int fail(struct program *p, const char *what, int rc)
{
	log_error("%s: %s: %s", p->params.data_dir, what,
		  rc == -LE_NOENT ? NO_STORE : status_text(rc));
	p->exit_code = EXIT_FAILURE;
	return rc;
}

/* Checks that the folder above data_dir exists. If not, a disk is not mounted or the name is
 * wrong, and the store would be made on the system's disk. Returns false after a message. */
static bool parent_exists(struct program *p, const char *what)
{
	char parent[CONFIG_STR_MAX];
	int rc = env_find_parent(p->env, p->params.data_dir, parent, sizeof(parent));

	if (rc == 0)
		return true;
	log_error("%s: %s: %s: %s. Is its disk mounted? Only the last folder of data_dir is made",
		  p->params.data_dir, what, parent, status_text(rc));
	p->exit_code = EXIT_FAILURE;
	return false;
}

static void do_format(struct program *p)
{
	int rc;

	if (!parent_exists(p, "format"))
		return;
	rc = mds_format(p->env, &p->params, &p->uuid);
	if (rc < 0)
		fail(p, rc == -LE_EXIST ? "format: there is a file system already" : "format", rc);
	else
		log_info("made an empty file system in %s", p->params.data_dir);
}

static void do_check(struct program *p)
{
	uint64_t problems = 0;
	int rc = mds_check(p->env, &p->params, p->repair, stdout, &problems);

	if (rc < 0)
		fail(p, "check", rc);
	else if (problems > 0 && !p->repair)
		p->exit_code = EXIT_PROBLEMS;
}

static void do_backup(struct program *p)
{
	int rc = mds_backup(p->env, &p->params, p->argument);

	if (rc < 0)
		fail(p, "backup", rc);
}

static void do_restore(struct program *p)
{
	int rc;

	if (!parent_exists(p, "restore"))
		return;
	rc = mds_restore(p->env, &p->params, p->argument);
	if (rc < 0)
		fail(p, "restore", rc);
}

/* ---- run ---- */

/* The alarm bounds the stop: a start, or a store that has failed, may hang, and a supervisor
 * waits for the end of the process. */
static void ask_stop(void)
{
	alarm(STOP_MAX_S);
	atomic_store(&stop_asked, true);
}

static void on_signal(int sig)
{
	(void)sig;
	ask_stop();
}

static void on_store_failed(void *arg, int status)
{
	struct program *p = arg;

	(void)status;
	p->exit_code = EXIT_STORE;
	ask_stop();
}

static int render_metrics(void *arg, char **ret_text, size_t *ret_len)
{
	return metrics_print(mds_metric_table, n_mds_metrics, mds_metrics_of(arg), "", ret_text,
			     ret_len);
}

static int write_ready(struct program *p)
{
	const char *addrs = mds_addrs(p->mds);
	char line[CONFIG_STR_MAX + 2];
	int n = snprintf(line, sizeof(line), "%s\n", addrs);

	log_info("listening %s", addrs);
	notify_status("serves at %s", addrs);
	notify_ready();
	return p->ready_file == NULL ? 0
				     : env_write_file(p->env, p->ready_file, line, (size_t)n, 0644);
}

static int start(struct program *p, struct transport **ret_transport)
{
	struct mds_options mo = {
		.params = p->params, .key = p->key, .failed = on_store_failed, .arg = p};

	TRY(transport_mux_create(p->cluster.transport, ret_transport));
	mo.transport = *ret_transport;
	TRY(mds_start(&mo, &p->mds));
	return cpus_use(p->params.cores, transport_numa_node(*ret_transport));
}

static void do_run(struct program *p)
{
	struct sigaction sa = {.sa_handler = on_signal};
	struct metrics_server *ms = NULL;
	struct transport *t = NULL;

	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	notify_status("opens its store %s", p->params.data_dir);
	alive_start(&p->alive, NULL, NULL);
	int rc = start(p, &t);
	if (rc < 0)
		fail(p, "start", rc);
	if (rc == 0)
		ms = metrics_server_try(p->params.metrics, render_metrics, p->mds);
	if (rc == 0) {
		rc = write_ready(p);
		if (rc < 0)
			fail(p, p->ready_file, rc);
	}
	while (rc == 0 && !atomic_load(&stop_asked))
		if (fiber_sleep_us(20000) < 0)
			break;
	notify_status("ends what is under way");
	notify_stopping();
	if (ms != NULL)
		metrics_server_stop(ms);
	if (p->mds != NULL)
		mds_stop(p->mds);
	if (t != NULL)
		transport_destroy(t);
	alive_stop(&p->alive);
	log_info("stopped");
}

static const struct command {
	const char *name;
	bool argument;
	void (*fn)(struct program *p);
} commands[] = {
	{"run", false, do_run},      {"format", false, do_format},  {"check", false, do_check},
	{"backup", true, do_backup}, {"restore", true, do_restore},
};

struct job {
	struct program *p;
	void (*fn)(struct program *p);
};

static void job_fiber(void *arg)
{
	struct job *j = arg;

	j->fn(j->p);
	loop_stop(j->p->loop);
}

static int run_on_loop(struct program *p, void (*fn)(struct program *p))
{
	struct env_real_options eo = {.n_workers = p->params.workers, .kv_open = kv_rocksdb_open};
	struct loop_options lo = {.name = "leat-mds", .spin_us = p->params.spin_us};
	struct job j = {p, fn};
	int rc = env_real_create(&eo, &p->env);

	if (rc == 0)
		rc = loop_create(p->env, &lo, &p->loop);
	if (rc == 0)
		rc = fiber_spawn_on(p->loop, "main", job_fiber, &j);
	if (rc < 0) {
		fail(p, "start", rc);
		return EXIT_FAILURE;
	}
	loop_run(p->loop);
	loop_destroy(p->loop);
	env_real_destroy(p->env);
	return p->exit_code;
}

static void default_listen(struct program *p)
{
	if (p->params.listen[0] == '\0')
		snprintf(p->params.listen, sizeof(p->params.listen), "%s", p->cluster.mds);
}

static int dispatch_command(struct program *p)
{
	struct config_section s[2];
	char err[CONFIG_ERR_SIZE];

	if (strcmp(p->command, "params") == 0) {
		sections_of(p, s);
		config_print_sample(s, 2, stdout);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(p->command, commands[i].name) != 0)
			continue;
		if (commands[i].argument != (p->argument != NULL))
			return bad(commands[i].argument ? "%s: a folder is wanted"
							: "%s takes no argument",
				   p->command);
		if (commands[i].fn == do_run && load_key(p, err, sizeof(err)) < 0)
			return bad("%s", err);
		return run_on_loop(p, commands[i].fn);
	}
	return bad("no such command: %s (see --help)", p->command);
}

static void raise_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

int main(int argc, char **argv)
{
	struct program *p = calloc(1, sizeof(*p));
	enum log_level level;
	int rc;

	if (p == NULL)
		return EXIT_FAILURE;
	close_range(3, ~0u, 0); /* descriptors that a parent process left open */
	signal(SIGPIPE, SIG_IGN);
	log_init("mds", LOG_INFO);
	log_never_wait();
	notify_init();
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--version") == 0)
			return read_options(p, argc, argv);
	rc = read_config(p, argc, argv);
	if (rc < 0)
		rc = read_options(p, argc, argv);
	if (rc < 0 && log_level_parse(p->params.log_level, &level) < 0)
		rc = bad("log_level: %s", p->params.log_level);
	if (rc < 0) {
		log_set_level(level);
		raise_files();
		default_listen(p);
		rc = dispatch_command(p);
	}
	free(p);
	return rc;
}
