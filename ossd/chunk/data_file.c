/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/data_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/checksum.h"
#include "common/base/log.h"
#include "ossd/chunk/extent_alloc.h"

#define LABEL_MAGIC   0x4c45415444415441ull /* "ATADTAEL" as bytes */
#define LABEL_VERSION 1u
#define LABEL_AREA    (DATA_LABEL_UNITS * UNIT_SIZE)

#define data_label_FIELDS(F) F(u64, magic) F(u32, version) F(uuid, uuid) F(u64, hash)
WIRE_STRUCT(data_label)
WIRE_DEFINE_MESSAGE(data_label)

/* ---- devices ---- */

static uint64_t label_hash(const struct data_label *l)
{
	return checksum64(&l->uuid, sizeof(l->uuid)) ^ l->version;
}

/* Reads the first MiB, page-aligned for direct I/O. The caller frees it. */
static int read_head(struct env_file *f, uint8_t **ret_head)
{
	uint8_t *head = aligned_alloc(UNIT_SIZE, LABEL_AREA);
	int rc;

	if (head == NULL)
		return -LE_NOMEM;
	rc = env_file_pread(f, head, LABEL_AREA, 0);
	if (rc < 0)
		free(head);
	else
		*ret_head = head;
	return rc;
}

/* Opens a block device exclusively. */
static int open_device(struct env *env, const char *device, struct env_file **ret_f,
		       uint64_t *ret_size)
{
	struct env_file *f;
	struct stat st;
	int rc;

	/* O_EXCL without O_CREAT is enforced by the block layer: fails if the device is mounted. */
	TRY(env_file_open(env, device, O_RDWR | O_DIRECT | O_EXCL, 0, &f));
	rc = env_file_stat(f, &st);
	if (rc == 0 && !S_ISBLK(st.st_mode))
		rc = -LE_INVAL;
	if (rc < 0) {
		env_file_close(f);
		return rc;
	}
	*ret_f = f;
	*ret_size = (uint64_t)st.st_size / UNIT_SIZE * UNIT_SIZE;
	return 0;
}

static bool all_zero(const uint8_t *p, size_t len)
{
	return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

int data_device_examine(struct env *env, const char *device, bool force, uint64_t *ret_size)
{
	struct env_file *f;
	uint64_t size;
	uint8_t *head;
	int rc;

	TRY(open_device(env, device, &f, &size));
	rc = size > LABEL_AREA ? read_head(f, &head) : -LE_NOSPC;
	if (rc == 0) {
		if (!force && !all_zero(head, LABEL_AREA)) {
			log_error("%s: its first MiB is not empty: if nothing on it is needed, "
				  "format --force", device);
			rc = -LE_BUSY;
		}
		free(head);
	}
	env_file_close(f);
	if (rc == 0)
		*ret_size = size;
	return rc;
}

int data_device_label(struct env *env, const char *device, const struct uuid *uuid)
{
	struct data_label l = {.magic = LABEL_MAGIC, .version = LABEL_VERSION, .uuid = *uuid};
	uint8_t *head = aligned_alloc(UNIT_SIZE, LABEL_AREA);
	struct env_file *f = NULL;
	struct wire_w w;
	uint64_t size;
	int rc = head ? open_device(env, device, &f, &size) : -LE_NOMEM;

	if (rc < 0)
		goto out;
	l.hash = label_hash(&l);
	memset(head, 0, LABEL_AREA);
	wire_w_init(&w, head, UNIT_SIZE);
	wire_put_data_label(&w, &l);
	rc = env_file_pwrite(f, head, LABEL_AREA, 0);
	if (rc == 0)
		rc = env_file_datasync(f);
out:
	env_file_close(f);
	free(head);
	return rc;
}

static int check_label(struct env_file *f, const char *path, const struct uuid *uuid)
{
	struct data_label l = {0};
	struct wire_r r;
	uint8_t *head;

	TRY(read_head(f, &head));
	wire_r_init(&r, head, UNIT_SIZE);
	wire_get_data_label(&r, &l);
	free(head);
	if (r.status == 0 && l.magic == LABEL_MAGIC && l.version == LABEL_VERSION &&
	    l.hash == label_hash(&l) && uuid_equal(&l.uuid, uuid))
		return 0;
	log_error("%s: the device does not carry the label of this store: let the link name the "
		  "right one (/dev/disk/by-id/...)", path);
	return -LE_STORE_FORMAT;
}

/* ---- the data area ---- */

int data_file_open(struct env *env, const char *path, uint64_t capacity, const struct uuid *uuid,
		   struct data_file *d)
{
	struct stat st;
	int rc;

	*d = (struct data_file){.capacity = capacity / UNIT_SIZE * UNIT_SIZE};
	fmutex_init(&d->growing);
	TRY(env_file_open(env, path, O_RDWR | O_DIRECT, 0600, &d->f));
	rc = env_file_stat(d->f, &st);
	d->device = rc == 0 && S_ISBLK(st.st_mode);
	if (d->device) {
		uint64_t size;

		env_file_close(d->f);
		d->f = NULL;
		rc = open_device(env, path, &d->f, &size);
		if (rc == 0)
			rc = check_label(d->f, path, uuid);
	}
	if (rc < 0) {
		env_file_close(d->f);
		d->f = NULL;
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

/* Uses fallocate if the file system has it, else extends the file by a hole. */
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
