/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat-ossd: the object server of one or more disks. Command line, configuration, signals.
 * targets.c runs a server (server.c) for each disk on a separate loop (README.md lists the
 * threads).
 *
 * Exit status: 0 a clean stop or a check without problems, 1 failure, 2 bad usage or
 * configuration, 3 the metadata server refuses the store.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/build.h"
#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/kv/kv.h"
#include "common/kv/kv_rocksdb.h"
#include "common/rpc/auth.h"
#include "common/rt/env_real.h"
#include "ossd/check.h"
#include "ossd/format.h"
#include "ossd/server.h"
#include "ossd/targets.h"

#define SETS_MAX     64
#define EXIT_USAGE   2
#define EXIT_REFUSED 3

struct program {
	struct cluster_params cluster;
	struct ossd_params params;
	const char *command, *ready_file;
	struct rpc_key key;
	bool check_data, force;
	uint32_t n_made; /* stores made by format */
	struct env *env;
	struct loop *loop;
	int signal_fd;
	int exit_status;
};

/* ---- command line ---- */

static void usage(FILE *out)
{
	fputs("Usage: leat-ossd [-c FILE] [--set NAME=VALUE]... [--ready-file PATH] run\n"
	      "       leat-ossd [-c FILE] [--set NAME=VALUE]... format [--force]\n"
	      "       leat-ossd [-c FILE] [--set NAME=VALUE]... check [--data]\n"
	      "\n"
	      "The object server of Leat: keeps chunks of file data on local disks.\n"
	      "\n"
	      "  run       serve the store in data_dir until SIGTERM\n"
	      "  format    make an empty store in data_dir; --force takes a data_device that\n"
	      "            is not empty\n"
	      "  check     verify a store that is not in use; --data reads every block as well\n"
	      "\n"
	      "  -c, --config FILE    configuration (else $LEAT_CONF, /etc/leat/leat.conf)\n"
	      "  --set NAME=VALUE     a parameter of section [ossd], or cluster.NAME=VALUE\n"
	      "  --ready-file PATH    write the addresses there when the target is in service\n"
	      "  --check-config [FILE]...  would it start with this configuration, and its key?\n"
	      "  --params             show all parameters with their defaults\n"
	      "  --help, --version\n"
	      "\n"
	      "Example: leat-ossd --set data_dir=/srv/disk1 --set data_size=100G format\n",
	      out);
}

static int sections(struct program *g, struct config_section s[2])
{
	s[0] = (struct config_section){"cluster", cluster_param_table, n_cluster_params,
				       &g->cluster};
	s[1] = (struct config_section){"ossd", ossd_param_table, n_ossd_params, &g->params};
	return 2;
}

static int set_one(struct program *g, const char *text)
{
	struct config_section s[2];
	const char *eq = strchr(text, '=');
	char name[128], err[CONFIG_ERR_SIZE];
	int which = 1, rc = -LE_CONFIG;

	(void)sections(g, s);
	if (strncmp(text, "cluster.", 8) == 0) {
		which = 0;
		text += 8;
	} else if (strncmp(text, "ossd.", 5) == 0) {
		text += 5;
	}
	snprintf(err, sizeof(err), "--set %s: NAME=VALUE is asked for", text);
	if (eq && eq > text && (size_t)(eq - text) < sizeof(name)) {
		memcpy(name, text, (size_t)(eq - text));
		name[eq - text] = 0;
		rc = config_set(&s[which], name, eq + 1, err, sizeof(err));
	}
	if (rc < 0)
		fprintf(stderr, "leat-ossd: %s\n", err);
	return rc;
}

static int load_key(struct program *g, char *err, size_t err_size)
{
	struct rpc_key_problem problem;
	int rc = rpc_key_check(g->cluster.key_file, &g->key, &problem);

	if (rc < 0)
		snprintf(err, err_size, "%s. %s", problem.text, problem.hint);
	return rc;
}

/* The checks of --check-config: the same functions as at a start. */
static int judge(void *arg, const char *path, char *err, size_t err_size)
{
	struct program *g = arg;
	struct config_section s[2];
	int n = sections(g, s);

	TRY(config_load(path, s, n, err, err_size));
	return load_key(g, err, err_size);
}

static int check_config(struct program *g, const char *file, int argc, char **argv)
{
	char **files = argc > 0 || file == NULL ? argv : (char **)&file;
	int n = argc == 0 && file != NULL ? 1 : argc;

	return config_check_files("leat-ossd", files, n, judge, g) > 0 ? EXIT_USAGE : 0;
}

static int load_config(struct program *g, const char *file, char *const *sets, int n_sets)
{
	struct config_section s[2];
	enum log_level level;
	char err[CONFIG_ERR_SIZE] = "";
	int n = sections(g, s), rc = config_load(file, s, n, err, sizeof(err));

	if (rc < 0) {
		fprintf(stderr, "leat-ossd: %s\n", err);
		return rc;
	}
	for (int i = 0; i < n_sets; i++)
		TRY(set_one(g, sets[i]));
	rc = log_level_parse(g->params.log_level, &level);
	if (rc < 0)
		fprintf(stderr, "leat-ossd: log_level: error, warn, info or debug\n");
	else
		log_set_level(level);
	if (!g->params.host[0] && gethostname(g->params.host, sizeof(g->params.host) - 1) < 0)
		g->params.host[0] = 0;
	return rc;
}

static int show_params(struct program *g)
{
	struct config_section s[2];
	int n = sections(g, s);

	config_defaults(s, n);
	config_print_sample(s, n, stdout);
	return 0;
}

enum {
	OPT_SET = 256,
	OPT_READY,
	OPT_DATA,
	OPT_FORCE,
	OPT_HELP,
	OPT_VERSION,
	OPT_PARAMS,
	OPT_CHECK_CONFIG
};

/* Returns 0 to continue, else the exit status + 1. */
static int parse(struct program *g, int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"set", required_argument, NULL, OPT_SET},
		{"ready-file", required_argument, NULL, OPT_READY},
		{"data", no_argument, NULL, OPT_DATA},
		{"force", no_argument, NULL, OPT_FORCE},
		{"params", no_argument, NULL, OPT_PARAMS},
		{"check-config", no_argument, NULL, OPT_CHECK_CONFIG},
		{"help", no_argument, NULL, OPT_HELP},
		{"version", no_argument, NULL, OPT_VERSION},
		{0},
	};
	const char *file = NULL;
	char *sets[SETS_MAX];
	bool check = false;
	int n_sets = 0, c;

	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
		if (c == 'c')
			file = optarg;
		else if (c == OPT_SET && n_sets < SETS_MAX)
			sets[n_sets++] = optarg;
		else if (c == OPT_READY)
			g->ready_file = optarg;
		else if (c == OPT_DATA)
			g->check_data = true;
		else if (c == OPT_FORCE)
			g->force = true;
		else if (c == OPT_CHECK_CONFIG)
			check = true;
		else if (c == OPT_PARAMS)
			return show_params(g) + 1;
		else if (c == OPT_VERSION)
			return printf("leat-ossd %s\n", leat_build) > 0 ? 1 : 2;
		else if (c == OPT_HELP || c == 'h')
			return usage(stdout), 1;
		else
			return usage(stderr), EXIT_USAGE + 1;
	}
	if (check)
		return check_config(g, file, argc - optind, argv + optind) + 1;
	if (optind != argc - 1) {
		usage(stderr);
		return EXIT_USAGE + 1;
	}
	g->command = argv[optind];
	return load_config(g, file, sets, n_sets) < 0 ? EXIT_USAGE + 1 : 0;
}

/* ---- commands ---- */

static int exit_status_of(int rc)
{
	if (rc >= 0)
		return EXIT_SUCCESS;
	return rc == -LE_STORE_OLD || rc == -LE_WRONG_CLUSTER || rc == -LE_REMOVED ? EXIT_REFUSED
									       : EXIT_FAILURE;
}

static int run_check(struct program *g)
{
	struct ossd_params p;
	int rc, first = 0;

	for (uint32_t i = 0; (rc = targets_params(&g->params, i, &p)) == 0; i++) {
		uint64_t problems = 0;

		rc = ossd_check(g->env, &p, g->check_data, stdout, &problems);
		if (rc < 0)
			fprintf(stderr, "leat-ossd: %s: %s\n", p.data_dir, status_text(rc));
		if (first == 0)
			first = rc < 0 ? rc : problems ? -LE_CORRUPT_STORE : 0;
	}
	return first == 0 && rc != -LE_NOENT ? rc : first;
}

/* Formats one store. Fails if the parent folder is missing: then its disk is not mounted, or the
 * path is wrong, and the store would be made on the system's disk. Reports errors on stderr. */
static int format_one(struct program *g, const struct ossd_params *p)
{
	char parent[CONFIG_STR_MAX];
	int rc = env_find_parent(g->env, p->data_dir, parent, sizeof(parent));

	if (rc < 0) {
		fprintf(stderr,
			"leat-ossd: %s: %s: %s. Is its disk mounted? Only the last folder of "
			"data_dir is made.\n",
			p->data_dir, parent, status_text(rc));
		return rc;
	}
	rc = ossd_format(g->env, p, g->force);
	if (rc < 0)
		fprintf(stderr, "leat-ossd: %s: %s\n", p->data_dir,
			rc == -LE_EXIST ? "there is a store already" : status_text(rc));
	return rc;
}

/* Skips folders that are stores already if others are new, because a disk was added. */
static int run_format(struct program *g)
{
	struct ossd_params p;
	uint32_t n = 0;
	int rc, first = 0;

	for (; (rc = targets_params(&g->params, n, &p)) == 0; n++) {
		rc = format_one(g, &p);
		g->n_made += rc == 0;
		if (first == 0 || first == -LE_EXIST)
			first = rc;
	}
	if (first == 0 && rc != -LE_NOENT)
		first = rc;
	return first == -LE_EXIST && g->n_made > 0 ? 0 : first;
}

static void command_fiber(void *arg)
{
	struct program *g = arg;
	int rc = strcmp(g->command, "check") == 0 ? run_check(g) : run_format(g);

	g->exit_status = exit_status_of(rc);
	loop_stop(g->loop);
}

static int run_command(struct program *g)
{
	struct loop_options lo = {.name = "ossd"};

	TRY(loop_create(g->env, &lo, &g->loop));
	TRY(fiber_spawn_on(g->loop, "main", command_fiber, g));
	loop_run(g->loop);
	loop_destroy(g->loop);
	return 0;
}

/* ---- the process ---- */

/* Call before any thread is started, so that all threads leave the signals to signal_fd. */
static int block_signals(struct program *g)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return status_from_errno(errno);
	g->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return g->signal_fd < 0 ? status_from_errno(errno) : 0;
}

static int run_server(struct program *g)
{
	struct targets_options o = {.env = g->env,
				    .params = &g->params,
				    .mds_addrs = g->cluster.mds,
				    .ready_file = g->ready_file,
				    .signal_fd = g->signal_fd,
				    .key = g->key,
				    .transport = g->cluster.transport};

	g->exit_status = exit_status_of(targets_run(&o));
	return 0;
}

static int run(struct program *g)
{
	struct env_real_options eo = {.kv_open = kv_rocksdb_open};
	int rc;

	TRY(block_signals(g));
	TRY(env_real_create(&eo, &g->env));
	rc = strcmp(g->command, "run") == 0 ? run_server(g) : run_command(g);
	env_real_destroy(g->env);
	return rc;
}

int main(int argc, char **argv)
{
	char err[CONFIG_ERR_SIZE];
	struct program *g;
	int rc, status;

	/* Close files that the parent process left open. */
	(void)close_range(3, ~0U, 0);
	log_init("ossd", LOG_INFO);
	log_never_wait();
	notify_init();
	g = calloc(1, sizeof(*g));
	if (!g)
		return EXIT_FAILURE;
	rc = parse(g, argc, argv);
	if (rc == 0 && strcmp(g->command, "run") != 0 && strcmp(g->command, "check") != 0 &&
	    strcmp(g->command, "format") != 0) {
		fprintf(stderr, "leat-ossd: no command '%s', see --help\n", g->command);
		rc = EXIT_USAGE + 1;
	}
	if (rc == 0 && strcmp(g->command, "run") == 0 && load_key(g, err, sizeof(err)) < 0) {
		fprintf(stderr, "leat-ossd: %s\n", err);
		rc = EXIT_USAGE + 1;
	}
	if (rc) {
		free(g);
		return rc - 1;
	}
	g->exit_status = EXIT_FAILURE;
	rc = run(g);
	if (rc < 0)
		log_error("cannot start: %s", status_text(rc));
	status = g->exit_status;
	free(g);
	return status;
}
