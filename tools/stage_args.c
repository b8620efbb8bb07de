/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/stage_args.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tools/left.h"

static const struct option longs[] = {
	{"to", required_argument, NULL, 't'},
	{"catalog", required_argument, NULL, 'g'},
	{"capacity", required_argument, NULL, 'c'},
	{"timeout", required_argument, NULL, 'w'},
	{"verify", required_argument, NULL, 'v'},
	{"order", required_argument, NULL, 'o'},
	{"window", required_argument, NULL, 'W'},
	{"wait", required_argument, NULL, 'u'},
	{"detach", no_argument, NULL, 'd'},
	{"max-rate", required_argument, NULL, 'r'},
	{"lease", required_argument, NULL, 'l'},
	{"ttl", required_argument, NULL, 'T'},
	{"evict", no_argument, NULL, 'e'},
	{"unpack", no_argument, NULL, 'U'},
	{"share", no_argument, NULL, 'H'},
	{"replace", no_argument, NULL, 'R'},
	{"dry-run", no_argument, NULL, 'n'},
	{"free", required_argument, NULL, 'f'},
	{"follow", no_argument, NULL, 'F'},
	{"progress", required_argument, NULL, 'p'},
	{"scheduler", required_argument, NULL, 's'},
	{"placement", required_argument, NULL, 'P'},
	{"nodes", required_argument, NULL, 'N'},
	{"agent", required_argument, NULL, 'A'},
	{"together", required_argument, NULL, 'G'},
	{"listen", required_argument, NULL, 'L'},
	{"skip", required_argument, NULL, 'S'},
	{NULL, 0, NULL, 0},
};

/* Returns the index of the text among the words, or -1. */
static int word_of(const char *text, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return -1;
}

bool stage_verb_knows(const struct stage_verb *v, const char *option)
{
	size_t len = strlen(option);

	for (const char *p = v->options; (p = strstr(p, option)) != NULL; p += len)
		if ((p == v->options || p[-1] == ' ') && (p[len] == ' ' || p[len] == 0))
			return true;
	return false;
}

static int add_dir(struct tool *t, struct stage_args *a, const char *dir)
{
	if (!a->to)
		a->to = dir;
	else if (a->n_more + 1 < STAGE_DIRS_MAX)
		a->more[a->n_more++] = dir;
	else
		return tool_usage(t, "--to: at most %d directories", STAGE_DIRS_MAX);
	return dir[0] == '/' ? EXIT_OK : tool_usage(t, "--to %s: an absolute path is needed", dir);
}

/* Parses the value of --placement: a number of the library's enum placement. */
static bool take_placement(struct stage_args *a)
{
	static const char *const places[] = {"replicate", "spread", "partition", "auto"};
	char *end = optarg;
	int n = word_of(optarg, places, 4);

	a->copies = 1;
	if (n < 0 && strncmp(optarg, "spread:", 7) == 0) {
		a->copies = (uint32_t)strtoul(optarg + 7, &end, 10);
		n = 1;
		if (optarg[7] < '1' || optarg[7] > '9' || *end || a->copies > 4096)
			return false;
	}
	a->placement = n < 0 ? 0 : (uint32_t)n;
	return n >= 0;
}

static int take_word(struct tool *t, struct stage_args *a, int c)
{
	static const char *const waits[] = {"ready", "first-window", "none"};
	static const char *const shows[] = {"auto", "plain", "json", "none"};
	static const char *const schedulers[] = {"slurm-prolog", "sge", "pbs"};
	static const char *const verifies[] = {"memory", "readback"};
	int n = -1;

	if (c == 'u' && (n = word_of(optarg, waits, 3)) >= 0)
		a->wait = (enum stage_wait)n;
	else if (c == 'p' && (n = word_of(optarg, shows, 4)) >= 0)
		a->progress = (enum stage_progress)n;
	else if (c == 's' && (n = word_of(optarg, schedulers, 3)) >= 0)
		a->scheduler = true;
	else if (c == 'v' && (n = word_of(optarg, verifies, 2)) >= 0)
		a->readback = n == 1;
	else if (c == 'P' && take_placement(a))
		n = 0;
	if (n >= 0)
		return EXIT_OK;
	return tool_usage(t, "%s, not '%s'",
			  c == 'u'   ? "--wait is ready, first-window or none"
			  : c == 'p' ? "--progress is auto, plain, json or none"
			  : c == 's' ? "--scheduler is slurm-prolog, sge or pbs"
			  : c == 'v'
				  ? "--verify is memory or readback"
				  : "--placement is auto, replicate, spread, spread:N or partition",
			  optarg);
}

static int take_number(struct tool *t, struct stage_args *a, int c)
{
	bool good = true;

	if (c == 'c')
		good = parse_size_arg(t, "--capacity", optarg, &a->capacity);
	else if (c == 'w')
		good = parse_number_arg(t, "--timeout", optarg, 4000000, &a->timeout_s);
	else if (c == 'W')
		good = parse_size_arg(t, "--window", optarg, &a->window);
	else if (c == 'r')
		good = parse_size_arg(t, "--max-rate", optarg, &a->max_rate);
	else if (c == 'T')
		good = parse_number_arg(t, "--ttl", optarg, 4000000000, &a->ttl_s);
	else
		good = parse_size_arg(t, "--free", optarg, &a->free);
	return good ? EXIT_OK : EXIT_USAGE;
}

static int take_option(struct tool *t, struct stage_args *a, int c)
{
	switch (c) {
	case 't':
		return add_dir(t, a, optarg);
	case 'g':
		a->catalog = optarg;
		break;
	case 'o':
		a->order = optarg;
		break;
	case 'N':
		a->nodes = optarg;
		break;
	case 'A':
		a->agent = optarg;
		break;
	case 'G':
		a->together = optarg;
		break;
	case 'L':
		a->listen = optarg;
		break;
	case 'S':
		return left_parse_skip(t, optarg, &a->skip);
	case 'l':
		a->lease = optarg;
		break;
	case 'd':
		a->detach = true;
		break;
	case 'e':
		a->evict = true;
		break;
	case 'U':
		a->unpack = true;
		break;
	case 'H':
		a->share = true;
		break;
	case 'R':
		a->replace = true;
		break;
	case 'n':
		a->dry_run = true;
		break;
	case 'F':
		a->follow = true;
		break;
	case 'c':
	case 'w':
	case 'W':
	case 'r':
	case 'T':
	case 'f':
		return take_number(t, a, c);
	default:
		return take_word(t, a, c);
	}
	return EXIT_OK;
}

/* Takes the directories of $LEAT_STAGE_DIR, separated by colons. */
static int dirs_of_environment(struct tool *t, struct stage_args *a)
{
	const char *env = getenv("LEAT_STAGE_DIR");
	char *rest = a->dirs, *dir;

	if (a->to || !env || strlen(env) >= sizeof(a->dirs))
		return EXIT_OK;
	memcpy(a->dirs, env, strlen(env) + 1);
	while ((dir = strsep(&rest, ":")) != NULL) {
		int code = *dir ? add_dir(t, a, dir) : EXIT_OK;
		if (code != EXIT_OK)
			return code;
	}
	return EXIT_OK;
}

int stage_args_parse(struct tool *t, const struct stage_verb *v, int argc, char **argv,
		     struct stage_args *a)
{
	int c, index, code = EXIT_OK;

	memset(a, 0, sizeof(*a));
	optind = 0;
	while (code == EXIT_OK && (c = getopt_long(argc, argv, "", longs, &index)) != -1) {
		if (c == '?')
			return tool_usage(t, "%s: wrong options", v->name);
		if (!stage_verb_knows(v, longs[index].name))
			return tool_usage(t, "%s has no option --%s", v->name, longs[index].name);
		code = take_option(t, a, c);
	}
	if (code == EXIT_OK)
		code = dirs_of_environment(t, a);
	if (code != EXIT_OK)
		return code;
	if (v->need_to && !a->nodes && (!a->to || !*a->to))
		return tool_usage(t, "%s: --to DIRECTORY (or $LEAT_STAGE_DIR) is missing", v->name);
	a->what = argv[optind];
	a->dest = a->what ? argv[optind + 1] : NULL;
	if (argc - optind > v->n_max || argc - optind < v->n_min)
		return tool_usage(
			t, argc - optind > v->n_max ? "%s: too many arguments" : 
					"%s: an argument is missing",
			v->name);
	return EXIT_OK;
}

/* A scheduler disables the node if its prolog fails, so failures are only reported. */
int stage_exit(const struct stage_args *a, int code)
{
	return a->scheduler ? EXIT_OK : code;
}
