/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFile (GPUDirect Storage), if there is one: reads files of a local file system straight into the
 * memory of a GPU. It is loaded by name when it is needed (libcufile.so.0), so Leat is built and
 * runs without it. Names and signatures are those of NVIDIA's cuFile API reference; gds.c declares
 * those that are used.
 *
 * It also chooses between direct reads and reads through host memory, by measuring both. A struct
 * gds belongs to one loader; any of its loops and worker threads may call.
 */
#ifndef LEAT_CLIENT_LOADER_GPU_GDS_H
#define LEAT_CLIENT_LOADER_GPU_GDS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/dataset/error_detail.h"

struct gds;

/* direct: enum leat_direct. *ret_gds is NULL if cuFile is not to be used. -LE_NODEV, with d:
 * cuFile is required and not available. */
int gds_open(int direct, struct gds **ret_gds, struct detail *d) CHECK_RESULT;
/* no read is in flight; NULL is fine */
void gds_close(struct gds *g);

/* Registers device memory that is read into often. Reads into memory that cannot be registered
 * work too. With the device's context. */
void gds_register(struct gds *g, uint64_t mem, uint64_t len);
void gds_unregister(struct gds *g, uint64_t mem);

/* Bytes of a file and their destination: offset `at` of the registered memory mem. */
struct gds_range {
	const char *path; /* absolute */
	uint32_t file;    /* identifies the file */
	uint64_t off, len;
	uint64_t mem, at;
};
/* Reads the whole range. With the device's context. Blocks. -LE_IO, -LE_NODATA (the file is
 * shorter), or the status of opening it. */
int gds_read(struct gds *g, const struct gds_range *r) CHECK_RESULT;

enum gds_way {
	GDS_BOUNCE, /* through host memory */
	GDS_DIRECT
};
/* Chooses the way for a batch. *ret_timed: the caller must measure it and call gds_took. */
enum gds_way gds_choose(struct gds *g, bool *ret_timed);
/* Reports the time until all bytes of a batch were on the device. */
void gds_took(struct gds *g, enum gds_way way, uint64_t us, uint64_t bytes);
/* Reports that a batch could not be read directly. After FAILED_MAX such batches in a row,
 * direct reads are switched off. */
void gds_failed(struct gds *g, int rc);

struct gds_stats {
	uint64_t direct_mib_s, bounce_mib_s; /* last measured; 0: none */
	uint64_t failed;
};
void gds_stats(struct gds *g, struct gds_stats *ret_stats);

#endif
