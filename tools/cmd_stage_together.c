/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat stage in --together N: N processes on as many nodes, without agents and without root, make a
 * copy each and exchange chunks, as agents do. Each process acts as an agent:
 *   1. it serves at its own address, and reports its copy to the metadata server
 *   2. it makes its copy, once the other processes have reported or some seconds have passed
 *   3. it serves until all copies are ready, or no process makes one any longer
 * A process that is killed counts as an agent that died; the same command continues.
 */
#include "tools/cmd_stage_together.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/hostlist.h"
#include "tools/cmd_stage_nodes.h"
#include "tools/stage_verbs.h"

#define LINGER_S     600.0 /* at most, after its own copy is READY */
/* without a process that makes a copy: the missing ones then count as not started */
#define NOBODY_S     3.0
#define POLL_US      300000
#define TOGETHER_MAX 4096u
#define SETS         6
#define SET_SIZE     (STAGE_DIRS_MAX * 4200)

/* Gets the number of processes: of nodes of this scheduler's job ("@"), or as given. */
static int count_of(struct tool *t, const char *text, uint32_t *ret_n)
{
	struct hostlist l;
	char err[256] = "this process belongs to no job of Slurm, PBS or Grid Engine", *end;

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

/* Fills in the parameters of the agent that this process acts as. */
static void fill_sets(const struct stage_args *a, char (*sets)[SET_SIZE], const char **ret_sets)
{
	char host[100] = "localhost";
	int n = snprintf(sets[0], SET_SIZE, "dirs=%s", a->to);

	for (uint32_t i = 0; i < a->n_more && n < SET_SIZE; i++)
		n += snprintf(sets[0] + n, SET_SIZE - (size_t)n, " %s", a->more[i]);
	if (gethostname(host, sizeof(host) - 1) < 0)
		host[0] = 0;
	/* Differs from the name of an agent that may run here as well. */
	snprintf(sets[1], SET_SIZE, "node=%s.%d", host, (int)getpid());
	snprintf(sets[2], SET_SIZE, "listen=%s", a->listen ? a->listen : "0.0.0.0:0");
	snprintf(sets[3], SET_SIZE, "report_ms=200");
	snprintf(sets[4], SET_SIZE, "log_level=warn");
	snprintf(sets[5], SET_SIZE, "metrics=");
	for (int i = 0; i < SETS; i++)
		ret_sets[i] = sets[i];
	ret_sets[SETS] = NULL;
}

/* Serves on, since other processes may still read chunks from here. */
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
		return tool_error(t, EXIT_FAILED, NULL, "out of memory");
	fill_sets(a, text, sets);
	int rc = leat_agent_start(fs, t->conf, sets, &agent);
	free(text);
	if (rc < 0)
		return tool_error(t, exit_of_status(rc), NULL, "cannot serve other nodes: %s",
				  leat_strerror(rc));
	a->agent = leat_agent_addr(agent);
	a->nodes = NULL;
	a->to = NULL; /* all directories of the agent, which are those of this process */
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
		return tool_usage(t, "--together stages only from the namespace");
	if (!a->to || a->wait != WAIT_READY || a->nodes || a->agent)
		return tool_usage(t, "--together needs --to and excludes --nodes, --agent and "
				     "--wait");
	bool space = strchr(a->to, ' ') != NULL;
	for (uint32_t i = 0; i < a->n_more; i++)
		space |= strchr(a->more[i], ' ') != NULL;
	if (space)
		return tool_usage(t, "--together: names of directories must not contain spaces");
	int code = count_of(t, a->together, &n);
	if (code == EXIT_OK)
		code = source_connect(t, source, &fs);
	if (code != EXIT_OK)
		return code;
	code = run(t, a, source, fs, n);
	leat_close_fs(fs);
	return code;
}
