/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delay with which a file is removed that a rename has replaced. The file stays as an orphan
 * for five seconds, even if no session has it open: a client that looked the name up before the
 * rename can still open the file (OPEN_ORPHAN), so that a name which always exists can always be
 * opened. If the ring is full the file is removed immediately. Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_ORPHAN_DELAY_H
#define LEAT_MDS_FILE_ORPHAN_DELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/proto/types.h"
#include "common/rt/fiber.h"

struct mds;
struct open_file;

#define ORPHAN_DELAY_MAX 16384u /* a power of two */

struct orphan_delay {
	struct {
		struct ino ino;
		uint64_t until_us;
	} ring[ORPHAN_DELAY_MAX];
	uint64_t first, next; /* positions, ever growing */
	struct waitq work;
};

/* Makes an empty ring. Does not yield. */
void orphan_delay_init(struct orphan_delay *l);
/* Delays the removal of the orphan. Returns false if the ring is full. Does not yield. */
bool orphan_delay_add(struct mds *m, struct ino ino);
/* True if a rename has taken the last name of the file away within the delay. Does not yield. */
bool orphan_delay_wanted(const struct open_file *f);
/* The body of the background fiber that removes the orphans in time. Returns when the server stops.
 * Yields. */
void orphan_delay_run(struct mds *m);

#endif
