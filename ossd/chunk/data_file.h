/*
 * The data area as a file. It grows towards its capacity: zeros are written ahead of the
 * allocator while nobody writes (so that extents are written ones: a sync is then twice as
 * fast), and it is extended by fallocate when writers are faster. Owned by the store's loop.
 */
#ifndef LEAT_OSSD_DATA_FILE_H
#define LEAT_OSSD_DATA_FILE_H

#include "common/rt/env.h"

struct data_file {
	struct env_file *f;
	struct fmutex growing;
	uint64_t size, capacity;
};

/* Yields, like all that follow. */
int data_file_open(struct env *env, const char *path, uint64_t capacity,
		   struct data_file *d) CHECK_RESULT;
void data_file_close(struct data_file *d);
/* Extends the file by about step bytes unless somebody else has in the meantime (size is no longer
 * seen_size). When the file system is full the capacity becomes what there is: -LE_NOSPC. */
int data_file_grow(struct data_file *d, uint64_t seen_size, uint64_t step) CHECK_RESULT;
/* Extends it by len zeros from the page-aligned buffer. */
int data_file_zero(struct data_file *d, const void *zeros, uint64_t len) CHECK_RESULT;

#endif
