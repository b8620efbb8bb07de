/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files of a data set on one loop. Each file is opened once, shared by the fibers that read
 * it, and stays open until more than READER_FILES_MAX are idle. Owned by its loop; everything
 * yields.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_READER_H
#define LEAT_CLIENT_LOADER_SOURCE_READER_H

#include "client/dataset/vol.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"

#define READER_FILES_MAX 256u /* idle files that stay open */

struct leat_dataset;

struct reader {
	struct leat_dataset *ds;
	struct loop *loop;
	struct hmap files;
	struct list idle; /* least recently used first */
	uint32_t n;
};

struct reader_file {
	struct hmap_node node;
	struct list link;
	uint32_t index; /* number in the sample index */
	uint32_t refs;
	bool opening, dropped;
	int rc;
	struct waitq opened;
	struct vol_file *file;
};

/* Makes a reader without open files. */
void reader_init(struct reader *r, struct leat_dataset *ds, struct loop *loop);
/* Closes all files; none may be in use. In a fiber of the loop. Yields. */
void reader_fini(struct reader *r);
/* Returns the file with this number in the sample index, and opens it if necessary. reader_put
 * ends the use. Yields. */
int reader_get(struct reader *r, uint32_t index, struct reader_file **ret_file) CHECK_RESULT;
void reader_put(struct reader *r, struct reader_file *f);
/* Makes the next reader_get open the file again; present users keep the old one. */
void reader_drop(struct reader *r, uint32_t index);

#endif
