/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data area: data_dir/data, a file, or a symbolic link to a block device.
 *
 * A file grows towards its capacity. While there are no writes, zeros are written ahead of the
 * allocator: syncs of already written extents are twice as fast. When writers are faster, the file
 * is extended by fallocate. A device has its size from the start. It begins with a label (magic,
 * version, uuid of the store, xxh3), so that an index is never used with another store's data,
 * even if device names change. Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_DATA_FILE_H
#define LEAT_OSSD_CHUNK_DATA_FILE_H

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

/* Opens the data area. uuid: of the store; -LE_STORE_FORMAT if a device's label has another one. A
 * device is opened exclusively: -LE_BUSY if it is mounted or in use. Yields, like the functions
 * below. */
int data_file_open(struct env *env, const char *path, uint64_t capacity, const struct uuid *uuid,
		   struct data_file *d) CHECK_RESULT;
void data_file_close(struct data_file *d);
/* Extends the file by about step bytes, unless another fiber has done so (size is no longer
 * seen_size). Returns 0, -LE_NOSPC (the capacity is reached, or the file system is full) or the
 * error. */
int data_file_grow(struct data_file *d, uint64_t seen_size, uint64_t step) CHECK_RESULT;
/* Extends it by len zeros from the page-aligned buffer. */
int data_file_zero(struct data_file *d, const void *zeros, uint64_t len) CHECK_RESULT;

/* Returns the size of a device that may become a store. -LE_BUSY: it is in use, or its first MiB
 * is not empty and force is not set (logged). -LE_INVAL: not a block device. */
int data_device_examine(struct env *env, const char *device, bool force,
			uint64_t *ret_size) CHECK_RESULT;
/* Writes the label of the store, durably. */
int data_device_label(struct env *env, const char *device, const struct uuid *uuid) CHECK_RESULT;

#endif
