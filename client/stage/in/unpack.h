/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives as folders: a volume over a copy of a data set in which each tar archive ("a/b.tar",
 * and compressed "a/b.tar.gz", .tgz, .tar.zst, .tzst, .tar.lz4) is a folder ("a/b") of its
 * members. All other files stay as they are. Read only; every byte that it returns was verified
 * against the manifest of the copy. Compressed archives are unpacked into files beside the copy
 * first (unpack_plain.h), which unpack_destroy removes. Owned by one loop.
 *
 * Archives are not trusted. An archive with a name outside its folder is refused. Links, devices
 * and pipes are never made: links among the members of an archive are read as their targets,
 * others are counted. Members do not overlap, so all of them together are no larger than the
 * archives. The output of compressed archives is bounded by `space`. A path that two archives, or
 * an archive and a folder, would both make is refused.
 */
#ifndef LEAT_CLIENT_STAGE_IN_UNPACK_H
#define LEAT_CLIENT_STAGE_IN_UNPACK_H

#include "client/dataset/manifest.h"
#include "client/dataset/vol.h"
#include "client/stage/store/local_store.h"

/* All paths of the volume begin with this. */
#define UNPACK_ROOT "/unpacked"

struct unpack;

struct unpack_options {
	const volatile int *cancel; /* may be NULL */
	/* Limit of the output of all compressed archives together, in bytes. */
	uint64_t space;
	/* Called with the bytes of these archives that were unpacked so far; may be NULL. */
	void (*report)(void *arg, uint64_t bytes);
	void *arg;
};
/* Reads the headers of all archives of the copy, and unpacks compressed ones. store and m
 * outlive the volume. -LE_CORRUPT: an archive is damaged or leads elsewhere; -LE_NOTSUP: it
 * cannot be unpacked; -LE_NOENT: there is no archive; -LE_NOSPC: the output would exceed `space`;
 * all with path and offset in d. Yields. */
int unpack_create(struct local_store *store, const struct manifest *m,
		  const struct unpack_options *o, struct unpack **ret_unpack,
		  struct detail *d) CHECK_RESULT;
/* Removes the files that were unpacked beside the copy. NULL is fine. Yields. */
void unpack_destroy(struct unpack *u);
/* The files as scan_tree would find them, and the volume to read them by. Both live as long as
 * u. */
const struct scan *unpack_scan(const struct unpack *u);
struct vol *unpack_vol(struct unpack *u);
/* The path of the file of the copy in which damaged bytes were read, and their offset. NULL: none
 * were. */
const char *unpack_damaged(const struct unpack *u, uint64_t *ret_off);

#endif
