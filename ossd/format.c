/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes an empty store: data_dir/data (an empty file that grows, or a symbolic link to a labelled
 * device) and data_dir/index with the super row. The super row is written last: a folder without
 * it is not a store and can be formatted again.
 */
#include "ossd/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/log.h"
#include "ossd/chunk/chunk_store.h"

#define SIZE_DEFAULT (1ULL << 30)
#define SIZE_MIN     (1ULL << 20)
#define SIZE_MAX_    (1ULL << 44) /* unit numbers have 32 bits */

static uint64_t choose_size(const struct ossd_params *p)
{
	struct statvfs v;
	bool known = statvfs(p->data_dir, &v) == 0;
	uint64_t space = known ? (uint64_t)v.f_bavail * v.f_frsize / 10 * 9 : SIZE_DEFAULT;
	uint64_t size = p->data_size ? p->data_size : space;

	if (known && size > space)
		log_warn("%s: data_size leaves no room for the index: 90 %% of what is free "
			 "is %llu MiB", p->data_dir, (unsigned long long)(space >> 20));
	if (size > SIZE_MAX_)
		size = SIZE_MAX_;
	return size / UNIT_SIZE * UNIT_SIZE;
}

static int make_data_file(struct env *env, const struct ossd_params *p)
{
	char path[STORE_PATH_MAX];
	struct env_file *f;
	int rc;

	snprintf(path, sizeof(path), "%s/data", p->data_dir);
	TRY(env_file_open(env, path, O_RDWR | O_CREAT, 0600, &f));
	rc = env_file_truncate(f, 0);
	if (rc == 0)
		rc = env_file_datasync(f);
	env_file_close(f);
	return rc;
}

/* Makes data_dir/data a link to the device. The label is written first, so that a link never leads
 * to a device without one. */
static int make_data_link(struct env *env, const struct ossd_params *p, const struct uuid *uuid)
{
	char path[STORE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/data", p->data_dir);
	TRY(data_device_label(env, p->data_device, uuid));
	if (unlink(path) < 0 && errno != ENOENT)
		return status_from_errno(errno);
	return symlink(p->data_device, path) < 0 ? status_from_errno(errno) : 0;
}

static int put_super(struct kv *kv, const struct store_super *super)
{
	struct kv_batch *b = kv_batch_create();
	uint8_t buf[SUPER_MAX], zero[8] = {0};
	struct wire_w w;
	int rc;

	if (!b)
		return -LE_NOMEM;
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_store_super(&w, super);
	kv_batch_put(b, SUPER_KEY, SUPER_KEY_SIZE, buf, w.len);
	kv_batch_put(b, COMMITS_KEY, COMMITS_KEY_SIZE, zero, sizeof(zero));
	rc = kv_commit(kv, b, true);
	kv_batch_destroy(b);
	return rc;
}

static int make_index(struct env *env, const struct ossd_params *p, uint64_t capacity)
{
	struct store_super super = {.format = STORE_FORMAT, .capacity = capacity};
	struct kv_options ko = {.create = true};
	struct kv_value v;
	char path[STORE_PATH_MAX];
	struct kv *kv;
	int rc;

	snprintf(path, sizeof(path), "%s/index", p->data_dir);
	env_random(env, &super.uuid, sizeof(super.uuid));
	TRY(kv_open(env, path, &ko, &kv));
	rc = kv_get(kv, SUPER_KEY, SUPER_KEY_SIZE, &v);
	if (rc == 0) {
		kv_value_fini(&v);
		rc = -LE_EXIST;
	} else if (rc == -LE_NOENT) {
		rc = p->data_device[0] ? make_data_link(env, p, &super.uuid)
				       : make_data_file(env, p);
		if (rc == 0)
			rc = put_super(kv, &super);
	}
	kv_close(kv);
	return rc;
}

/* Syncs the names of the folder and of those parents that may be new. */
static int sync_names(struct env *env, const char *dir)
{
	char path[CONFIG_STR_MAX];

	TRY(env_syncdir(env, dir));
	snprintf(path, sizeof(path), "%s", dir);
	for (char *slash = strrchr(path, '/'); slash; slash = strrchr(path, '/')) {
		int rc;

		*slash = 0;
		rc = env_syncdir(env, path[0] ? path : "/");
		if (rc < 0 && rc != -LE_ACCES)
			return rc;
	}
	return dir[0] == '/' ? 0 : env_syncdir(env, ".");
}

static int device_size(struct env *env, const struct ossd_params *p, bool force,
		       uint64_t *ret_size)
{
	uint64_t size;

	if (p->data_device[0] != '/') {
		log_error("data_device %s: give the whole path", p->data_device);
		return -LE_INVAL;
	}
	TRY(data_device_examine(env, p->data_device, force, &size));
	*ret_size = p->data_size && p->data_size < size ? p->data_size : size;
	if (*ret_size > SIZE_MAX_)
		*ret_size = SIZE_MAX_;
	return 0;
}

int ossd_format(struct env *env, const struct ossd_params *p, bool force)
{
	uint64_t capacity;

	TRY(env_mkdirs(env, p->data_dir, 0700));
	if (p->data_device[0])
		TRY(device_size(env, p, force, &capacity));
	else
		capacity = choose_size(p);
	if (capacity < SIZE_MIN) {
		log_error("%s: no room for a store (%llu bytes)", p->data_dir,
			  (unsigned long long)capacity);
		return -LE_NOSPC;
	}
	TRY(make_index(env, p, capacity));
	TRY(sync_names(env, p->data_dir));
	log_info("%s: a store of %llu MiB", p->data_dir, (unsigned long long)(capacity >> 20));
	return 0;
}
