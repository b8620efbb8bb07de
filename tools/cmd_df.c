/* SPDX-License-Identifier: Apache-2.0 */
/* leat df: space, of the whole cluster by target, or of mounts as statvfs(2) reports it. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "tools/cluster.h"
#include "tools/mounts.h"

static void print_row(const char *name, uint64_t size, uint64_t used, uint64_t avail)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT], percent[16] = "-";

	if (used + avail > 0)
		snprintf(percent, sizeof(percent), "%.0f%%",
			 100.0 * (double)used / ((double)used + (double)avail));
	printf("%-24s %10s %10s %10s %5s\n", name, format_size(size, a), format_size(used, b),
	       format_size(avail, c), percent);
}

static void print_header(const char *what)
{
	printf("%-24s %10s %10s %10s %5s\n", what, "SIZE", "USED", "AVAIL", "USED");
}

static json_t *row_json(const char *key, json_t *name, uint64_t size, uint64_t used, uint64_t avail)
{
	return json_pack("{s:o,s:I,s:I,s:I}", key, name, "size", (json_int_t)size, "used",
			 (json_int_t)used, "avail", (json_int_t)avail);
}

static void print_cluster(const struct cluster *c, const struct mds_statfs_rep *st)
{
	print_header("TARGET");
	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target_view *v = &c->targets[i];
		char name[300];

		snprintf(name, sizeof(name), "%u %s%s%s", v->id, v->host,
			 v->state == TARGET_UP ? "" : ", ",
			 v->state == TARGET_UP ? "" : target_state_name(v->state));
		print_row(name, v->capacity, v->used, v->free);
	}
	print_row("all", st->total, c->used, st->avail);
	printf("%" PRIu64 " inodes used, %" PRIu64 " free\n", st->inodes - st->inodes_free,
	       st->inodes_free);
}

static json_t *cluster_json(const struct cluster *c, const struct mds_statfs_rep *st)
{
	json_t *targets = json_array(), *all;

	for (uint32_t i = 0; i < c->n_targets; i++) {
		const struct target_view *v = &c->targets[i];
		json_t *row = row_json("id", json_integer(v->id), v->capacity, v->used, v->free);

		json_object_set_new(row, "state", json_string(target_state_name(v->state)));
		json_array_append_new(targets, row);
	}
	all = json_pack("{s:I,s:I,s:I,s:I,s:I,s:o}", "size", (json_int_t)st->total, "used",
			(json_int_t)c->used, "avail", (json_int_t)st->avail, "inodes",
			(json_int_t)st->inodes, "inodes_free", (json_int_t)st->inodes_free,
			"targets", targets);
	return all;
}

static int df_cluster(struct cluster *c, void *arg)
{
	struct mds_statfs_req req;
	struct mds_statfs_rep rep;
	struct rpc_call call;
	int status;

	(void)arg;
	memset(&req, 0, sizeof(req));
	memset(&rep, 0, sizeof(rep));
	TRY(cluster_fetch(c, 0));
	status = cluster_call(c, OP_mds_statfs, &req, &rep, &call);
	rpc_call_fini(&call);
	TRY(status);
	if (c->tool->json)
		tool_print_json(cluster_json(c, &rep));
	else
		print_cluster(c, &rep);
	return 0;
}

static int df_paths(struct tool *t, char **paths)
{
	json_t *rows = json_array();
	int code = EXIT_OK;

	if (!t->json)
		print_header("MOUNT");
	for (; *paths; paths++) {
		struct leat_mount m;
		struct statvfs st;

		if (!mount_of_path(*paths, &m)) {
			code = tool_error(t, EXIT_MISSING, NULL, "%s is not on a Leat mount",
					  *paths);
			continue;
		}
		if (statvfs(*paths, &st) < 0) {
			code = tool_error(t, exit_of_errno(errno), NULL, "%s: %m", *paths);
			continue;
		}
		uint64_t size = st.f_blocks * st.f_frsize,
			 used = (st.f_blocks - st.f_bfree) * st.f_frsize;
		uint64_t avail = st.f_bavail * st.f_frsize;
		if (t->json)
			json_array_append_new(rows,
					      row_json("mountpoint", tool_json_text(m.mountpoint),
						       size, used, avail));
		else
			print_row(m.mountpoint, size, used, avail);
	}
	if (t->json && code == EXIT_OK)
		return tool_print_json(json_pack("{s:o}", "mounts", rows));
	json_decref(rows);
	return code;
}

static int run(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {{NULL, 0, NULL, 0}};

	if (getopt_long(argc, argv, "", longs, NULL) != -1)
		return tool_usage(t, "wrong options");
	if (argv[optind])
		return df_paths(t, argv + optind);
	int code = tool_load_conf(t);
	return code == EXIT_OK ? cluster_run(t, 5000, df_cluster, NULL) : code;
}

const struct command command_df = {
	.name = "df",
	.summary = "space used and free, by target or by mount",
	.usage = "usage: leat df [PATH ...]\n"
		 "Without PATH: the space of every target and of the whole cluster. With PATHs:\n"
		 "that of the mounts they lie on.\n"
		 "Examples:\n"
		 "  leat df\n"
		 "  leat df --json /mnt/leat | jq .mounts[0].avail\n",
	.run = run,
};
