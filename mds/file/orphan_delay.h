/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A name that always exists can always be opened, although opening it takes a lookup and then an
 * open by inode number, and renames may replace the file in between. Three parts make it so:
 *
 * 1. mds_open refuses a file without a name with -LE_STALE (mds/ops/open.c), even while another
 *    session has it open. A program that is late to run again counts the time of a name in the
 *    kernel's cache too late, and would open the replaced file by it after the rename has returned.
 *    The kernel answers ESTALE with a new lookup and a second open.
 * 2. An open that certainly belongs to a lookup has OPEN_ORPHAN and is not refused: the open counts
 *    as if it had come before the rename. The library's clients set the flag on every open by name;
 *    the mount sets it on the kernel's second open (fuse/ops/estale_retry.h). So two renames within
 *    one open(2) do not make it fail.
 * 3. A file that a rename has replaced stays as an orphan for five seconds, even if no session has
 *    it open, or if the last session closes it: else the open of part 2 would find nothing. If the
 *    ring is full the file is removed immediately.
 *
 * Each part is needed. On two processors under a load of 16, one mount renamed over a name some 20
 * times a second while four processes opened it on another mount: ESTALE reached the programs 35
 * times in 2,200 opens without the mount's share in part 2, 19 times in 4,000 without part 3, and
 * 25 times in 2,100 if only files that were not open at the rename stayed; never with all parts.
 * Without part 1 a program of low priority read the replaced file after one of 397 renames; with it
 * after none of 404.
 *
 * OPEN_ORPHAN also reports, renews and reclaims opens that a client has already (mds_proto.h).
 * Owned by the loop.
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
/* Called when no session has the orphan open any more. If a rename has taken its last name within
 * the delay, delays its removal and returns true. Does not yield. */
bool orphan_delay_closed(struct mds *m, const struct open_file *f);
/* The body of the background fiber that removes the orphans in time. Returns when the server stops.
 * Yields. */
void orphan_delay_run(struct mds *m);

#endif
