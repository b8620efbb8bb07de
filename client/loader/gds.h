/*
 * cuFile (GPUDirect Storage), where it is: files of a local file system read straight into the
 * memory of a GPU. Looked for by name when it is wanted (libcufile.so.0), so nothing of it is
 * needed to build or to run Leat. Names and signatures are those of NVIDIA's cuFile API reference;
 * we declare what we use.
 *
 * And the choice between that and the way through host memory, by what both have been measured to
 * take. A struct gds belongs to one loader; any of its loops and worker threads may call.
 */
#ifndef LEAT_LOADER_GDS_H
#define LEAT_LOADER_GDS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stage/detail.h"

struct gds;

/* direct: enum leat_direct. *ret_gds is NULL where nothing is to be done. -LE_NODEV: it is required
 * and not there; says so in d. */
int gds_open(int direct, struct gds **ret_gds, struct detail *d) CHECK_RESULT;
/* After the last read; NULL is fine. */
void gds_close(struct gds *g);

/* Device memory that is read into often. What cannot be registered is read into all the same. With
 * the device's context. */
void gds_register(struct gds *g, uint64_t mem, uint64_t len);
void gds_unregister(struct gds *g, uint64_t mem);

/* Bytes of a file, and where they go: mem is what was registered, at an offset in it. */
struct gds_range {
	const char *path; /* absolute */
	uint32_t file;    /* a number for it, always the same one */
	uint64_t off, len;
	uint64_t mem, at;
};
/* All of it. With the device's context; blocks. -LE_IO, -LE_NODATA (shorter), of opening. */
int gds_read(struct gds *g, const struct gds_range *r) CHECK_RESULT;

enum gds_way {
	GDS_BOUNCE, /* through host memory */
	GDS_DIRECT
};
/* Which way a batch is to go; *ret_timed: its time shall be told. */
enum gds_way gds_choose(struct gds *g, bool *ret_timed);
/* So long it took until all of it was on the device. */
void gds_took(struct gds *g, enum gds_way way, uint64_t us, uint64_t bytes);
/* A batch could not be read directly: a few of them and it is not tried any more. */
void gds_failed(struct gds *g, int rc);

struct gds_stats {
	uint64_t direct_mib_s, bounce_mib_s; /* as last measured, 0: not yet */
	uint64_t failed;
};
void gds_stats(struct gds *g, struct gds_stats *ret_stats);

#endif
