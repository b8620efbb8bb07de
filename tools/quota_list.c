/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/quota_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/names.h"
#include "common/rt/loop.h"
#include "tools/cluster.h"

#define CALL_MS   20000u
#define PATH_SIZE 4096u

struct quota_view {
	const struct tool *tool;
	struct cred cred;
	uint8_t groups[4 * LEAT_GROUPS_MAX];
	json_t *all; /* NULL: a table is printed */
};

static int take_cred(struct quota_view *v)
{
	gid_t groups[LEAT_GROUPS_MAX];
	int n = getgroups(LEAT_GROUPS_MAX, groups);
	struct wire_w w;

	if (n < 0)
		return tool_error(v->tool, EXIT_FAILED, NULL, "the groups of this user: %m");
	wire_w_init(&w, v->groups, sizeof(v->groups));
	for (int i = 0; i < n; i++)
		wire_put_u32(&w, &(uint32_t){groups[i]});
	v->cred = (struct cred){.uid = geteuid(),
				.gid = getegid(),
				.groups = bytes_of(v->groups, (uint32_t)w.len)};
	return EXIT_OK;
}

/* Returns for how long a limit has been exceeded; 0: it is not. */
static int64_t over_s(const struct mds_quota_list_rep *rep, int64_t since_ns)
{
	int64_t s = (rep->now_ns - since_ns) / 1000000000;

	return since_ns == 0 ? 0 : s > 0 ? s : 0;
}

/* ---- JSON ---- */

static int add_json(struct quota_view *v, const struct mds_quota_list_rep *rep,
		    const struct quota_state *q, const char *path)
{
	const struct {
		const char *name;
		uint64_t value;
	} members[] = {
		{"project", q->project},
		{"inode", q->root.v},
		{"bytes", q->bytes},
		{"reserved", q->reserved},
		{"bytes_soft", q->bytes_soft},
		{"bytes_hard", q->bytes_hard},
		{"inodes", q->inodes},
		{"inodes_soft", q->inodes_soft},
		{"inodes_hard", q->inodes_hard},
		{"bytes_over_s", (uint64_t)over_s(rep, q->bytes_over_ns)},
		{"inodes_over_s", (uint64_t)over_s(rep, q->inodes_over_ns)},
		{"grace_s", rep->grace_s},
	};
	json_t *o = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		if (json_object_set_new(o, members[i].name,
					json_integer((json_int_t)members[i].value)) < 0)
			goto out_of_memory;
	if (path[0] != '\0' && name_json_set(o, "path", path) < 0)
		goto out_of_memory;
	return json_array_append_new(v->all, o) < 0 ? -LE_NOMEM : 0;

out_of_memory:
	json_decref(o);
	return -LE_NOMEM;
}

/* ---- the table ---- */

static void print_number(uint64_t n, bool bytes, bool limit)
{
	char text[SIZE_TEXT];

	if (limit && n == 0)
		snprintf(text, sizeof(text), "-");
	else if (bytes)
		format_size(n, text);
	else
		snprintf(text, sizeof(text), "%" PRIu64, n);
	printf("%10s ", text);
}

/* Prints how long a soft limit may still be exceeded: the shorter time of the two. */
static void print_grace(const struct mds_quota_list_rep *rep, const struct quota_state *q)
{
	int64_t left = INT64_MAX;
	char text[32];

	if (q->bytes_soft != 0 && q->bytes_over_ns != 0)
		left = (int64_t)rep->grace_s - over_s(rep, q->bytes_over_ns);
	if (q->inodes_soft != 0 && q->inodes_over_ns != 0) {
		int64_t other = (int64_t)rep->grace_s - over_s(rep, q->inodes_over_ns);

		left = other < left ? other : left;
	}
	if (left == INT64_MAX)
		snprintf(text, sizeof(text), "-");
	else if (left <= 0)
		snprintf(text, sizeof(text), "ended");
	else if (left >= 2 * 86400)
		snprintf(text, sizeof(text), "%" PRId64 " d", left / 86400);
	else if (left >= 2 * 3600)
		snprintf(text, sizeof(text), "%" PRId64 " h", left / 3600);
	else
		snprintf(text, sizeof(text), "%" PRId64 " s", left);
	printf("%7s  ", text);
}

static void print_row(const struct mds_quota_list_rep *rep, const struct quota_state *q,
		      const char *path)
{
	print_number(q->bytes, true, false);
	print_number(q->bytes_hard, true, true);
	print_number(q->bytes_soft, true, true);
	print_number(q->inodes, false, false);
	print_number(q->inodes_hard, false, true);
	print_number(q->inodes_soft, false, true);
	print_grace(rep, q);
	if (path[0] != '\0')
		tool_write_text(stdout, path); /* escaped, so that a row is one line */
	else
		printf("(inode %" PRIu64 ", whose path cannot be found)", q->root.v);
	putchar('\n');
}

/* ---- requests ---- */

static int take_page(struct quota_view *v, const struct mds_quota_list_rep *rep)
{
	char path[PATH_SIZE + 1];
	struct wire_r r;

	wire_r_init(&r, rep->rows.data, rep->rows.len);
	while (!wire_r_end(&r)) {
		struct quota_row q = {0};

		wire_get_quota_row(&r, &q);
		TRY(r.status);
		if (q.path.len > PATH_SIZE)
			return -LE_BAD_MESSAGE;
		memcpy(path, q.path.len > 0 ? q.path.data : "", q.path.len);
		path[q.path.len] = '\0';
		if (v->all)
			TRY(add_json(v, rep, &q.quota, path));
		else
			print_row(rep, &q.quota, path);
	}
	return 0;
}

static int take_all(struct cluster *c, void *arg)
{
	struct mds_quota_list_req req = {.after = 0};
	struct quota_view *v = arg;
	int rc;

	req.cred = v->cred;
	do {
		struct mds_quota_list_rep rep = {0};
		struct rpc_call call;

		c->deadline_us = loop_deadline_ms(CALL_MS);
		rc = cluster_call(c, OP_mds_quota_list, &req, &rep, &call);
		if (rc >= 0)
			rc = take_page(v, &rep);
		if (rc >= 0 && rep.next != 0 && rep.next <= req.after)
			rc = -LE_BAD_MESSAGE;
		req.after = rep.next;
		rpc_call_fini(&call);
	} while (rc >= 0 && req.after != 0 && !interrupted());
	return rc;
}

int quota_list(struct tool *t)
{
	struct quota_view v = {.tool = t, .all = t->json ? json_array() : NULL};
	int code = take_cred(&v);

	if (code == EXIT_OK)
		code = tool_load_conf(t);
	if (code == EXIT_OK && !t->json)
		printf("%10s %10s %10s %10s %10s %10s %7s  %s\n", "SPACE", "LIMIT", "SOFT",
		       "INODES", "LIMIT", "SOFT", "GRACE", "DIRECTORY");
	catch_interrupts();
	if (code == EXIT_OK)
		code = cluster_run(t, CALL_MS, take_all, &v);
	if (code == EXIT_OK && interrupted())
		code = tool_error(t, EXIT_INTERRUPTED, "Run the command again.", "interrupted");
	if (code == EXIT_OK && t->json)
		return tool_print_json(json_pack("{s:o}", "quotas", v.all));
	json_decref(v.all);
	return code;
}
