/*
 * One copy of a data set on local storage:
 *
 *   DIR/.leat/ID.lock     flock: held by the one process that changes the copy
 *   DIR/.leat/ID/manifest, sums, samples
 *                bitmap   one bit per chunk (1 MiB): verified, and synced before the bit was
 *                lease    flock, shared: held by those who use the copy
 *                part/N   file N of the manifest while it is incomplete
 *                data/... finished files
 *                READY    written last
 *   DIR/.leat/inodes/ID   which inodes it holds, for mounts (inode_index.h): only while READY
 *   DIR/.leat/sources/KEY the id of what was made of a source directory that looked like KEY
 *
 * Locks are the kernel's and die with their holders, whatever happens to these; no file's mere
 * existence is a lock. A bit is set only for data that is durable, so that the bitmap may be
 * believed after any crash; all else is verified again. Owned by one loop; what yields says so.
 */
#ifndef LEAT_STAGE_LOCAL_STORE_H
#define LEAT_STAGE_LOCAL_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stage/manifest.h"
#include "common/rt/env.h"

#define STORE_PATH_SIZE 4096u

struct local_store {
	struct env *env;
	char base[STORE_PATH_SIZE]; /* DIR/.leat */
	char dir[STORE_PATH_SIZE];  /* DIR/.leat/ID */
	char id[MANIFEST_ID_SIZE];
	int lock_fd; /* -1: not locked */
	struct env_file *bitmap_file;
	uint8_t *bitmap;
	uint64_t n_chunks;
};

/* Fills in the paths; touches nothing. -LE_NAMETOOLONG. */
int store_init(struct local_store *s, struct env *env, const char *to, const char *id) CHECK_RESULT;
/* Gives back lock, memory and files. Yields. */
void store_fini(struct local_store *s);

/* DIR/.leat/ID and what is in it. Yields. */
int store_make_dirs(struct local_store *s) CHECK_RESULT;
/* Exclusive: -LE_BUSY when another process (or another store of this one) has it. Makes DIR/.leat.
 */
int store_try_lock(struct local_store *s) CHECK_RESULT;
/* Does somebody else hold it? */
bool store_is_locked(const struct local_store *s);
void store_unlock(struct local_store *s);

/* Shared use. Returns a descriptor that holds the lease, or a status. */
int store_lease(const struct local_store *s) CHECK_RESULT;
bool store_is_leased(const struct local_store *s);

/* The READY mark is there. Yields. */
bool store_is_ready(struct local_store *s);
int store_set_ready(struct local_store *s, const struct manifest *m) CHECK_RESULT; /* yields */
int store_clear_ready(struct local_store *s) CHECK_RESULT;                         /* yields */

/* Reads or makes the bitmap for m, locked. What does not fit m counts as empty. Yields. */
int store_load_bitmap(struct local_store *s, const struct manifest *m) CHECK_RESULT;
static inline bool store_has_chunk(const struct local_store *s, uint64_t chunk)
{
	return s->bitmap[chunk / 8] >> (chunk % 8) & 1;
}
void store_set_chunk(struct local_store *s, uint64_t chunk, bool on);
/* Makes the bitmap durable: after the data of its bits. Yields. */
int store_save_bitmap(struct local_store *s) CHECK_RESULT;

void store_part_path(const struct local_store *s, uint32_t file, char ret_path[STORE_PATH_SIZE]);
/* -LE_NAMETOOLONG */
int store_data_path(const struct local_store *s, const char *path,
		    char ret_path[STORE_PATH_SIZE]) CHECK_RESULT;
/* Every file of m is there with its size: what can be told without reading. Yields. */
bool store_looks_whole(struct local_store *s, const struct manifest *m);

/* Removes the copy, locked and not leased (-LE_BUSY). READY goes first. Yields. */
int store_remove(struct local_store *s) CHECK_RESULT;

/* What was made of a source that looked like key: the id, or -LE_NOENT. Yields. */
int store_recall_source(struct env *env, const char *to, const char *key,
			char ret_id[MANIFEST_ID_SIZE]) CHECK_RESULT;
int store_note_source(struct env *env, const char *to, const char *key,
		      const char *id) CHECK_RESULT;

#endif
