/*
 * Reading tar archives: POSIX ustar, GNU (long names, base-256 numbers) and pax headers, as
 * pax(1) of POSIX.1-2017 and the GNU tar manual ("Basic Tar Format") describe them. Only headers
 * are read, so an archive of any size is scanned with a few small reads per member.
 *
 * The bytes are not trusted: every number is checked against the archive's size, names and pax
 * headers are bounded, and no name is ever used as a path.
 */
#ifndef LEAT_LOADER_TAR_H
#define LEAT_LOADER_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/loader/formats/format.h"

#define TAR_BLOCK    512u
#define TAR_NAME_MAX 4096u
#define TAR_PAX_MAX  (1u << 20)

enum tar_kind {
	TAR_FILE,
	TAR_LINK, /* a hard link: another name of a former member */
	TAR_OTHER /* a symbolic link, a device, a pipe */
};

struct tar_member {
	const char *name; /* NUL-terminated, without leading "./" */
	size_t name_len;
	uint64_t off, len; /* of its bytes in the archive */
	enum tar_kind kind;
	const char *link; /* of TAR_LINK, as name is; NULL: too long for a plain header */
};

/* Calls each for every regular file; non-zero ends the scan and is returned. -LE_CORRUPT with
 * *ret_fault for a damaged or truncated archive, -LE_NOTSUP for a sparse member. Needs 1.2 MiB of
 * memory meanwhile. */
int tar_scan(const struct format_input *in, int (*each)(void *arg, const struct tar_member *m),
	     void *arg, struct format_fault *ret_fault) CHECK_RESULT;
/* ... and for links and special files, but not for directories. */
int tar_scan_all(const struct format_input *in, int (*each)(void *arg, const struct tar_member *m),
		 void *arg, struct format_fault *ret_fault) CHECK_RESULT;

/* Is this block, the first of a file, the header of a member? */
bool tar_begins(const uint8_t block[TAR_BLOCK]);

/*
 * The WebDataset convention (github.com/webdataset/webdataset, "tariterators"): a member
 * "dir/name.ext" has the key "dir/name", up to the first period of the last component, and the
 * field "ext", in lower case (of ASCII); successive members of one key are one sample. The key of
 * "dir/.ext" is "dir/", if dir has no periods. Members without a period or a key, and those in or
 * called "__meta__", are left out and told to b. A field that comes twice in a sample is
 * -LE_CORRUPT.
 *
 * Adds the archive's samples to b, to which the archive was added as a file.
 */
int tar_index(struct index_builder *b, const struct format_input *in,
	      struct format_fault *ret_fault) CHECK_RESULT;

#endif
