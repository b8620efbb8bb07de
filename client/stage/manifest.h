/*
 * A manifest: what a data set is, name by name, with a checksum for every block. Immutable once
 * made; any thread may read it. Two files:
 *
 * `manifest`, JSON Lines, the rows between head and end sorted by the bytes of their paths:
 *   {"leat":"dataset","v":3,"hash":"xxh3-64","chunk":1048576,"name":..,"version":..,"source":..,
 *    "cluster":uuid, where the source is in one}
 *   {"dir":"a","mode":493,"uid":0,"gid":0,"mtime":NS,"acl":base64,"ino":N,"born":NS}
 *   {"path":"a/b.tar","size":N,"block":16384,"mode":420,"uid":0,"gid":0,"mtime":NS,"acl":base64,
 *    "ino":N,"born":NS,"ver":N,"from":"/x/y","chunks":["16 hex",..]}
 *   {"link":"a/c","target":"b.tar","uid":0,"gid":0,"mtime":NS}
 *   {"end":true,"files":N,"dirs":N,"links":N,"bytes":N,"id":"64 hex"}
 * A chunk is 1 MiB (the last one of a file shorter); its checksum is the xxh3 of its blocks'
 * checksums, each as 8 little-endian bytes. `block` divides the chunk. A block whose checksum is
 * that of zeros is one of zeros, and may be a hole of the copy.
 *
 * All directories have a row, empty ones too, "" (the source itself) first; what lies below another
 * name lies below a directory. `acl` has the bytes of system.posix_acl_access, where there are
 * some. `ino` and `born`, where the source's file system tells when a thing was made, are of the
 * thing itself at the source: what has another one has come in its place (`ino` 0: there is no such
 * thing, as for what came out of an archive). `from` says where the file is that a link of the
 * source named, which lies elsewhere in the same tree: its path there; else it is at SOURCE/PATH.
 * Names are bytes: common/base/names.h says how those that are not UTF-8 are written ("path_b64"
 * and so on).
 *
 * `sums`: the blocks' checksums (xxh3 of the plain bytes), 8 little-endian bytes each, all files in
 * a row, behind the 8 bytes "LEATSUM1". Believed only as far as the chunks' checksums confirm it.
 *
 * The id is BLAKE2b-256 over "leat manifest 3\n" and
 *   for each file: path 0x00 decimal size 0x00 decimal block 0x00 checksums of the chunks, 8
 *   little-endian bytes each; 0x00; for each link: path 0x00 target 0x00; 0x00; for each directory
 *   below the source with nothing in it: path 0x00
 * so it names content and shape: not the name, source, rights or times.
 */
#ifndef LEAT_STAGE_MANIFEST_H
#define LEAT_STAGE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/stage/detail.h"
#include "client/stage/vol.h"
#include "common/base/status.h"
#include "common/base/uuid.h"

#define MANIFEST_CHUNK         (1u << 20)
#define MANIFEST_BLOCK_DEFAULT (16u << 10)
#define MANIFEST_BLOCK_MIN     4096u
#define MANIFEST_VERSION       3
#define MANIFEST_FILES_MAX     (1u << 26) /* and as many directories, and links */
#define MANIFEST_DEPTH_MAX     64 /* components of a path */
#define MANIFEST_LINE_MAX      (256u << 20)
#define MANIFEST_NAME_MAX      128u /* of a data set and of a version */
#define MANIFEST_ID_SIZE       65u  /* hex and NUL */

struct manifest_file {
	char *path; /* relative, no empty, "." or ".." component */
	char *from; /* absolute, in the source's volume; NULL: path, below the source */
	uint64_t size, ino, ver;
	int64_t mtime_ns, born_ns;
	struct rights rights; /* those that the copy is to have */
	uint32_t block;
	uint64_t first_sum;   /* of its blocks, in sums */
	uint64_t first_chunk; /* of its chunks, in all chunks of the manifest */
};

struct manifest_dir {
	char *path; /* "": the source itself */
	uint64_t ino; /* 0: the source has no such directory */
	int64_t mtime_ns, born_ns;
	struct rights rights;
	bool filled; /* something lies in it */
};

struct manifest_link {
	char *path, *target;
	int64_t mtime_ns;
	uint32_t uid, gid;
};

struct manifest {
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	char source[4096];
	struct uuid cluster; /* where source and the inode numbers are; zero: not in one */
	char id[MANIFEST_ID_SIZE];
	/* Each sorted by the bytes of path; no path is in two of them. */
	struct manifest_file *files;
	struct manifest_dir *dirs;
	struct manifest_link *links;
	uint32_t n_files, cap_files, n_dirs, cap_dirs, n_links, cap_links;
	struct acl_pool acls; /* what all rights point to */
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
/* Bytes of chunk i of a file. */
static inline uint32_t manifest_chunk_len(const struct manifest_file *f, uint64_t i)
{
	uint64_t left = f->size - i * MANIFEST_CHUNK;
	return left < MANIFEST_CHUNK ? (uint32_t)left : MANIFEST_CHUNK;
}

void manifest_destroy(struct manifest *m); /* NULL is fine */
/* Where file f is read: -LE_NAMETOOLONG. */
int manifest_source_path(const struct manifest *m, const struct manifest_file *f,
			 char ret_path[4096]) CHECK_RESULT;
/* A relative path that stays below where it is put, and not too deep below. */
bool manifest_path_is_safe(const char *path);
/* "name@version" (letters, digits, . _ -; each 1 to 128) or "name", with version "latest". */
int manifest_parse_alias(const char *alias, char ret_name[MANIFEST_NAME_MAX + 1],
			 char ret_version[MANIFEST_NAME_MAX + 1]) CHECK_RESULT;
/* -1: not in it */
int64_t manifest_find(const struct manifest *m, const char *path);
int64_t manifest_find_dir(const struct manifest *m, const char *path);
int64_t manifest_find_link(const struct manifest *m, const char *path);
/* The index of the first block of data[0..len) that does not match; -1: all match. off is a
 * multiple of the block, data ends at a multiple or at the file's end. */
int64_t manifest_check(const struct manifest *m, const struct manifest_file *f, uint64_t off,
		       const void *data, uint64_t len);
/* The checksum of a whole block of zeros; block: as a manifest has it. */
uint64_t manifest_zeros_sum(uint32_t block);
/* How many bytes from off on, where a block begins, up to end (at most the file's size) are alike:
 * in blocks of zeros, or not. The last block of a file, if it is no whole one, is not. */
uint64_t manifest_run(const struct manifest *m, const struct manifest_file *f, uint64_t off,
		      uint64_t end, bool *ret_zeros);
/* Bytes that are in no block of zeros: what the copy takes of a disk, of one file and of all. */
uint64_t manifest_file_data(const struct manifest *m, const struct manifest_file *f);
uint64_t manifest_data(const struct manifest *m);

/* ---- making one ---- */
int manifest_create(struct manifest **ret_manifest) CHECK_RESULT;
/* Each kind in ascending order of its paths, in any order of the kinds. A file has the mode, owner
 * and group of st, no access list, and room for its sums, which the caller fills in. */
int manifest_add(struct manifest *m, const char *path, const struct vol_stat *st,
		 uint32_t block) CHECK_RESULT;
/* Of the file that was added last. from NULL: it is at its path. */
int manifest_add_rights(struct manifest *m, const struct rights *r, const char *from) CHECK_RESULT;
/* Its inode and times are those of st. */
int manifest_add_dir(struct manifest *m, const char *path, const struct vol_stat *st,
		     const struct rights *r) CHECK_RESULT;
int manifest_add_link(struct manifest *m, const struct manifest_link *l) CHECK_RESULT;
/* Directories that are missing above what there is get the rights and the time of the nearest one
 * above them; the source itself, if it is missing, those of root, whose path counts for nothing. */
int manifest_fill_dirs(struct manifest *m, const struct manifest_dir *root) CHECK_RESULT;
/* Once all sums are there: the id. */
void manifest_finish(struct manifest *m);

/* Where progress is told while a manifest is made or a copy runs. May be NULL. */
struct progress {
	void (*report)(void *arg, uint64_t bytes);
	void *arg;
	const volatile int *cancel; /* non-zero: stop with -LE_CANCELED. May be NULL */
};

/* Of a scan without reading anything: what the source looks like, to find again what was made of
 * it. */
void manifest_scan_key(const char *dir, const struct scan *s, char ret_key[MANIFEST_ID_SIZE]);
/* From what a scan has found in dir: imports checksums where the volume has them, else reads
 * everything. Yields. -LE_STALE when a file is not what the scan has found, or changes meanwhile.
 */
int manifest_make_from(struct vol *v, const char *dir, const struct scan *s,
		       struct manifest **ret_manifest, const struct progress *p,
		       struct detail *d) CHECK_RESULT;

/* ---- the files ---- */
int manifest_encode(const struct manifest *m, char **ret_text, size_t *ret_len) CHECK_RESULT;
int manifest_encode_sums(const struct manifest *m, void **ret_data, size_t *ret_len) CHECK_RESULT;
/* Checks every byte of both: -LE_CORRUPT, with the line in d; -LE_NOTSUP: of another version. */
int manifest_decode(const char *text, size_t len, const void *sums, size_t sums_len,
		    struct manifest **ret_manifest, struct detail *d) CHECK_RESULT;
/* From the files manifest and sums in dir. Yields. */
int manifest_load(struct vol *v, const char *dir, struct manifest **ret_manifest,
		  struct detail *d) CHECK_RESULT;
int manifest_store(struct vol *v, const char *dir, const struct manifest *m) CHECK_RESULT;

#endif
