/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part files. A block that is all zeros by its checksum is a hole: it is neither allocated nor
 * written, and other data in its place is punched out. A checkpoint, at least once a second, syncs
 * all part files with new chunks, then sets their bits and syncs the bitmap, then gives the
 * finished files their names.
 */
#ifndef LEAT_CLIENT_STAGE_FETCH_FETCH_PART_H
#define LEAT_CLIENT_STAGE_FETCH_FETCH_PART_H

#include "client/stage/fetch/fetch_impl.h"

/* Examines the existing data of a file. A complete file without its name gets it at the next
 * checkpoint. Failures end the run. Yields. */
void part_settle(struct fetch *ft, uint32_t file);
/* Opens the file's part file; the caller ends with part_put. NULL: the run has failed. Yields. */
struct part *part_get(struct fetch *ft, uint32_t file);
void part_put(struct part *p);
/* Writes a chunk's bytes from a slot. Yields. */
int part_write(struct part *p, const void *buf, uint32_t len, uint64_t off) CHECK_RESULT;
/* Makes a checkpoint, if it is time or enough bytes are not durable. Failures end the run. Yields.
 */
void checkpoint_if_due(struct fetch *ft);
/* Makes the last checkpoint, of all that was verified, also after a failure. Yields. */
void checkpoint_rest(struct fetch *ft);
/* Syncs the folders of the copy, once all files have their names. Yields. */
int parts_sync_dirs(struct fetch *ft) CHECK_RESULT;

#endif
