/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A manifest: the contents of a data set, name by name, with a checksum for every block. Immutable
 * after manifest_finish; any thread may read it. Two files:
 *
 * `manifest`, JSON Lines, the rows between head and end sorted by the bytes of their paths:
 *   {"leat":"dataset","v":3,"hash":"xxh3-64","chunk":1048576,"name":..,"version":..,"source":..,
 *    "cluster":uuid, if the source is in a cluster,"host":.., that named the data set}
 *   {"dir":"a","mode":493,"uid":0,"gid":0,"mtime":NS,"acl":base64,"ino":N,"born":NS}
 *   {"path":"a/b.tar","size":N,"block":16384,"mode":420,"uid":0,"gid":0,"mtime":NS,"acl":base64,
 *    "ino":N,"born":NS,"ver":N,"from":"/x/y","chunks":["16 hex",..]}
 *   {"link":"a/c","target":"b.tar","uid":0,"gid":0,"mtime":NS}
 *   {"end":true,"files":N,"dirs":N,"links":N,"bytes":N,"id":"64 hex"}
 *
 * A chunk is 1 MiB (the last one of a file may be shorter). Its checksum is the xxh3 of its blocks'
 * checksums, each as 8 little-endian bytes. `block` divides the chunk. A block with the checksum of
 * zeros contains zeros, and may be a hole of the copy.
 *
 * All directories have a row, also empty ones; "" (the source itself) comes first. Every other row
 * lies in a directory that has a row. `acl` has the bytes of system.posix_acl_access, if there are
 * any. `ino` and `born` (creation time, if the source's file system has it) identify the file or
 * directory at the source: one with other values has replaced it. `ino` 0: the source has no such
 * file, as for members of an archive. `from` is the path of a file that a link of the source names
 * and that is elsewhere in the same volume; a file without `from` is at SOURCE/PATH. Names are
 * bytes: common/base/names.h says how names that are not UTF-8 are written ("path_b64" and so on).
 *
 * `sums`: the blocks' checksums (xxh3 of the plain bytes), 8 little-endian bytes each, for all
 * files in order, after the 8 bytes "LEATSUM1". The chunks' checksums verify them.
 *
 * The id is BLAKE2b-256 over "leat manifest 3\n" and
 *   for each file: path 0x00 decimal size 0x00 decimal block 0x00 checksums of the chunks, 8
 *   little-endian bytes each; 0x00; for each link: path 0x00 target 0x00; 0x00; for each empty
 *   directory below the source: path 0x00
 * so it identifies content and shape, not name, source, rights or times.
 */
#ifndef LEAT_CLIENT_DATASET_MANIFEST_H
#define LEAT_CLIENT_DATASET_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/dataset/error_detail.h"
#include "client/dataset/vol.h"
#include "common/base/status.h"
#include "common/base/uuid.h"

struct scan;

#define MANIFEST_CHUNK         (1u << 20)
#define MANIFEST_BLOCK_DEFAULT (16u << 10)
#define MANIFEST_BLOCK_MIN     4096u
#define MANIFEST_VERSION       3
#define MANIFEST_FILES_MAX     (1u << 26) /* and as many directories, and links */
#define MANIFEST_DEPTH_MAX     64 /* components of a path */
#define MANIFEST_LINE_MAX      (256u << 20)
#define MANIFEST_NAME_MAX      128u /* of a data set and of a version */
#define MANIFEST_ID_SIZE       65u  /* hex and NUL */
#define MANIFEST_HOST_SIZE     72u  /* HOST_NAME_MAX and NUL */

struct manifest_file {
	char *path; /* relative, no empty, "." or ".." component */
	char *from; /* absolute, in the source's volume; NULL: at path, below the source */
	uint64_t size, ino, ver;
	int64_t mtime_ns, born_ns;
	struct rights rights; /* of the copy */
	uint32_t block;
	uint64_t first_sum;   /* of its blocks, in sums */
	uint64_t first_chunk; /* of its chunks, in all chunks of the manifest */
};

struct manifest_dir {
	char *path; /* "": the source itself */
	uint64_t ino; /* 0: the source has no such directory */
	int64_t mtime_ns, born_ns;
	struct rights rights;
	bool filled; /* it is not empty */
};

struct manifest_link {
	char *path, *target;
	int64_t mtime_ns;
	uint32_t uid, gid;
};

struct manifest {
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	char source[4096];
	char host[MANIFEST_HOST_SIZE]; /* that named the data set; "": unknown */
	struct uuid cluster;           /* of source and inode numbers; zero: not in a cluster */
	char id[MANIFEST_ID_SIZE];
	/* Each sorted by the bytes of path; no path occurs twice. */
	struct manifest_file *files;
	struct manifest_dir *dirs;
	struct manifest_link *links;
	uint32_t n_files, cap_files, n_dirs, cap_dirs, n_links, cap_links;
	struct acl_pool acls; /* owns the access lists of all rights */
	uint64_t bytes, n_chunks;
	uint64_t *sums;
	uint64_t n_sums, cap_sums;
};

static inline uint64_t manifest_file_chunks(const struct manifest_file *f)
{
	return (f->size + MANIFEST_CHUNK - 1) / MANIFEST_CHUNK;
}
static inline uint64_t manifest_file_blocks(const struct manifest_file *f)
{
	return (f->size + f->block - 1) / f->block;
}
/* Returns the bytes of chunk i of a file. */
static inline uint32_t manifest_chunk_len(const struct manifest_file *f, uint64_t i)
{
	uint64_t left = f->size - i * MANIFEST_CHUNK;
	return left < MANIFEST_CHUNK ? (uint32_t)left : MANIFEST_CHUNK;
}

void manifest_destroy(struct manifest *m); /* NULL is fine */
/* Returns the path at which file f is read from the source. -LE_NAMETOOLONG */
int manifest_source_path(const struct manifest *m, const struct manifest_file *f,
			 char ret_path[4096]) CHECK_RESULT;
/* True for a relative path that stays below the folder it is put in, with at most
 * MANIFEST_DEPTH_MAX components. */
bool manifest_path_is_safe(const char *path);
/* Splits "name@version" (letters, digits, . _ -; each 1 to 128). The version of "name" alone is
 * "latest". -LE_INVAL */
int manifest_parse_alias(const char *alias, char ret_name[MANIFEST_NAME_MAX + 1],
			 char ret_version[MANIFEST_NAME_MAX + 1]) CHECK_RESULT;
/* Finds path in an array of structs that begin with their path, sorted by it; -1: none. */
int64_t manifest_find_in(const void *array, uint32_t n, size_t size, const char *path);
/* Return the index of a path among the files or directories; -1: none. */
int64_t manifest_find(const struct manifest *m, const char *path);
int64_t manifest_find_dir(const struct manifest *m, const char *path);
/* True for the text of a manifest's id. */
bool manifest_is_id(const char *text);
/* Returns the index of the file that a chunk belongs to; chunk is below n_chunks. */
uint32_t manifest_file_of_chunk(const struct manifest *m, uint64_t chunk);
/* Compares data[0..len), which is at off of file f, with its checksums. Returns the index of the
 * first block that does not match, or -1. off is a multiple of the block; data ends at a
 * multiple or at the file's end. */
int64_t manifest_check(const struct manifest *m, const struct manifest_file *f, uint64_t off,
		       const void *data, uint64_t len);
/* Returns the checksum of a whole block of zeros; block: a valid size in a manifest. */
uint64_t manifest_zeros_sum(uint32_t block);
/* Returns the length of the run from off (the start of a block) to at most `end`, within which
 * all blocks are zeros, or none is: *ret_zeros. A partial last block counts as not zeros. */
uint64_t manifest_run(const struct manifest *m, const struct manifest_file *f, uint64_t off,
		      uint64_t end, bool *ret_zeros);
/* Return the bytes outside of blocks of zeros, which a copy occupies on disk: of one file, and
 * of all. */
uint64_t manifest_file_data(const struct manifest *m, const struct manifest_file *f);
uint64_t manifest_data(const struct manifest *m);

/* ---- making a manifest ---- */
/* Makes an empty manifest. -LE_NOMEM */
int manifest_create(struct manifest **ret_manifest) CHECK_RESULT;
/* Adds a file with the mode, owner and group of st, no access list, and space for its sums,
 * which the caller fills in. Files, directories and links are each added in ascending order of
 * their paths. */
int manifest_add(struct manifest *m, const char *path, const struct vol_stat *st,
		 uint32_t block) CHECK_RESULT;
/* Sets the rights of the file that was added last, and its path in the source; from NULL: below
 * the source, at its path. */
int manifest_add_rights(struct manifest *m, const struct rights *r, const char *from) CHECK_RESULT;
/* Adds a directory with the inode and times of st. */
int manifest_add_dir(struct manifest *m, const char *path, const struct vol_stat *st,
		     const struct rights *r) CHECK_RESULT;
int manifest_add_link(struct manifest *m, const struct manifest_link *l) CHECK_RESULT;
/* Adds the directories that are missing above files and links, with rights and time of the
 * nearest directory above. If the source itself is missing, it gets those of root; the path of
 * root is ignored. */
int manifest_fill_dirs(struct manifest *m, const struct manifest_dir *root) CHECK_RESULT;
/* Computes the id, when all sums are set. */
void manifest_finish(struct manifest *m);

/* Computes a key of the source's attributes from a scan, without reading files. It finds a
 * manifest that was made of the same source. */
void manifest_scan_key(const char *dir, const struct scan *s, char ret_key[MANIFEST_ID_SIZE]);

#endif
