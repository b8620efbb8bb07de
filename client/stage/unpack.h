/*
 * Archives as folders: a volume over a copy of a data set in which each tar archive ("a/b.tar") is
 * a folder ("a/b") of its members, and everything else is what it is. Read only; every byte that it
 * gives was verified against the manifest of the copy. Owned by one loop.
 *
 * Archives are not trusted. Names are those of files below the folder or the archive is refused;
 * links, devices and pipes are never made (links among the members of an archive are read as what
 * they name, others are counted); members do not overlap, so that all of them together are no
 * larger than the archives; what two archives, or an archive and a folder, would both make is
 * refused.
 */
#ifndef LEAT_STAGE_UNPACK_H
#define LEAT_STAGE_UNPACK_H

#include "client/stage/local_store.h"
#include "client/stage/manifest.h"
#include "client/stage/vol.h"

/* Where the files of the volume are: any path of it begins with this. */
#define UNPACK_ROOT "/unpacked"

struct unpack;

/* store, m: the copy; both outlive it. Reads all headers. -LE_CORRUPT for an archive that is
 * damaged or leads elsewhere, -LE_NOTSUP for what cannot be unpacked, -LE_NOENT if there is nothing
 * to unpack; all with path and offset in d. cancel may be NULL. Yields. */
int unpack_create(struct local_store *store, const struct manifest *m, const volatile int *cancel,
		  struct unpack **ret_unpack, struct detail *d) CHECK_RESULT;
void unpack_destroy(struct unpack *u); /* NULL is fine */
/* Its files, as scan_tree would find them; u's own. */
const struct scan *unpack_scan(const struct unpack *u);
struct vol *unpack_vol(struct unpack *u);
/* Bytes of the copy were not as they should be: where. NULL: they were. */
const char *unpack_damaged(const struct unpack *u, uint64_t *ret_off);

#endif
