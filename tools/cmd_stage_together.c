/*
 * leat stage in --together N: N processes on as many nodes, without agents and without root, make a
 * copy each and hand chunks on among them, as agents do. Each is an agent for as long as that
 * takes:
 *   1. it serves at an address of its own, and tells the metadata server what it makes
 *   2. it makes its copy, once the others have been heard of or some seconds have passed
 *   3. it stays until all of them are ready, or nobody is at it any more: others may need what it
 * has One that is killed is an agent that died; the same command goes on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/hostlist.h"
#include "tools/stage_args.h"

#define LINGER_S     600.0 /* at most, behind READY */
#define NOBODY_S     3.0   /* no one is at it for so long: those who are missing have not begun */
#define POLL_US      300000
#define TOGETHER_MAX 4096u
#define SETS         6
#define SET_SIZE     (STAGE_DIRS_MAX * 4200)

/* Of this job of a scheduler, or a number. */
static int count_of(struct tool *t, const char *text, uint32_t *ret_n)
{
	struct hostlist l;
	char err[256] = "this belongs to no job of Slurm, PBS or Grid Engine", *end;

	if (strcmp(text, "@") == 0) {
		if (hostlist_of_job(&l, err, sizeof(err)) < 0)
			return tool_usage(t, "--together: %s", err);
		*ret_n = l.n;
		hostlist_fini(&l);
		return EXIT_OK;
	}
	unsigned long n = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
	if (n == 0 || *end || n > TOGETHER_MAX)
		return tool_usage(t, "--together %s: a number of nodes, or @", text);
	*ret_n = (uint32_t)n;
	return EXIT_OK;
}

/* The parameters of the agent that this process is. */
static void fill_sets(const struct stage_args *a, char (*sets)[SET_SIZE], const char **ret_sets)
{
	char host[100] = "localhost";
	int n = snprintf(sets[0], SET_SIZE, "dirs=%s", a->to);

	for (uint32_t i = 0; i < a->n_more && n < SET_SIZE; i++)
		n += snprintf(sets[0] + n, SET_SIZE - (size_t)n, " %s", a->more[i]);
	if (gethostname(host, sizeof(host) - 1) < 0)
		host[0] = 0;
	/* Not the name of an agent that may run here as well. */
	snprintf(sets[1], SET_SIZE, "node=%s.%d", host, (int)getpid());
	snprintf(sets[2], SET_SIZE, "listen=%s", a->listen ? a->listen : "0.0.0.0:0");
	snprintf(sets[3], SET_SIZE, "report_ms=200");
	snprintf(sets[4], SET_SIZE, "log_level=warn");
	snprintf(sets[5], SET_SIZE, "metrics=");
	for (int i = 0; i < SETS; i++)
		ret_sets[i] = sets[i];
	ret_sets[SETS] = NULL;
}

/* Others may still be getting chunks from here. */
static void linger(struct tool *t, const struct stage_args *a, uint32_t n)
{
	double end = now_s() + LINGER_S, nobody = now_s() + NOBODY_S;

	while (!interrupted() && now_s() < end && now_s() < nobody) {
		uint32_t ready = 0, busy = 0;

		if (stage_where_count(t, a->id, &ready, &busy) != EXIT_OK || ready >= n)
			return;
		if (busy)
			nobody = now_s() + NOBODY_S;
		usleep(POLL_US);
	}
}

static int run(struct tool *t, struct stage_args *a, const struct source *source,
	       struct leat_fs *fs, uint32_t n)
{
	char(*text)[SET_SIZE] = calloc(SETS, sizeof(*text));
	const char *sets[SETS + 1];
	struct leat_agent *agent;

	if (!text)
		return tool_error(t, EXIT_FAILED, NULL, "no memory");
	fill_sets(a, text, sets);
	int rc = leat_agent_start(fs, t->conf, sets, &agent);
	free(text);
	if (rc < 0)
		return tool_error(t, exit_of_status(rc), NULL, "cannot serve other nodes: %s",
				  leat_strerror(rc));
	a->agent = leat_agent_addr(agent);
	a->nodes = NULL;
	a->to = NULL; /* all directories of the agent, which are ours */
	a->expect = n;
	int code = stage_cmd_nodes(t, a, source->name);
	if (code == EXIT_OK || code == EXIT_PARTIAL)
		linger(t, a, n);
	leat_agent_stop(agent);
	return code;
}

int stage_cmd_together(struct tool *t, struct stage_args *a, const struct source *source)
{
	struct leat_fs *fs = NULL;
	uint32_t n;

	if (source->local)
		return tool_usage(t, "--together: of the namespace only");
	if (!a->to || a->wait != WAIT_READY || a->nodes || a->agent)
		return tool_usage(t, "--together: with --to, without --nodes, --agent or --wait");
	bool space = strchr(a->to, ' ') != NULL;
	for (uint32_t i = 0; i < a->n_more; i++)
		space |= strchr(a->more[i], ' ') != NULL;
	if (space)
		return tool_usage(t, "--together: directories without spaces in their names");
	int code = count_of(t, a->together, &n);
	if (code == EXIT_OK)
		code = source_connect(t, source, &fs);
	if (code != EXIT_OK)
		return code;
	code = run(t, a, source, fs, n);
	leat_close_fs(fs);
	return code;
}
