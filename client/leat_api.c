/*
 * libleat: instances, errors, status. The loop runs on a thread of the instance's own; the client
 * in it is made and destroyed by fibers like any other call.
 */
#include "client/leat_impl.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rpc/transport_mux.h"
#include "common/rt/cpus.h"

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

/* ---- configuration ---- */

struct settings {
	struct cluster_params cluster;
	struct client_params client;
	struct rpc_key key;
	const char *name;
};

/* A member of the caller's options, if the caller's version has it. */
#define OPT_HAS(opts, member)                                                                      \
	((opts) != NULL && (opts)->size >= offsetof(struct leat_options, member) +                 \
						   sizeof((opts)->member))
#define OPT(opts, member) (OPT_HAS(opts, member) ? (opts)->member : NULL)

static int load_settings(const char *conf, const struct leat_options *opts, struct settings *s)
{
	struct config_section sections[] = {
		{"cluster", cluster_param_table, n_cluster_params, &s->cluster},
		{"client", client_param_table, n_client_params, &s->client},
	};
	const char *mds = OPT(opts, mds), *key_file = OPT(opts, key_file);
	const char *const *params = OPT(opts, params);
	char err[512] = "";
	int rc = config_load(conf, sections, 2, err, sizeof(err));

	if (rc >= 0 && mds != NULL)
		rc = config_set(&sections[0], "mds", mds, err, sizeof(err));
	if (rc >= 0 && key_file != NULL)
		rc = config_set(&sections[0], "key_file", key_file, err, sizeof(err));
	for (; rc >= 0 && params != NULL && *params != NULL; params++) {
		const char *eq = strchr(*params, '=');
		char name[64];

		if (eq == NULL || (size_t)(eq - *params) >= sizeof(name)) {
			snprintf(err, sizeof(err), "not name=value: %s", *params);
			rc = -LE_CONFIG;
			break;
		}
		memcpy(name, *params, (size_t)(eq - *params));
		name[eq - *params] = '\0';
		rc = config_set(&sections[1], name, eq + 1, err, sizeof(err));
	}
	if (rc < 0) {
		log_error("libleat: %s", err[0] != '\0' ? err : status_text(rc));
		return rc;
	}
	s->name = OPT(opts, name);
	return rpc_key_load(s->cluster.key_file, &s->key);
}

/* The process's umask cannot be read but by setting it, which other threads would notice. */
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

/* ---- instances ---- */

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

/* Why there is no connection, and to whom. settings: as far as they have been read. */
static void tell(const struct leat_options *opts, const struct settings *s, int rc)
{
	char *to = OPT(opts, message);
	size_t size = to != NULL && OPT_HAS(opts, message_size) ? opts->message_size : 0;
	bool asked = s != NULL && s->cluster.mds[0] != '\0' && status_retry(rc) != RETRY_NEVER;

	if (size > 0)
		snprintf(to, size, "%s%.*s%s%s", asked ? "mds = " : "", asked ? 700 : 0,
			 asked ? s->cluster.mds : "", asked ? ": " : "", status_text(rc));
}

int leat_open_fs(const char *conf, const struct leat_options *opts, struct leat_fs **ret_fs)
{
	struct settings *s = calloc(1, sizeof(*s));
	struct leat_fs *fs = calloc(1, sizeof(*fs));
	int rc = s != NULL && fs != NULL ? 0 : -LE_NOMEM;

	if (rc >= 0)
		rc = load_settings(conf, opts, s);
	if (rc >= 0) {
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
		tell(opts, s, rc);
	/* It holds the key. */
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

/* ---- status ---- */

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

/* The connections, as many as there is room for. */
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
