#include "client/stage/vol.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rt/env.h"
#include "common/rt/loop.h"

#define PATH_SIZE 4096u

void vol_destroy(struct vol *v)
{
	if (v)
		v->ops->destroy(v);
}

int vol_pread_all(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	int64_t n = vol_pread(f, buf, len, off);
	if (n < 0)
		return (int)n;
	return (uint64_t)n == len ? 0 : -LE_NODATA;
}

int vol_read_file(struct vol *v, const char *path, uint64_t max, char **ret_data, size_t *ret_len)
{
	struct vol_stat st;
	struct vol_file *f;
	TRY(vol_stat(v, path, &st));
	if (st.size > max)
		return -LE_FBIG;
	char *data = malloc(st.size + 1);
	if (!data)
		return -LE_NOMEM;
	int rc = vol_open(v, path, &f);
	if (rc == 0) {
		rc = vol_pread_all(f, data, st.size, 0);
		vol_close(f);
	}
	if (rc < 0) {
		free(data);
		return rc;
	}
	data[st.size] = 0;
	*ret_data = data;
	*ret_len = st.size;
	return 0;
}

static int dir_of(const char *path, char ret_dir[PATH_SIZE])
{
	if (snprintf(ret_dir, PATH_SIZE, "%s", path) >= (int)PATH_SIZE)
		return -LE_NAMETOOLONG;
	char *slash = strrchr(ret_dir, '/');
	if (!slash)
		return -LE_INVAL;
	slash[slash == ret_dir] = 0;
	return 0;
}

static int write_tmp(struct vol *v, const char *tmp, const void *data, size_t len)
{
	struct vol_file *f;
	TRY(v->ops->open(v, tmp, O_WRONLY | O_CREAT | O_TRUNC, 0644, &f));
	int rc = v->ops->pwrite(f, data, len, 0);
	if (rc == 0)
		rc = v->ops->sync(f);
	vol_close(f);
	return rc;
}

int vol_write_file(struct vol *v, const char *path, const void *data, size_t len)
{
	char tmp[PATH_SIZE], dir[PATH_SIZE];
	if (snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= (int)sizeof(tmp))
		return -LE_NAMETOOLONG;
	TRY(dir_of(path, dir));
	int rc = write_tmp(v, tmp, data, len);
	if (rc == 0)
		rc = v->ops->rename(v, tmp, path);
	if (rc == 0)
		rc = v->ops->syncdir(v, dir);
	return rc;
}

int vol_write_new(struct vol *v, const char *path, const void *data, size_t len)
{
	char tmp[PATH_SIZE], dir[PATH_SIZE];
	TRY(dir_of(path, dir));
	TRY(vol_tmp_name(dir, tmp));
	int rc = write_tmp(v, tmp, data, len);
	if (rc == 0)
		rc = v->ops->rename_new(v, tmp, path);
	if (rc == 0)
		return v->ops->syncdir(v, dir);
	int gone = v->ops->unlink(v, tmp);
	(void)gone;
	return rc;
}

int vol_tmp_name(const char *dir, char ret_path[4096])
{
	int n = snprintf(ret_path, PATH_SIZE, "%s/.new-%016llx", dir,
			 (unsigned long long)env_random_u64(loop_env(loop_self())));
	return n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int vol_mkdirs(struct vol *v, const char *path)
{
	char part[PATH_SIZE];
	struct vol_stat st;
	size_t len = strlen(path);
	if (len >= sizeof(part))
		return -LE_NAMETOOLONG;
	if (vol_stat(v, path, &st) == 0)
		return S_ISDIR(st.mode) ? 0 : -LE_NOTDIR;
	memcpy(part, path, len + 1);
	for (size_t i = 1; i <= len; i++) {
		if (part[i] != '/' && part[i] != 0)
			continue;
		char c = part[i];
		part[i] = 0;
		int rc = v->ops->mkdir(v, part, 0755);
		if (rc < 0 && rc != -LE_EXIST && c == 0)
			return rc;
		part[i] = c;
	}
	return 0;
}
