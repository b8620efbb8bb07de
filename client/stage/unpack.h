/*
 * Archives as folders: a volume over a copy of a data set in which each tar archive ("a/b.tar", and
 * compressed "a/b.tar.gz", .tgz, .tar.zst, .tzst, .tar.lz4) is a folder ("a/b") of its members, and
 * everything else is what it is. Read only; every byte that it gives was verified against the
 * manifest of the copy. Compressed archives are unpacked into files beside the copy first
 * (unpack_plain.h), which go with the volume. Owned by one loop.
 *
 * Archives are not trusted. Names are those of files below the folder or the archive is refused;
 * links, devices and pipes are never made (links among the members of an archive are read as what
 * they name, others are counted); members do not overlap, so that all of them together are no
 * larger than the archives; what comes out of compressed ones is bounded by `room`; what two
 * archives, or an archive and a folder, would both make is refused.
 */
#ifndef LEAT_STAGE_UNPACK_H
#define LEAT_STAGE_UNPACK_H

#include "client/stage/local_store.h"
#include "client/stage/manifest.h"
#include "client/stage/vol.h"

/* Where the files of the volume are: any path of it begins with this. */
#define UNPACK_ROOT "/unpacked"

struct unpack;

struct unpack_options {
	const volatile int *cancel; /* may be NULL */
	/* So many bytes may come out of all compressed archives together. */
	uint64_t room;
	/* How many bytes of these archives have been unpacked; may be NULL. */
	void (*report)(void *arg, uint64_t bytes);
	void *arg;
};
/* store, m: the copy; both outlive it. Reads all headers. -LE_CORRUPT for an archive that is
 * damaged or leads elsewhere, -LE_NOTSUP for what cannot be unpacked, -LE_NOENT if there is nothing
 * to unpack, -LE_NOSPC if more than room would come out; all with path and offset in d. Yields. */
int unpack_create(struct local_store *store, const struct manifest *m,
		  const struct unpack_options *o, struct unpack **ret_unpack,
		  struct detail *d) CHECK_RESULT;
void unpack_destroy(struct unpack *u); /* NULL is fine. Yields. */
/* Its files, as scan_tree would find them; u's own. */
const struct scan *unpack_scan(const struct unpack *u);
struct vol *unpack_vol(struct unpack *u);
/* What was made of the archives of a data set gets the rights that these have now: files those of
 * the archive they came from, folders those to read it and search. What could be of several has
 * what all of them grant. */
int unpack_rights(struct manifest *made, const struct manifest *archives) CHECK_RESULT;
/* Bytes of the copy were not as they should be: where. NULL: they were. */
const char *unpack_damaged(const struct unpack *u, uint64_t *ret_off);

#endif
