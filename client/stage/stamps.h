/*
 * By what a finished file of a copy is known again: which inode it is, and when that changed last,
 * to the nanosecond. Its owner may do with it what he likes from the moment it is his, and the
 * owner of a folder may put others in its place; neither can have that and leave these as they are.
 *
 *   stamp_watch   nobody has the file open for writing: from here on the kernel tells (a lease)
 *   ...           its content is verified, or was while it was the stager's alone; it gets its
 *                 rights and its name
 *   stamping_add  its change time is taken
 *   stamping_end  the clock has moved on, so that what is done to it from now on shows; still
 *                 nobody has opened it for writing: the stamp counts
 *
 * The lease matters since stores to memory that somebody has mapped change no time but the first
 * one's. Stamps are compared for equality only: what the clock is set to does not matter. They are
 * only taken by root; what others stage is theirs, and nobody else can change it.
 *
 * DIR/.leat/ID/stamps: "LEATSTP1", the number of files (8), then a stamp for each; not synced. One
 * that is missing or wrong fits nothing, and its file is verified again. Owned by the store's loop.
 */
#ifndef LEAT_STAGE_STAMPS_H
#define LEAT_STAGE_STAMPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/stage/local_store.h"

#define STAMPS_AT_ONCE 256u

/* What a former run has noted; for stamps_set. Yields. */
int stamps_load(struct local_store *s, uint32_t n_files) CHECK_RESULT;
bool stamp_fits(const struct file_stamp *t, const struct stat *st);
/* May what has the name of `file`, as st says, be taken for what was verified? */
bool stamps_believe(const struct local_store *s, uint32_t file, const struct stat *st);

/* From here on it shows when somebody opens the file for writing. False: somebody has it open so,
 * or this file system or process cannot tell. */
bool stamp_watch(int fd);

/* Files that wait for the clock, with their descriptors; -1: has no stamp. */
struct stamping {
	struct local_store *s;
	uint32_t n;
	struct {
		uint32_t file;
		int fd;
		struct file_stamp stamp;
	} rows[STAMPS_AT_ONCE];
};
/* fd, watched if `watched`, is closed here or later. Yields. */
void stamping_add(struct stamping *x, uint32_t file, int fd, bool watched);
/* Yields. */
void stamping_end(struct stamping *x);

#endif
