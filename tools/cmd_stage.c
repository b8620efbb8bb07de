/* leat stage: verified copies of data sets in local directories. The table of its verbs, and their
 * options. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "tools/left.h"
#include "tools/stage_args.h"

static const struct stage_verb verbs[] = {
	{"in", stage_cmd_in,
	 "to catalog capacity timeout verify order window wait detach max-rate lease ttl evict "
	 "progress scheduler placement nodes agent unpack together listen skip",
	 1, 1, false},
	{"out", stage_cmd_out, "timeout max-rate replace progress skip", 2, 2, false},
	{"plan", stage_cmd_plan, "to catalog capacity", 1, 1, true},
	{"wait", stage_cmd_wait, "to timeout wait", 1, 1, true},
	{"status", stage_cmd_status, "to", 0, 1, true},
	{"ls", stage_cmd_ls, "to", 0, 0, true},
	{"path", stage_cmd_path, "to share", 1, 1, true},
	{"verify", stage_cmd_verify, "to progress", 1, 1, true},
	{"pin", stage_cmd_pin, "to", 1, 1, true},
	{"unpin", stage_cmd_unpin, "to", 1, 1, true},
	{"lease", stage_cmd_lease, "to lease ttl", 1, 1, true},
	{"release", stage_cmd_release, "to lease nodes", 0, 1, true},
	{"evict", stage_cmd_evict, "to", 1, 1, true},
	{"gc", stage_cmd_gc, "to capacity free dry-run", 0, 0, true},
	{"cancel", stage_cmd_cancel, "to", 1, 1, true},
	{"where", stage_cmd_where, "", 0, 1, false},
	{"events", stage_cmd_events, "to follow", 0, 1, true},
};

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

/* One of the words, or -1. */
static int word_of(const char *text, const char *const *words, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return -1;
}

static bool knows(const struct stage_verb *v, const char *option)
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

/* Numbers as enum placement of the library has them. */
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
	return tool_usage(t, "%s: %s",
			  c == 'u'   ? "--wait: ready, first-window or none"
			  : c == 'p' ? "--progress: auto, plain, json or none"
			  : c == 's' ? "--scheduler: slurm-prolog, sge or pbs"
			  : c == 'v'
				  ? "--verify: memory or readback"
				  : "--placement: auto, replicate, spread, spread:N or partition",
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

/* $LEAT_STAGE_DIR: directories, separated by colons. */
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
		if (!knows(v, longs[index].name))
			return tool_usage(t, "%s knows no option --%s", v->name, longs[index].name);
		code = take_option(t, a, c);
	}
	if (code == EXIT_OK)
		code = dirs_of_environment(t, a);
	if (code != EXIT_OK)
		return code;
	if (v->need_to && !a->nodes && (!a->to || !*a->to))
		return tool_usage(t, "%s: --to DIRECTORY (or $LEAT_STAGE_DIR)?", v->name);
	a->what = argv[optind];
	a->dest = a->what ? argv[optind + 1] : NULL;
	if (argc - optind > v->n_max || argc - optind < v->n_min)
		return tool_usage(
			t, argc - optind > v->n_max ? "%s: too many arguments" : "%s: of what?",
			v->name);
	return EXIT_OK;
}

/* A scheduler takes the machine away when its prolog fails, so there failures are only noted. */
int stage_exit(const struct stage_args *a, int code)
{
	return a->scheduler ? EXIT_OK : code;
}

static int run(struct tool *t, int argc, char **argv)
{
	static struct stage_args a;

	if (argc < 2)
		return tool_usage(t, "in, out, plan, wait, status, ls, path, verify, pin, unpin, "
				     "lease, release, evict, gc, cancel, where or events?");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(argv[1], verbs[i].name) != 0)
			continue;
		int code = stage_args_parse(t, &verbs[i], argc - 1, argv + 1, &a);
		return code == EXIT_OK ? verbs[i].run(t, &a) : stage_exit(&a, code);
	}
	return tool_usage(t, "no such verb: '%s'", argv[1]);
}

const struct command command_stage = {
	.name = "stage",
	.summary = "verified copies of data sets on local disks",
	.usage =
		"usage: leat stage VERB [WHAT] --to DIR [--to DIR2 ...] [OPTIONS]\n"
		"  in SOURCE        make a copy; returns when it is ready\n"
		"  out DIR SOURCE   the other way: a local directory becomes one of the namespace\n"
		"  plan SOURCE      what `in` would move, and whether it fits; changes nothing\n"
		"  wait WHAT        until it is ready\n"
		"  status [WHAT]    is it ready? (0 yes, 3 no)      ls   the copies there are\n"
		"  path WHAT        where its files are             verify WHAT  reads it all "
		"again\n"
		"  pin, unpin WHAT  not to be evicted, and back     evict WHAT   removes it\n"
		"  lease WHAT, release [WHAT] --lease JOB   used by a job; and no longer\n"
		"  gc               makes room (--free SIZE, --capacity SIZE, --dry-run)\n"
		"  cancel WHAT      whoever makes it stops          where [NAME]  which nodes have "
		"it\n"
		"  events [--follow]  what happened\n"
		"SOURCE: NAME@VERSION of a data set, a directory, or leat:/DIRECTORY of the\n"
		"namespace where it is not mounted. WHAT: the same, or an id (6 digits suffice).\n"
		"The copy is plain files; ready means that every block was verified and synced.\n"
		"Interrupted, even by kill -9, the same command goes on where it was.\n"
		"  --to DIR         local directory that holds copies (or $LEAT_STAGE_DIR, "
		"DIR:DIR2)\n"
		"  --capacity SIZE  refuse when all copies there would exceed this\n"
		"  --evict          make room by evicting copies that nobody uses\n"
		"  --timeout S      how long it may take; what was copied stays\n"
		"  --wait UNTIL     ready, first-window or none: return then, go on in the "
		"background\n"
		"  --detach         the same as --wait none\n"
		"  --order ORDER    seed=N,batch=N,world=N,rank=N-N,epoch=N,mode=M: fetch in the "
		"order\n"
		"                   in which these ranks read; --window SIZE: the first window "
		"(1G)\n"
		"  --nodes LIST     the agents of these nodes make it, HOST[:PORT],...,\n"
		"                   n[1-4,7], @HOSTFILE or @ (those of this job); chunks are "
		"read\n"
		"                   from the servers once and handed on; --agent: of one node;\n"
		"                   release: they release it\n"
		"  --max-rate RATE  bytes per second read from the source, at most\n"
		"  --placement HOW  with --nodes: replicate, spread[:N] (each file on N of them), "
		"partition,\n"
		"                   auto (spread where --capacity is too small for all)\n"
		"  --together N     the same without agents: N processes on as many nodes (@: the "
		"nodes "
		"of\n"
		"                   this job), as by srun, hand chunks on; --listen ADDRESS\n"
		"  --unpack         every .tar, .tar.gz, .tar.zst, .tar.lz4 becomes a folder of\n"
		"                   its members: a copy of its own, NAME@VERSION.unpacked; the\n"
		"                   archives are not kept\n"
		"  --lease JOB      the job uses it until it is released, or for --ttl SECONDS\n"
		"  --verify HOW     readback: read everything back from the disk before ready\n"
		"  --progress HOW   auto, plain (a line every 10 s), json (one object a line), "
		"none\n"
		"  --scheduler WHO  slurm-prolog, sge, pbs: exit with 0 in any case\n"
		"  --skip WHAT      links, special: what leads out of the tree or to\n"
		"                   nothing, devices, sockets, pipes: left out on purpose;\n"
		"                   else the exit status is 5 where there are any\n"
		"  --replace        out: what is there is replaced, at once and as a whole\n"
		"  --catalog PATH   where data sets are looked up (leat:/.leat/datasets)\n"
		"Examples:\n"
		"  leat stage in imagenet@v1 --to /local/nvme\n"
		"  cd \"$(leat stage path imagenet@v1 --to /local/nvme)\"\n"
		"  leat stage out /local/run7 /mnt/leat/results/run7\n",
	.run = run,
};
