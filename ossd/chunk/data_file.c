#include "ossd/chunk/data_file.h"

#include <fcntl.h>

#include "common/base/log.h"
#include "ossd/chunk/extent_alloc.h"

int data_file_open(struct env *env, const char *path, uint64_t capacity, struct data_file *d)
{
	struct stat st;
	int rc;

	*d = (struct data_file){.capacity = capacity / UNIT_SIZE * UNIT_SIZE};
	fmutex_init(&d->growing);
	TRY(env_file_open(env, path, O_RDWR | O_DIRECT, 0600, &d->f));
	rc = env_file_stat(d->f, &st);
	if (rc < 0) {
		env_file_close(d->f);
		return rc;
	}
	d->size = (uint64_t)st.st_size / UNIT_SIZE * UNIT_SIZE;
	if (d->size > d->capacity)
		d->size = d->capacity;
	return 0;
}

void data_file_close(struct data_file *d)
{
	env_file_close(d->f);
	d->f = NULL;
}

/* fallocate where there is one; a longer file of holes elsewhere. */
static int extend(struct data_file *d, uint64_t to)
{
	int rc = env_file_fallocate(d->f, 0, d->size, to - d->size);

	if (rc == -LE_NOTSUP || rc == -LE_NOSYS || rc == -LE_INVAL)
		rc = env_file_truncate(d->f, to);
	return rc;
}

int data_file_grow(struct data_file *d, uint64_t seen_size, uint64_t step)
{
	int rc = 0;

	fmutex_lock(&d->growing);
	if (d->size == seen_size) {
		uint64_t left = d->capacity - d->size;
		uint64_t by = step < left ? step : left;

		rc = by ? extend(d, d->size + by) : -LE_NOSPC;
		if (rc == 0)
			d->size += by;
		else if (by)
			log_warn("data file cannot grow beyond %llu of %llu bytes: %s",
				 (unsigned long long)d->size, (unsigned long long)d->capacity,
				 status_text(rc));
	}
	fmutex_unlock(&d->growing);
	return rc;
}

int data_file_zero(struct data_file *d, const void *zeros, uint64_t len)
{
	uint64_t left;
	int rc = 0;

	fmutex_lock(&d->growing);
	left = d->capacity - d->size;
	if (len > left)
		len = left;
	if (len)
		rc = env_file_pwrite(d->f, zeros, len, d->size);
	if (rc == 0)
		d->size += len;
	fmutex_unlock(&d->growing);
	return rc;
}
