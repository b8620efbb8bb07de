/* SPDX-License-Identifier: Apache-2.0 */
/* Instances of the public library (leat.h): configuration, connecting, statistics. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/include/leat/leat.h"
#include "client/leat_impl.h"
#include "client/ll.h"
#include "client/params.h"
#include "common/base/assert.h"
#include "common/base/config.h"
#include "common/base/log.h"
#include "common/base/names.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/auth.h"
#include "common/rpc/rpc.h"
#include "common/rpc/transport/transport.h"
#include "common/rpc/transport/transport_mux.h"
#include "common/rt/cpus.h"
#include "common/rt/env.h"
#include "common/rt/env_real.h"
#include "common/rt/loop.h"

#define NET_SIZE (256u << 10)

const char *leat_strerror(int64_t status)
{
	return status_text((int)status);
}

int leat_errno(int64_t status)
{
	return status < 0 ? status_errno((int)status) : 0;
}

const char *leat_version(void)
{
	return LEAT_VERSION;
}

static void api_fiber(void *arg)
{
	struct api_call *a = arg;

	a->result = a->fn(a);
}

int64_t api_run(struct leat_fs *fs, struct api_call *a)
{
	int rc;

	ASSERT(fs != NULL && fs->magic == LEAT_FS_MAGIC);
	a->fs = fs;
	rc = loop_call(fs->loop, "leat_call", api_fiber, a);
	return rc < 0 ? rc : a->result;
}

struct settings {
	struct cluster_params cluster;
	struct client_params client;
	struct rpc_key key;
	const char *name;
	/* The problem with the settings, found before any request to a server, and the next
	 * step. */
	char refusal[CONFIG_ERR_SIZE + 512];
};

/* Returns a member of the caller's options, if the caller's version of the struct has it. */
#define OPT_HAS(opts, member)                                                                      \
	((opts) != NULL && (opts)->size >= offsetof(struct leat_options, member) +                 \
						   sizeof((opts)->member))
#define OPT(opts, member) (OPT_HAS(opts, member) ? (opts)->member : NULL)

static int load_params(const char *const *params, const struct config_section *section,
		       char *err, size_t err_size)
{
	int rc = 0;

	for (; rc >= 0 && params != NULL && *params != NULL; params++) {
		const char *eq = strchr(*params, '=');
		char name[64];

		if (eq == NULL || (size_t)(eq - *params) >= sizeof(name)) {
			snprintf(err, err_size, "parameter \"%s\" is not of the form name=value",
				 *params);
			return -LE_CONFIG;
		}
		memcpy(name, *params, (size_t)(eq - *params));
		name[eq - *params] = '\0';
		rc = config_set(section, name, eq + 1, err, err_size);
	}
	return rc;
}

/* The next step for a user without a usable leat.conf. */
#define OTHER_CONF "LEAT_CONF, the conf argument, or leat --conf names another leat.conf"

static int load_settings(const char *conf, const struct leat_options *opts, struct settings *s)
{
	struct config_section sections[] = {
		{"cluster", cluster_param_table, n_cluster_params, &s->cluster},
		{"client", client_param_table, n_client_params, &s->client},
	};
	const char *mds = OPT(opts, mds), *key_file = OPT(opts, key_file);
	struct rpc_key_problem problem;
	char err[CONFIG_ERR_SIZE] = "";
	bool may_be_missing;
	int rc = config_load(conf, sections, 2, err, sizeof(err));

	conf = config_path(conf, &may_be_missing);
	if (rc >= 0 && mds != NULL)
		rc = config_set(&sections[0], "mds", mds, err, sizeof(err));
	if (rc >= 0 && key_file != NULL)
		rc = config_set(&sections[0], "key_file", key_file, err, sizeof(err));
	if (rc >= 0)
		rc = load_params(OPT(opts, params), &sections[1], err, sizeof(err));
	if (rc < 0) {
		snprintf(s->refusal, sizeof(s->refusal),
			 "%s. `leat config sample` prints every parameter; " OTHER_CONF ".",
			 err[0] != '\0' ? err : status_text(rc));
		text_make_printable(s->refusal);
		return rc;
	}
	s->name = OPT(opts, name);
	rc = rpc_key_check(s->cluster.key_file, &s->key, &problem);
	if (rc < 0 && may_be_missing && access(conf, F_OK) < 0)
		snprintf(s->refusal, sizeof(s->refusal),
			 "%s, and there is no %s. " OTHER_CONF ".", problem.text, conf);
	else if (rc < 0)
		snprintf(s->refusal, sizeof(s->refusal), "%s. %s The leat.conf read here is %s.",
			 problem.text, problem.hint, conf);
	text_make_printable(s->refusal);
	return rc;
}

/* The umask can only be read by a call that changes it, which other threads would notice. */
mode_t process_umask(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned mask = 022;
	char line[128];

	if (f == NULL)
		return (mode_t)mask;
	while (fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "Umask: %o", &mask) == 1)
			break;
	fclose(f);
	return (mode_t)mask;
}

static void take_cred(struct leat_fs *fs)
{
	gid_t groups[LEAT_GROUPS_MAX];
	int n = getgroups(LEAT_GROUPS_MAX, groups);

	fs->cred = (struct cred){.uid = geteuid(), .gid = getegid()};
	for (int i = 0; i < n; i++) {
		uint8_t *p = fs->groups + (size_t)i * 4;

		for (int j = 0; j < 4; j++)
			p[j] = (uint8_t)(groups[i] >> (8 * j));
	}
	fs->cred.groups = bytes_of(fs->groups, n > 0 ? (uint32_t)n * 4 : 0);
	fs->umask = process_umask();
}

static int64_t create_fn(struct api_call *a)
{
	const struct settings *s = a->in;
	struct client_options opts = {
		.transport = a->fs->transport,
		.key = s->key,
		.mds_addrs = s->cluster.mds,
		.name = s->name,
		.params = s->client,
	};

	TRY(client_create(&opts, &a->fs->client));
	return cpus_use(s->client.cores, transport_numa_node(a->fs->transport));
}

static int64_t destroy_fn(struct api_call *a)
{
	client_destroy(a->fs->client);
	return 0;
}

/* Frees an instance, also one that is only partly initialised. */
static void end(struct leat_fs *fs)
{
	if (fs->loop != NULL) {
		loop_stop(fs->loop);
		loop_join(fs->loop);
		loop_destroy(fs->loop);
	}
	if (fs->transport != NULL)
		transport_destroy(fs->transport);
	if (fs->env != NULL)
		env_real_destroy(fs->env);
	fs->magic = 0;
	free(fs);
}

/* Starts the instance's thread, and creates its client there. */
static int begin(struct leat_fs *fs, const struct settings *s)
{
	struct loop_options lo = {.name = "leat", .spin_us = s->client.spin_us};
	struct env_real_options eo = {.n_workers = 1};
	struct api_call a = {.fn = create_fn, .in = s};
	struct loop *loop;

	TRY(env_real_create(&eo, &fs->env));
	TRY(transport_mux_create(s->cluster.transport, &fs->transport));
	TRY(loop_create(fs->env, &lo, &loop));
	if (loop_start_thread(loop) < 0) {
		loop_destroy(loop);
		return -LE_NOMEM;
	}
	fs->loop = loop;
	return (int)api_run(fs, &a);
}

/* Reports why there is no connection: to the caller's message buffer; without one, logs problems of
 * the settings. s: as far as the settings were read; begun: they were read completely. */
static void tell(const struct leat_options *opts, const struct settings *s, bool begun, int rc)
{
	char *to = OPT(opts, message);
	size_t size = to != NULL && OPT_HAS(opts, message_size) ? opts->message_size : 0;
	const char *refusal = s != NULL ? s->refusal : "";
	bool asked = begun && refusal[0] == '\0';

	if (size > 0)
		snprintf(to, size, "%s%.*s%s%s", asked ? "mds = " : "", asked ? 700 : 0,
			 asked ? s->cluster.mds : "", asked ? ": " : "",
			 refusal[0] != '\0' ? refusal : status_text(rc));
	else if (refusal[0] != '\0')
		log_error("libleat: %s", refusal);
}

int leat_open_fs(const char *conf, const struct leat_options *opts, struct leat_fs **ret_fs)
{
	struct settings *s = calloc(1, sizeof(*s));
	struct leat_fs *fs = calloc(1, sizeof(*fs));
	int rc = s != NULL && fs != NULL ? 0 : -LE_NOMEM;
	bool begun = false;

	if (rc >= 0)
		rc = load_settings(conf, opts, s);
	if (rc >= 0) {
		begun = true;
		fs->magic = LEAT_FS_MAGIC;
		take_cred(fs);
		rc = begin(fs, s);
		if (rc >= 0)
			*ret_fs = fs;
		else
			end(fs);
		fs = NULL;
	}
	free(fs);
	if (rc < 0)
		tell(opts, s, begun, rc);
	/* the settings contain the key */
	if (s != NULL)
		explicit_bzero(s, sizeof(*s));
	free(s);
	return rc;
}

void leat_close_fs(struct leat_fs *fs)
{
	struct api_call a = {.fn = destroy_fn};

	api_run(fs, &a);
	end(fs);
}

static int64_t statfs_fn(struct api_call *a)
{
	struct leat_statvfs *st = a->buf;
	struct ll_statfs ll;

	TRY(ll_statfs(a->fs->client, (struct ino){0}, &ll));
	*st = (struct leat_statvfs){ll.total, ll.free, ll.avail, ll.inodes, ll.inodes_free};
	return 0;
}

int leat_statvfs(struct leat_fs *fs, struct leat_statvfs *ret_st)
{
	struct api_call a = {.fn = statfs_fn, .buf = ret_st};

	return (int)api_run(fs, &a);
}

static int64_t stats_fn(struct api_call *a)
{
	ll_stats(a->fs->client, a->buf);
	return 0;
}

static json_t *stats_json(const struct ll_stats *stats)
{
	const struct ll_stats st = *stats;
	json_t *o = json_object();
	const struct {
		const char *name;
		uint64_t v;
	} values[] = {
		{"session", st.session},
		{"map_epoch", st.map_epoch},
		{"targets", st.n_targets},
		{"targets_up", st.n_targets_up},
		{"read_bytes", st.read_bytes},
		{"written_bytes", st.written_bytes},
		{"read_ops", st.read_ops},
		{"write_ops", st.write_ops},
		{"meta_ops", st.meta_ops},
		{"delegated_opens", st.delegated_opens},
		{"retries", st.retries},
		{"checksum_errors", st.checksum_errors},
		{"dirty_bytes", st.dirty_bytes},
		{"grant_bytes", st.grant_bytes},
		{"slots_total", st.slots_total},
		{"slots_free", st.slots_free},
		{"inodes", st.n_inodes},
		{"open_files", st.n_open},
	};

	for (size_t i = 0; o != NULL && i < ARRAY_SIZE(values); i++) {
		if (json_object_set_new(o, values[i].name, json_integer((json_int_t)values[i].v)) <
		    0) {
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

static int64_t net_fn(struct api_call *a)
{
	return (int64_t)ll_net(a->fs->client, 0, a->buf, NET_SIZE);
}

/* Returns the connections as JSON, as many as fit into NET_SIZE. */
static json_t *net_json(struct leat_fs *fs)
{
	char *text = malloc(NET_SIZE);
	struct api_call a = {.fn = net_fn, .buf = text};
	json_t *j = NULL;

	if (text != NULL) {
		int64_t len = api_run(fs, &a);
		if (len > 0)
			j = json_loadb(text, (size_t)len, 0, NULL);
	}
	free(text);
	return j != NULL ? j : json_null();
}

int leat_status_json(struct leat_fs *fs, char **ret_json)
{
	struct ll_stats st;
	struct api_call a = {.fn = stats_fn, .buf = &st};
	json_t *o;
	char *text;

	TRY((int)api_run(fs, &a));
	o = stats_json(&st);
	if (o == NULL || json_object_set_new(o, "net", net_json(fs)) < 0) {
		json_decref(o);
		return -LE_NOMEM;
	}
	text = json_dumps(o, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
	json_decref(o);
	if (text == NULL)
		return -LE_NOMEM;
	*ret_json = text;
	return 0;
}
