/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamps: by what a finished file of a copy is recognized, its inode and the exact time of its
 * last change. The owner of the file may change it, and the owner of its folder may replace it;
 * neither can do that and keep the stamp.
 *
 *   stamp_watch   no process has the file open for writing; from here on the kernel reports one
 *                 (a lease)
 *   ...           its content is verified, or was while only the stager had access; it gets its
 *                 rights and its name
 *   stamping_add  its change time is read
 *   stamping_end  the clock has moved on, so that a later change has a later time; still no
 *                 process has opened it for writing: the stamp counts
 *
 * The lease is needed since stores to memory that a process has mapped change no time but that of
 * the first one. Stamps are compared for equality only: what the clock is set to does not matter.
 * Only root takes stamps; a copy that another user stages is his, and no other user can change it.
 *
 * DIR/.leat/ID/stamps: "LEATSTP1", the number of files (8), then a stamp for each; not synced. A
 * missing or wrong stamp fits nothing, and its file is verified again. Owned by the store's loop.
 */
#ifndef LEAT_CLIENT_STAGE_STORE_STAMPS_H
#define LEAT_CLIENT_STAGE_STORE_STAMPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/stage/store/local_store.h"

#define STAMPS_AT_ONCE 256u

/* Loads the stamps of a previous run; missing or wrong ones fit nothing. Yields. */
int stamps_load(struct local_store *s, uint32_t n_files) CHECK_RESULT;
/* Returns whether the file st is the one that the stamp was taken of, unchanged. */
bool stamp_fits(const struct file_stamp *t, const struct stat *st);
/* Returns whether st, read by the name of `file`, is the file that was verified. Does not yield. */
bool stamps_believe(const struct local_store *s, uint32_t file, const struct stat *st);

/* Takes a kernel lease, which is lost when a process opens the file for writing. False: a
 * process has it open for writing already, or the file system or process has no such leases. */
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
/* Adds a file with verified content; watched: stamp_watch(fd) was true. fd is closed here or
 * later. Yields. */
void stamping_add(struct stamping *x, uint32_t file, int fd, bool watched);
/* Waits for the clock, and stores the stamps of files that no process has opened for writing.
 * Yields. */
void stamping_end(struct stamping *x);

#endif
