/* SPDX-License-Identifier: Apache-2.0 */
/* Options of mount.leat. Order of precedence: defaults, leat.conf, -o. */
#include "fuse/options.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/base/build.h"
#include "common/base/log.h"
#include "common/rpc/auth.h"
#include "fuse/kernel/kernel_mount.h"
#include "fuse/metrics.h"
#include "fuse/mount.h"

#define PARAM_ROW(...) CONFIG_ROW(struct mount_params, __VA_ARGS__)
const struct config_param mount_param_table[] = {MOUNT_PARAMS(PARAM_ROW)};
const int n_mount_params = ARRAY_SIZE(mount_param_table);

#define METRICS_ROW(...) METRIC_ROW(struct mount_metrics, __VA_ARGS__)
const struct metric_desc mount_metric_table[] = {MOUNT_METRICS(METRICS_ROW)};
const int n_mount_metrics = ARRAY_SIZE(mount_metric_table);

enum {
	SECTION_CLUSTER,
	SECTION_CLIENT,
	SECTION_MOUNT,
	N_SECTIONS
};

static void sections_of(struct mount_options *o, struct config_section ret[N_SECTIONS])
{
	ret[SECTION_CLUSTER] = (struct config_section){"cluster", cluster_param_table,
						       n_cluster_params, &o->cluster};
	ret[SECTION_CLIENT] =
		(struct config_section){"client", client_param_table, n_client_params, &o->client};
	ret[SECTION_MOUNT] =
		(struct config_section){"mount", mount_param_table, n_mount_params, &o->mount};
}

static void usage(FILE *out)
{
	fputs("usage: mount.leat SOURCE MOUNTPOINT [-f] [-v] [-o OPTION[=VALUE],...]\n"
	      "Mounts the namespace of a Leat cluster. SOURCE: host:port[,host:port] of the "
	      "metadata\n"
	      "server, or \"leat:\" to take it from leat.conf; with a path (mds1:7440/home, "
	      "leat:/home)\n"
	      "only that part of it.\n"
	      "  -f, --foreground   do not go to the background\n"
	      "  --check-config [FILE]...  would it mount with this configuration, and its key?\n"
	      "  -o conf=FILE       configuration (default /etc/leat/leat.conf or $LEAT_CONF)\n"
	      "  -o log=FILE        append the log there (default: stderr in the foreground, else "
	      "the\n"
	      "                     journal or syslog)\n"
	      "  -o NAME=VALUE      any parameter of [cluster], [client] and [mount]: see "
	      "mount.leat(8)\n"
	      "  -o ro,noexec,...   the usual options of mount(8), also remount\n"
	      "  -o allow_suid,allow_dev  else no set-user-id program and no device works\n"
	      "Example: mount.leat mds1:7440 /mnt/leat -o readahead=32M\n",
	      out);
}

/* Options of mount(8) and fstab that have no effect here or in the kernel. */
static bool is_ignored(const char *name)
{
	static const char *const ignored[] = {
		"auto",   "noauto",   "user",
		"nouser", "users",    "_netdev",
		"nofail", "defaults", "default_permissions",
	};

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		if (strcmp(name, ignored[i]) == 0)
			return true;
	return strncmp(name, "x-", 2) == 0 || strncmp(name, "comment=", 8) == 0;
}

/* Options that /proc/mounts lists for a FUSE mount. mount(8) passes them when it remounts. */
static bool is_shown_by_kernel(const char *word)
{
	static const char *const shown[] = {"user_id=", "group_id=", "max_read=", "blksize="};

	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		if (strncmp(word, shown[i], strlen(shown[i])) == 0)
			return true;
	return false;
}

static int set_option(struct mount_options *o, char *word)
{
	struct config_section sections[N_SECTIONS];
	char err[CONFIG_ERR_SIZE] = "";
	char *value = strchr(word, '=');

	if (is_ignored(word) || kernel_flag_word(word, &o->ms_flags, &o->ms_said) ||
	    (o->remount && is_shown_by_kernel(word)))
		return 0;
	if (value)
		*value++ = '\0';
	if (strcmp(word, "conf") == 0 && value)
		return 0; /* find_first_words has read it */
	if (strcmp(word, "remount") == 0 && !value)
		return 0;
	if (strcmp(word, "log") == 0 && value) {
		snprintf(o->log_file, sizeof(o->log_file), "%s", value);
		return 0;
	}
	sections_of(o, sections);
	for (int i = 0; i < N_SECTIONS; i++)
		for (int j = 0; j < sections[i].n_params; j++)
			if (strcmp(sections[i].params[j].name, word) == 0) {
				int status = config_set(&sections[i], word, value ? value : "true",
							err, sizeof(err));
				if (status < 0)
					fprintf(stderr, "mount.leat: %s\n", err);
				return status;
			}
	fprintf(stderr, "mount.leat: unknown option '%s'; see mount.leat --help\n", word);
	return -LE_CONFIG;
}

/* Finds conf= and remount before the other options are read: these change the values of that
 * configuration, and depend on whether it is a remount. */
static void find_first_words(struct mount_options *o, const char *text)
{
	for (const char *at = text; *at; at += strcspn(at, ","), at += *at == ',') {
		int len = (int)strcspn(at, ",");

		if (strncmp(at, "conf=", 5) == 0)
			snprintf(o->conf, sizeof(o->conf), "%.*s", len - 5, at + 5);
		else if (len == 7 && strncmp(at, "remount", 7) == 0)
			o->remount = true;
	}
}

/* Makes the path of the configuration absolute, since the daemon changes its directory. Does not
 * resolve symbolic links: they are followed at each open. */
static void find_conf(struct mount_options *o)
{
	const char *env = getenv("LEAT_CONF");
	char here[PATH_MAX], path[PATH_MAX + sizeof(o->conf)];

	if (!o->conf[0] && env)
		snprintf(o->conf, sizeof(o->conf), "%s", env);
	if (!o->conf[0] || o->conf[0] == '/' || !getcwd(here, sizeof(here)))
		return;
	snprintf(path, sizeof(path), "%s/%s", here, o->conf);
	if (strlen(path) < sizeof(o->conf))
		memcpy(o->conf, path, strlen(path) + 1);
}

static int set_options(struct mount_options *o, char *text)
{
	char *save = NULL;

	for (char *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save))
		TRY(set_option(o, word));
	return 0;
}

/* If the source names a local file, libmount passes on its path instead. */
static int refuse_local_path(const char *source)
{
	fprintf(stderr,
		"mount.leat: the source '%s' is a path of this machine: mount(8) makes one of a "
		"word that is\n"
		"  the name of something in the directory where it was started. Say leat: (or "
		"leat:/path), or\n"
		"  host:port of the metadata server\n",
		source);
	return -LE_INVAL;
}

/* True for "leat" and "leat:": the addresses are those of leat.conf. */
static bool is_configured(const char *source, size_t len)
{
	return strncmp(source, "leat", 4) == 0 && (len == 4 || (len == 5 && source[4] == ':'));
}

/* Checks the addresses of the source like those of leat.conf. */
static int check_source(struct mount_options *o)
{
	struct config_section sections[N_SECTIONS];
	char err[CONFIG_ERR_SIZE] = "", given[CONFIG_STR_MAX];
	int rc;

	memcpy(given, o->cluster.mds, sizeof(given));
	sections_of(o, sections);
	rc = config_set(&sections[SECTION_CLUSTER], "mds", given, err, sizeof(err));
	if (rc < 0)
		fprintf(stderr, "mount.leat: the source: %s\n", err);
	return rc;
}

/* Splits "ADDRESSES/path" or "leat:/path" into the metadata server and the path. */
static int take_source(struct mount_options *o, const char *source)
{
	size_t len = strcspn(source, "/");
	char *mds = o->cluster.mds;

	if (strlen(source) >= sizeof(o->source) || strlen(source + len) >= sizeof(o->subtree) ||
	    len >= sizeof(o->cluster.mds)) {
		fprintf(stderr, "mount.leat: the source is too long\n");
		return -LE_INVAL;
	}
	snprintf(o->source, sizeof(o->source), "%s", source);
	if (o->remount) /* the source has no effect */
		return 0;
	if (source[0] == '/')
		return refuse_local_path(source);
	snprintf(o->subtree, sizeof(o->subtree), "%s", source + len);
	if (is_configured(source, len))
		return 0;
	if (memchr(source, ':', len) == NULL) {
		fprintf(stderr,
			"mount.leat: the source '%s' has no port. Say host:port of the metadata "
			"server, or leat: for\n"
			"  the one that leat.conf names\n",
			source);
		return -LE_INVAL;
	}
	if (source[len] == '/' && source[len - 1] == ':')
		len--;
	memcpy(mds, source, len);
	mds[len] = '\0';
	return check_source(o);
}

static int take_positional(int argc, char **argv, struct mount_options *o)
{
	char path[4096];

	if (optind + 2 != argc) {
		usage(stderr);
		return -LE_INVAL;
	}
	/* A supervisor has passed it already. Resolving it here would send the mount a request,
	 * which no daemon would answer. */
	if (!o->mountpoint[0]) {
		if (!realpath(argv[optind + 1], path)) {
			fprintf(stderr, "mount.leat: %s: %m\n", argv[optind + 1]);
			return -LE_NOENT;
		}
		memcpy(o->mountpoint, path, sizeof(path));
	}
	return take_source(o, argv[optind]);
}

static int check_key(const struct mount_options *o, char *err, size_t err_size)
{
	struct rpc_key_problem problem;
	struct rpc_key key;
	int rc = rpc_key_check(o->cluster.key_file, &key, &problem);

	if (rc < 0)
		snprintf(err, err_size, "%s. %s", problem.text, problem.hint);
	return rc;
}

/* Checks a configuration for --check-config, with the functions that a mount uses. */
static int judge(void *arg, const char *path, char *err, size_t err_size)
{
	struct mount_options *o = arg;
	struct config_section sections[N_SECTIONS];

	sections_of(o, sections);
	TRY(config_load(path, sections, N_SECTIONS, err, err_size));
	return check_key(o, err, err_size);
}

static int check_config(struct mount_options *o, int argc, char **argv)
{
	char *conf = o->conf;
	char **files = argc > 0 || !conf[0] ? argv : &conf;
	int n = argc == 0 && conf[0] ? 1 : argc;

	return config_check_files("mount.leat", files, n, judge, o) > 0 ? -LE_CONFIG : 1;
}

int mount_options_parse(int argc, char **argv, const char *mountpoint,
			struct mount_options *ret_opts)
{
	static const struct option longs[] = {
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{"foreground", no_argument, NULL, 'f'},
		{"check-config", no_argument, NULL, 'C'},
		{NULL, 0, NULL, 0},
	};
	struct mount_options *o = ret_opts;
	struct config_section sections[N_SECTIONS];
	char *texts[16], err[CONFIG_ERR_SIZE] = "";
	bool check = false;
	enum log_level level;
	int n_texts = 0, c;

	memset(o, 0, sizeof(*o));
	/* Otherwise a user with write access to the namespace, from any machine, could become root
	 * here. */
	o->ms_flags = MS_NOSUID | MS_NODEV;
	if (mountpoint)
		snprintf(o->mountpoint, sizeof(o->mountpoint), "%s", mountpoint);
	while ((c = getopt_long(argc, argv, "hVfsnvo:t:", longs, NULL)) != -1) {
		if (c == 'h') {
			usage(stdout);
			return 1;
		} else if (c == 'V') {
			printf("mount.leat %s, libfuse %s\n", leat_build, fuse_pkgversion());
			if (FUSE_LACKS[0])
				puts("lacking: " FUSE_LACKS);
			return 1;
		} else if (c == 'C') {
			check = true;
		} else if (c == 'f') {
			o->foreground = true;
		} else if (c == 'o' && n_texts < (int)ARRAY_SIZE(texts)) {
			find_first_words(o, optarg);
			texts[n_texts++] = optarg;
		} else if (c == '?' || c == 'o') {
			usage(stderr);
			return -LE_INVAL;
		}
	}
	sections_of(o, sections);
	if (check)
		return check_config(o, argc - optind, argv + optind);
	if (!mountpoint)
		find_conf(o);
	if (config_load(o->conf[0] ? o->conf : NULL, sections, N_SECTIONS, err, sizeof(err)) < 0) {
		fprintf(stderr, "mount.leat: %s\n", err);
		return -LE_CONFIG;
	}
	TRY(take_positional(argc, argv, o));
	for (int i = 0; i < n_texts; i++)
		TRY(set_options(o, texts[i]));
	if (log_level_parse(o->mount.log_level, &level) < 0) {
		fprintf(stderr, "mount.leat: log_level: error, warn, info or debug\n");
		return -LE_CONFIG;
	}
	log_set_level(level);
	/* Reported here, before a daemon would report it to a log. */
	if (!mountpoint && !o->remount && check_key(o, err, sizeof(err)) < 0) {
		fprintf(stderr, "mount.leat: %s\n", err);
		return -LE_CONFIG;
	}
	return 0;
}
