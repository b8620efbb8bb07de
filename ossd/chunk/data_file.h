/*
 * The data area: data_dir/data, a file, or a symbolic link to a block device.
 *
 * A file grows towards its capacity: zeros are written ahead of the allocator while nobody
 * writes (so that extents are written ones: a sync is then twice as fast), and it is extended by
 * fallocate when writers are faster. A device has its size from the start and begins with a label
 * (one unit: magic, version, uuid of the store, xxh3), so that an index never meets another
 * store's data, also when device names have changed. Owned by the store's loop.
 */
#ifndef LEAT_OSSD_DATA_FILE_H
#define LEAT_OSSD_DATA_FILE_H

#include "common/proto/wire.h"
#include "common/rt/env.h"

/* Units at the beginning of a device that hold no blocks: 1 MiB, as partitions are aligned. */
#define DATA_LABEL_UNITS 256u

struct data_file {
	struct env_file *f;
	struct fmutex growing;
	uint64_t size, capacity;
	bool device;
};

/* Yields, like all that follow. uuid: of the store, compared with a device's label:
 * -LE_STORE_FORMAT. A device is opened exclusively: -LE_BUSY when it is mounted or in use. */
int data_file_open(struct env *env, const char *path, uint64_t capacity, const struct uuid *uuid,
		   struct data_file *d) CHECK_RESULT;
void data_file_close(struct data_file *d);
/* Extends the file by about step bytes unless somebody else has in the meantime (size is no longer
 * seen_size). When the file system is full the capacity becomes what there is: -LE_NOSPC. */
int data_file_grow(struct data_file *d, uint64_t seen_size, uint64_t step) CHECK_RESULT;
/* Extends it by len zeros from the page-aligned buffer. */
int data_file_zero(struct data_file *d, const void *zeros, uint64_t len) CHECK_RESULT;

/* Size of a device that may be taken for a store: -LE_BUSY when it is in use, or,
 * with a log line, when its first MiB is not empty and force is not set; -LE_INVAL: no block
 * device. */
int data_device_examine(struct env *env, const char *device, bool force,
			uint64_t *ret_size) CHECK_RESULT;
/* Makes it the store's: label, durable. */
int data_device_label(struct env *env, const char *device, const struct uuid *uuid) CHECK_RESULT;

#endif
