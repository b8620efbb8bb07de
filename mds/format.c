/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/format.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "mds/store/store.h"

/* Skipped after a restore: more than can have been given out since any backup. */
#define RESTORE_INODES       (1ull << 40)
#define RESTORE_INCARNATIONS (1ull << 20)

static void store_path(const struct mds_params *p, char ret_path[CONFIG_STR_MAX + 16])
{
	snprintf(ret_path, CONFIG_STR_MAX + 16, "%s/store", p->data_dir);
}

#define BATCH_PUT(b, k, name, rec)                                                                 \
	do {                                                                                       \
		struct key k_ = (k);                                                               \
		uint8_t buf_[RECORD_MAX];                                                          \
		struct wire_w w_;                                                                  \
		wire_w_init(&w_, buf_, sizeof(buf_));                                              \
		wire_put_##name(&w_, rec);                                                         \
		ASSERT(w_.status == 0);                                                            \
		kv_batch_put(b, k_.b, k_.len, buf_, w_.len);                                       \
	} while (0)

static void make_uuid(struct env *env, const struct uuid *cluster, struct uuid *ret)
{
	if (cluster != NULL && !uuid_is_zero(cluster)) {
		*ret = *cluster;
		return;
	}
	env_random(env, ret->b, sizeof(ret->b));
	ret->b[6] = (uint8_t)((ret->b[6] & 0x0f) | 0x40);
	ret->b[8] = (uint8_t)((ret->b[8] & 0x3f) | 0x80);
}

static void put_first(struct env *env, const struct mds_params *p, struct kv_batch *b,
		      const struct uuid *cluster)
{
	int64_t now = env_wall_ns(env);
	struct cluster_rec c = {
		.format = STORE_FORMAT, .dentry_seed = env_random_u64(env), .map_epoch = 1};
	struct counters_rec n = {.next_ino = 2, .next_session = 16, .n_inodes = 1};
	struct inode_rec root = {
		.attr = {.ino = LEAT_ROOT_INO,
			 .mode = S_IFDIR | 0755,
			 .nlink = 2,
			 .size = 4096,
			 .blocks = DIR_BLOCKS,
			 .atime_ns = now,
			 .mtime_ns = now,
			 .ctime_ns = now,
			 .btime_ns = now,
			 .change = 1,
			 .layout = {.flags = LAYOUT_F_INHERITED}},
		.parent = LEAT_ROOT_INO,
	};

	if (p->default_replicas > 1)
		root.attr.layout = (struct layout){.replicas = (uint8_t)p->default_replicas};
	make_uuid(env, cluster, &c.cluster);
	BATCH_PUT(b, key_cluster('m', 0), cluster_rec, &c);
	BATCH_PUT(b, key_cluster('n', 0), counters_rec, &n);
	BATCH_PUT(b, key_inode(LEAT_ROOT_INO), inode_rec, &root);
}

static int is_empty(struct kv *kv)
{
	struct key k = key_cluster('m', 0);
	struct kv_value v;
	int rc = kv_get(kv, k.b, k.len, &v);

	if (rc == 0)
		kv_value_fini(&v);
	return rc == 0 ? -LE_EXIST : rc == -LE_NOENT ? 0 : rc;
}

int mds_format(struct env *env, const struct mds_params *p, const struct uuid *cluster)
{
	struct kv_options ko = {.create = true};
	char path[CONFIG_STR_MAX + 16];
	struct kv_batch *b;
	struct kv *kv;
	int rc;

	store_path(p, path);
	TRY(env_mkdirs(env, p->data_dir, 0700));
	TRY(kv_open(env, path, &ko, &kv));
	b = kv_batch_create();
	rc = b == NULL ? -LE_NOMEM : is_empty(kv);
	if (rc == 0) {
		put_first(env, p, b, cluster);
		rc = kv_commit(kv, b, true);
	}
	if (b != NULL)
		kv_batch_destroy(b);
	kv_close(kv);
	return rc == 0 ? env_syncdir(env, p->data_dir) : rc;
}

int mds_backup(struct env *env, const struct mds_params *p, const char *path)
{
	struct kv_options ko = {0};
	char from[CONFIG_STR_MAX + 16];
	struct kv *kv;
	int rc;

	store_path(p, from);
	TRY(kv_open(env, from, &ko, &kv));
	rc = kv_checkpoint(kv, path);
	kv_close(kv);
	return rc;
}

/* ---- restore ---- */

struct copy {
	struct env *env;
	const char *from, *to;
	int status;
	char names[4096][64];
	uint32_t n;
};

static int note_name(void *arg, const struct env_dirent *e)
{
	struct copy *c = arg;

	if (e->is_dir || c->n == 4096 || strlen(e->name) >= sizeof(c->names[0])) {
		c->status = -LE_STORE_FORMAT;
		return -LE_STORE_FORMAT;
	}
	snprintf(c->names[c->n++], sizeof(c->names[0]), "%s", e->name);
	return 0;
}

static int copy_file(struct copy *c, const char *name)
{
	const size_t size = 1 << 20;
	char from[2 * CONFIG_STR_MAX], to[2 * CONFIG_STR_MAX];
	struct env_file *in = NULL, *out = NULL;
	uint64_t off = 0;
	int64_t n = 0;
	char *buf = malloc(size);
	int rc = buf == NULL ? -LE_NOMEM : 0;

	snprintf(from, sizeof(from), "%s/%s", c->from, name);
	snprintf(to, sizeof(to), "%s/%s", c->to, name);
	if (rc == 0)
		rc = env_file_open(c->env, from, 0 /* O_RDONLY */, 0, &in);
	if (rc == 0)
		rc = env_file_open(c->env, to, 0101 /* O_WRONLY | O_CREAT */, 0600, &out);
	while (rc == 0 && (n = env_file_pread_some(in, buf, size, off)) > 0) {
		rc = env_file_pwrite(out, buf, (size_t)n, off);
		off += (uint64_t)n;
	}
	if (rc == 0 && n < 0)
		rc = (int)n;
	if (rc == 0)
		rc = env_file_datasync(out);
	env_file_close(in);
	env_file_close(out);
	free(buf);
	return rc;
}

static int copy_folder(struct env *env, const char *from, const char *to)
{
	struct copy *c = calloc(1, sizeof(*c));
	int rc;

	if (c == NULL)
		return -LE_NOMEM;
	c->env = env;
	c->from = from;
	c->to = to;
	rc = env_list(env, from, note_name, c);
	if (rc == 0)
		rc = env_mkdirs(env, to, 0700);
	for (uint32_t i = 0; rc == 0 && i < c->n; i++)
		rc = copy_file(c, c->names[i]);
	if (rc == 0)
		rc = env_syncdir(env, to);
	free(c);
	return rc;
}

static int skip_numbers(struct env *env, const char *path)
{
	struct mds_metrics mm = {0};
	struct store_options so = {.path = path, .sync = true, .metrics = &mm};
	struct kv_batch *b = kv_batch_create();
	struct store s;
	int rc;

	if (b == NULL)
		return -LE_NOMEM;
	rc = store_open(env, &so, &s);
	if (rc == 0) {
		s.counters.next_ino += RESTORE_INODES;
		s.counters.next_session += RESTORE_INODES;
		s.cluster.incarnation += RESTORE_INCARNATIONS;
		s.cluster.map_epoch += 1u << 20;
		BATCH_PUT(b, key_cluster('m', 0), cluster_rec, &s.cluster);
		BATCH_PUT(b, key_cluster('n', 0), counters_rec, &s.counters);
		rc = kv_commit(s.kv, b, true);
		store_close(&s);
	}
	kv_batch_destroy(b);
	return rc;
}

int mds_restore(struct env *env, const struct mds_params *p, const char *from)
{
	char path[CONFIG_STR_MAX + 16], part[CONFIG_STR_MAX + 32];
	struct stat st;

	store_path(p, path);
	if (env_stat(env, path, &st) == 0)
		return -LE_EXIST;
	snprintf(part, sizeof(part), "%s.part", path);
	if (env_stat(env, part, &st) == 0) {
		log_error("%s is left over from a restore that was cut short: remove it first",
			  part);
		return -LE_EXIST;
	}
	TRY(env_mkdirs(env, p->data_dir, 0700));
	TRY(copy_folder(env, from, part));
	TRY(skip_numbers(env, part));
	TRY(env_rename(env, part, path));
	return env_syncdir(env, p->data_dir);
}
