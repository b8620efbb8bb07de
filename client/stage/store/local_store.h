/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One copy of a data set on local storage:
 *
 *   DIR/.leat/ID.lock     flock: held by the one process that changes the copy
 *   DIR/.leat/ID/manifest, sums, samples
 *                named/NAME   which samples that name has (catalog.h): those beside it, or others
 *                from/    manifest and sums of the archives from which it was unpacked
 *                bitmap   one bit per chunk (1 MiB): verified, and synced before the bit was
 *                stamps   how finished files are recognized (stamps.h)
 *                lease    flock, shared: held by processes that use the copy
 *                leases/NAME  a job uses the copy, until a time or until it releases it
 *                pin      the copy must not be evicted
 *                part/N   file N of the manifest while it is incomplete
 *                data/... finished files
 *                places   with several directories: which file is in which; data/ of the first
 *                         directory has links to the files in the others
 *                home     in the other directories: DIR/.leat/ID of the first one
 *                reserve  reserves space: as large as the data that is still to come
 *                state, window, used, cancel   see store_marks.h
 *                share    of a copy that shall have only some of the files: one bit per file
 *                READY    written last; named SHARE if there is `share`
 *   DIR/.leat/inodes/ID   which inodes the copy holds, for mounts (inode_index.h); only while READY
 *   DIR/.leat/admission   flock: held while space is counted and reserved
 *   DIR/.leat/events      what has happened to copies: one JSON object per line
 *   DIR/.leat/sources/H   the ID of the copy that a name or a directory stood for when it was last
 *                         staged (store_sources.h). H is the hash of its key. Only the owner of the
 *                         folder may list it.
 *
 * Locks are the kernel's: they end with their holders, even if these are killed. No file is a lock
 * by its mere existence. A bit is set only for data that is durable, so the bitmap can be trusted
 * after any crash; everything else is verified again. Owned by one loop. What yields says so.
 */
#ifndef LEAT_CLIENT_STAGE_STORE_LOCAL_STORE_H
#define LEAT_CLIENT_STAGE_STORE_LOCAL_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/dataset/manifest.h"
#include "common/base/assert.h"
#include "common/rt/env.h"

#define STORE_PATH_SIZE 4096u
#define STORE_DIRS_MAX  7u /* further directories */
#define LEASE_NAME_MAX  128u

/* Identifies a folder, even if something else has its name by now. */
struct store_folder {
	dev_t dev;
	ino_t ino;
};

/* A finished file as it was when it was last verified (stamps.h). ino 0: no stamp. */
struct file_stamp {
	uint64_t ino;
	int64_t ctime_s;
	uint64_t ctime_ns;
};

/* An open copy. */
struct local_store {
	struct env *env;
	char base[STORE_PATH_SIZE]; /* DIR/.leat */
	char dir[STORE_PATH_SIZE];  /* DIR/.leat/ID */
	char id[MANIFEST_ID_SIZE];
	int lock_fd; /* -1: not locked */
	struct env_file *bitmap_file;
	uint8_t *bitmap;
	uint64_t n_chunks;
	bool fresh;                 /* The bitmap was made just now: no data exists yet. */
	char *more[STORE_DIRS_MAX]; /* DIR2/.leat/ID and so on */
	uint32_t n_more;
	uint8_t *share; /* Bit i is set if file i belongs to the copy. NULL: all do. */
	uint32_t n_share;
	uint8_t *places; /* for each file: 0 is dir, k is more[k - 1]. NULL: all are in dir. */
	uint32_t n_places;
	/* The n_folders folders of the manifest in dir, then those in each of more. NULL: not
	 * opened (grant.h). */
	struct store_folder *folders;
	uint32_t n_folders;
	struct file_stamp *stamps; /* of each file; NULL: not loaded */
	uint32_t n_stamps;
	struct env_file *stamps_file; /* NULL: there is none yet */
	struct env_file *reserve[STORE_DIRS_MAX + 1];
	uint64_t reserved[STORE_DIRS_MAX + 1];
};

/* A range of bytes in a chunk. len 0: to the end of the chunk. */
struct store_part {
	uint32_t off, len;
};

/* Sets the paths of the copy `id` below the directory `to`. Does not access the disk. Returns 0 or
 * -LE_NAMETOOLONG. Does not yield. */
int store_init(struct local_store *s, struct env *env, const char *to, const char *id) CHECK_RESULT;
/* Releases the lock, the reserved space, memory and files. Yields. */
void store_fini(struct local_store *s);

/* Makes the folders of the copy in each of its directories. Returns 0 or an error. Yields. */
int store_make_dirs(struct local_store *s) CHECK_RESULT;
/* Makes one folder of a copy and its parents, without a sync. Returns 0, also if it exists already,
 * or an error. Yields. */
int store_make_folder(struct local_store *s, const char *path) CHECK_RESULT;
/* Syncs the files manifest and sums, but not their names. Yields. */
int store_sync_manifest(struct local_store *s) CHECK_RESULT;
/* For a folder that holds a part of a copy in several directories: sets ret_home to DIR/.leat/ID in
 * the first of them. Returns -LE_NOENT if this is no such folder. Yields. */
int store_home(struct local_store *s, char ret_home[STORE_PATH_SIZE]) CHECK_RESULT;

/* Returns true if the copy shall have the file. */
static inline bool store_has_file(const struct local_store *s, uint32_t file)
{
	return !s->share || (file < s->n_share && (s->share[file / 8] >> (file % 8) & 1));
}
/* Returns the index of the directory in which the file lies; 0 is the first. */
static inline uint32_t store_place(const struct local_store *s, uint32_t file)
{
	return s->places && file < s->n_places ? s->places[file] : 0;
}
/* Returns the copy's folder in that directory. */
static inline const char *store_dir_of(const struct local_store *s, uint32_t place)
{
	ASSERT(place <= s->n_more);
	return place == 0 ? s->dir : s->more[place - 1];
}

/* ---- the bitmap: which chunks are verified and durable ---- */

/* Reads the bitmap for the manifest, or makes it. The caller has locked the copy. A bitmap that
 * does not fit the manifest counts as empty. Returns 0 or an error. Yields. */
int store_load_bitmap(struct local_store *s, const struct manifest *m) CHECK_RESULT;
/* Returns true if the chunk is verified and durable. */
static inline bool store_has_chunk(const struct local_store *s, uint64_t chunk)
{
	ASSERT(chunk < s->n_chunks);
	return s->bitmap[chunk / 8] >> (chunk % 8) & 1;
}
/* Sets or clears the bit of a chunk in memory. */
void store_set_chunk(struct local_store *s, uint64_t chunk, bool on);
/* Clears the bits of all chunks of f in memory. Returns true if one of them was set. */
bool store_clear_file(struct local_store *s, const struct manifest_file *f);
/* Makes the bitmap durable. Call it after the data of its bits was synced. Returns 0 or an error.
 * Yields. */
int store_save_bitmap(struct local_store *s) CHECK_RESULT;

/* ---- data ---- */

/* Reads a chunk whose bit is set. Does not verify its bytes. Returns 0 or an error. Yields. */
int store_read_chunk(struct local_store *s, const struct manifest *m, uint64_t chunk,
		     void *buf) CHECK_RESULT;
/* Reads a part of such a chunk. Returns 0, -LE_INVAL if the part goes beyond the chunk, or another
 * error. Yields. */
int store_read_part(struct local_store *s, const struct manifest *m, uint64_t chunk,
		    const struct store_part *part, void *buf) CHECK_RESULT;

#endif
