/*
 * One copy of a data set on local storage:
 *
 *   DIR/.leat/ID.lock     flock: held by the one process that changes the copy
 *   DIR/.leat/ID/manifest, sums, samples
 *                named/NAME   what samples that name has (catalog.h): those beside it, or others
 *                from/    manifest and sums of the archives that it was unpacked of
 *                bitmap   one bit per chunk (1 MiB): verified, and synced before the bit was
 *                stamps   by what finished files are known again (stamps.h)
 *                lease    flock, shared: held by processes that use the copy
 *                leases/NAME  used by a job until a time, or until it is given back
 *                pin      not to be evicted
 *                part/N   file N of the manifest while it is incomplete
 *                data/... finished files
 *                places   with several directories: which file is in which; in the first
 *                         one's data/ there are links to the others'
 *                home     in the others: DIR/.leat/ID of the first one, whose part this is
 *                reserve  as large as what is still to come: space set aside
 *                state, window, used, cancel   see store_marks.c
 *                share    of a copy that is meant to have some of the files only: a bit for each
 *                READY    written last; with `share`: SHARE
 *   DIR/.leat/inodes/ID   which inodes it holds, for mounts (inode_index.h): only while READY
 *   DIR/.leat/admission   flock: held while space is counted and set aside
 *   DIR/.leat/events      one JSON object a line: what has happened to copies
 *   DIR/.leat/sources/H   the id of what was made of a source directory that looked like a key, or
 *                         of what a name or a directory was when it was staged last; H is the hash
 *                         of that key, or name, and the folder is listed by its owner alone
 *
 * Locks are the kernel's and die with their holders, whatever happens to these; no file's mere
 * existence is a lock. A bit is set only for data that is durable, so that the bitmap may be
 * believed after any crash; all else is verified again. Owned by one loop; what yields says so.
 */
#ifndef LEAT_STAGE_LOCAL_STORE_H
#define LEAT_STAGE_LOCAL_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/stage/manifest.h"
#include "common/rt/env.h"

#define STORE_PATH_SIZE 4096u
#define STORE_DIRS_MAX  7u /* further directories */
#define LEASE_NAME_MAX  128u

/* Which one it is, whatever has its name by now. */
struct store_folder {
	dev_t dev;
	ino_t ino;
};

/* A finished file as it was when it was verified last (stamps.h); ino 0: not known. */
struct file_stamp {
	uint64_t ino;
	int64_t ctime_s;
	uint64_t ctime_ns;
};

struct local_store {
	struct env *env;
	char base[STORE_PATH_SIZE]; /* DIR/.leat */
	char dir[STORE_PATH_SIZE];  /* DIR/.leat/ID */
	char id[MANIFEST_ID_SIZE];
	int lock_fd; /* -1: not locked */
	struct env_file *bitmap_file;
	uint8_t *bitmap;
	uint64_t n_chunks;
	bool fresh;                 /* the bitmap was made just now: there is nothing yet */
	char *more[STORE_DIRS_MAX]; /* DIR2/.leat/ID, ... */
	uint32_t n_more;
	uint8_t *share; /* bit i: file i belongs to the copy; NULL: all do */
	uint32_t n_share;
	uint8_t *places; /* of each file: 0 dir, k more[k - 1]; NULL: all in dir */
	uint32_t n_places;
	struct store_folder *folders; /* n_folders of the manifest for dir, then for each of more;
				       * NULL: not looked at (grant.h) */
	uint32_t n_folders;
	struct file_stamp *stamps; /* of each file; NULL: not loaded */
	uint32_t n_stamps;
	struct env_file *stamps_file; /* NULL: there is none yet */
	struct env_file *reserve[STORE_DIRS_MAX + 1];
	uint64_t reserved[STORE_DIRS_MAX + 1];
};

/* Bytes of a chunk; len 0: to its end. */
struct store_part {
	uint32_t off, len;
};

/* Fills in the paths; touches nothing. -LE_NAMETOOLONG. */
int store_init(struct local_store *s, struct env *env, const char *to, const char *id) CHECK_RESULT;
/* A further directory for its files, before store_make_dirs. */
int store_add_dir(struct local_store *s, const char *to) CHECK_RESULT;
/* The further directories and places that a former run has chosen, if it has. Yields. */
int store_load_places(struct local_store *s, uint32_t n_files) CHECK_RESULT;
/* ... whatever their number: for who asks which directories there are. */
#define STORE_FILES_ANY UINT32_MAX
int store_save_places(struct local_store *s) CHECK_RESULT; /* yields */
/* Gives back lock, memory and files. Yields. */
void store_fini(struct local_store *s);

/* DIR/.leat/ID and what is in it. Yields. */
int store_make_dirs(struct local_store *s) CHECK_RESULT;
/* One folder of a copy, with its parents; not synced. Fine if it is there. Yields. */
int store_make_folder(struct local_store *s, const char *path) CHECK_RESULT;
/* What was written of the manifest becomes durable, but for its names. Yields. */
int store_sync_manifest(struct local_store *s) CHECK_RESULT;
/* Of a folder that holds a part of a copy elsewhere: its home, DIR/.leat/ID. -LE_NOENT: it is none.
 * Yields. */
int store_home(struct local_store *s, char ret_home[STORE_PATH_SIZE]) CHECK_RESULT;
/* Exclusive: -LE_BUSY when another process (or another store of this one) has it. Makes DIR/.leat.
 */
int store_try_lock(struct local_store *s) CHECK_RESULT;
/* Does somebody else hold it? */
bool store_is_locked(const struct local_store *s);
void store_unlock(struct local_store *s);

/* ---- marks (store_marks.c): none of them is needed for what a copy holds ---- */
struct store_note {
	int state; /* enum leat_stage_state */
	int code;  /* of a failure: enum leat_stage_code */
	char path[1024], message[256];
	uint64_t off;
};
/* What the one who changes the copy says of it; believed only where nothing better is known.
 * Yields. */
void store_set_note(struct local_store *s, const struct store_note *n);
bool store_get_note(struct local_store *s, struct store_note *ret_note); /* yields */
/* The words "window" (the first window is there), "used", "cancel", "pin". Yields. */
int store_set_mark(struct local_store *s, const char *mark, bool on) CHECK_RESULT;
bool store_has_mark(const struct local_store *s, const char *mark, int64_t *ret_mtime_s);
/* When it was set, to tell one from the next. 0: it is not. */
int64_t store_mark_ns(const struct local_store *s, const char *mark);
/* A line for DIR/.leat/events. fields: further JSON members, or "". */
void store_event(const struct local_store *s, const char *what, const char *fields);
/* Of a job: for ttl_s seconds, 0: until it is given back. -LE_INVAL: not a name. Yields. */
int store_lease_named(struct local_store *s, const char *name, uint64_t ttl_s) CHECK_RESULT;
int store_release_named(struct local_store *s, const char *name) CHECK_RESULT; /* -LE_NOENT */
/* Some job has it. expired: those that have ended are removed on the way. */
bool store_is_leased_named(struct local_store *s, bool expire);
bool store_name_ok(const char *name);

/* Shared use. Returns a descriptor that holds the lease, or a status. */
int store_lease(const struct local_store *s) CHECK_RESULT;
/* By a process or by a job. Yields. */
bool store_is_leased(struct local_store *s);

/* ---- shares: store_space.c ---- */
static inline bool store_has_file(const struct local_store *s, uint32_t file)
{
	return !s->share || (file < s->n_share && (s->share[file / 8] >> (file % 8) & 1));
}
/* Which files a former run has chosen; one that cannot be read: none. Yields. */
int store_load_share(struct local_store *s, uint32_t n_files) CHECK_RESULT;
/* s->share as it is now; NULL: there is no such file any more. Not while a mark says that it is
 * whole. Yields. */
int store_save_share(struct local_store *s) CHECK_RESULT;
/* All files of its share are there, which is not READY. Yields. */
bool store_is_shared(struct local_store *s);

/* The READY mark is there. Yields. */
bool store_is_ready(struct local_store *s);
/* READY, or with a share SHARE. Yields. */ int
store_set_ready(struct local_store *s, const struct manifest *m) CHECK_RESULT; /* yields */
/* Both marks. Yields. */
int store_clear_ready(struct local_store *s) CHECK_RESULT;

/* Reads or makes the bitmap for m, locked. What does not fit m counts as empty. Yields. */
int store_load_bitmap(struct local_store *s, const struct manifest *m) CHECK_RESULT;
static inline bool store_has_chunk(const struct local_store *s, uint64_t chunk)
{
	return s->bitmap[chunk / 8] >> (chunk % 8) & 1;
}
void store_set_chunk(struct local_store *s, uint64_t chunk, bool on);
/* All chunks of f are off. Was one on? */
bool store_clear_file(struct local_store *s, const struct manifest_file *f);
/* Makes the bitmap durable: after the data of its bits. Yields. */
int store_save_bitmap(struct local_store *s) CHECK_RESULT;

static inline uint32_t store_place(const struct local_store *s, uint32_t file)
{
	return s->places && file < s->n_places ? s->places[file] : 0;
}
static inline const char *store_dir_of(const struct local_store *s, uint32_t place)
{
	return place == 0 ? s->dir : s->more[place - 1];
}
void store_part_path(const struct local_store *s, uint32_t file, char ret_path[STORE_PATH_SIZE]);
/* Where the file itself is, by its number and path: -LE_NAMETOOLONG */
int store_data_path(const struct local_store *s, uint32_t file, const char *path,
		    char ret_path[STORE_PATH_SIZE]) CHECK_RESULT;
/* A finished file that is in another directory gets its link in the first one. Yields. */
int store_link_data(struct local_store *s, uint32_t file, const char *path) CHECK_RESULT;
/* Bytes of a chunk that has its bit, not verified here; of a part of it, -LE_INVAL where it goes
 * beyond the chunk. Yields. */
int store_read_chunk(struct local_store *s, const struct manifest *m, uint64_t chunk,
		     void *buf) CHECK_RESULT;
int store_read_part(struct local_store *s, const struct manifest *m, uint64_t chunk,
		    const struct store_part *part, void *buf) CHECK_RESULT;

/* ---- space ---- */
/* Held until the descriptor is closed: whoever counts free space and sets some aside. -LE_BUSY */
int store_lock_admission(const struct local_store *s) CHECK_RESULT;
/* Sets bytes aside in a directory: -LE_NOSPC. Fine where the file system cannot. Yields. */
int store_reserve(struct local_store *s, uint32_t place, uint64_t bytes) CHECK_RESULT;
/* So many of them are about to be used by this file. Yields. */
void store_reserve_use(struct local_store *s, uint32_t file, uint64_t bytes);
void store_reserve_end(struct local_store *s); /* yields */
/* What it takes on disks, finished or not, with what is set aside; m NULL: files are not known.
 * Yields. */
uint64_t store_occupied(struct local_store *s, const struct manifest *m);
/* Every file of m is there with its size: what can be told without reading. Yields. */
bool store_looks_whole(struct local_store *s, const struct manifest *m);

/* Removes the copy, locked, not leased and not pinned (-LE_BUSY). READY goes first. Yields. */
int store_remove(struct local_store *s) CHECK_RESULT;

/* What was made of a source that looked like key: the id, or -LE_NOENT. Yields. */
int store_recall_source(struct env *env, const char *to, const char *key,
			char ret_id[MANIFEST_ID_SIZE]) CHECK_RESULT;
int store_note_source(struct env *env, const char *to, const char *key,
		      const char *id) CHECK_RESULT;

#endif
