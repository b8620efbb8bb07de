/*
 * Open files of a data set on one loop: each is opened once, kept while there is room, and shared
 * by the fibers that read it. Owned by its loop; everything yields.
 */
#ifndef LEAT_LOADER_READER_H
#define LEAT_LOADER_READER_H

#include "client/stage/vol.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"

#define READER_FILES_MAX 256u /* idle ones beyond those in use */

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
	uint32_t index; /* in the sample index */
	uint32_t refs;
	bool opening, dropped;
	int rc;
	struct waitq opened;
	struct vol_file *file;
};

void reader_init(struct reader *r, struct leat_dataset *ds, struct loop *loop);
/* In a fiber of the loop; nothing may be in use. */
void reader_fini(struct reader *r);
int reader_get(struct reader *r, uint32_t index, struct reader_file **ret_file) CHECK_RESULT;
void reader_put(struct reader *r, struct reader_file *f);
/* Whoever gets it next opens it again, whoever has it keeps it. */
void reader_drop(struct reader *r, uint32_t index);

#endif
