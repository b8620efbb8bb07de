/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading tar archives: POSIX ustar, GNU (long names, base-256 numbers) and pax headers, as
 * pax(1) of POSIX.1-2017 and the GNU tar manual ("Basic Tar Format") describe them. Only headers
 * are read, so an archive of any size is scanned with a few small reads per member.
 *
 * The bytes are not trusted: every number is checked against the archive's size, names and pax
 * headers are bounded, and no name is ever used as a path.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_TAR_H
#define LEAT_CLIENT_DATASET_FORMATS_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/dataset/formats/format.h"

#define TAR_BLOCK    512u
#define TAR_NAME_MAX 4096u
#define TAR_PAX_MAX  (1u << 20)

enum tar_kind {
	TAR_FILE,
	TAR_LINK, /* a hard link: another name of an earlier member */
	TAR_OTHER /* a symbolic link, a device, a pipe */
};

struct tar_member {
	const char *name; /* NUL-terminated, without leading "./" */
	size_t name_len;
	uint64_t off, len; /* of its bytes in the archive */
	enum tar_kind kind;
	const char *link; /* target of a TAR_LINK, in the form of name; NULL: too long for a
			   * plain header */
};

/* Calls `each` for every regular file; non-zero ends the scan and is returned. -LE_CORRUPT with
 * *ret_fault for a damaged or truncated archive, -LE_NOTSUP for a sparse member. Allocates 1.2
 * MiB for the time of the call. */
int tar_scan(const struct format_input *in, int (*each)(void *arg, const struct tar_member *m),
	     void *arg, struct format_fault *ret_fault) CHECK_RESULT;
/* Like tar_scan, but also for links and special files, not for directories. */
int tar_scan_all(const struct format_input *in, int (*each)(void *arg, const struct tar_member *m),
		 void *arg, struct format_fault *ret_fault) CHECK_RESULT;

/* True if the first block of a file is the header of a member. */
bool tar_begins(const uint8_t block[TAR_BLOCK]);

/*
 * The WebDataset convention (github.com/webdataset/webdataset, "tariterators"): a member
 * "dir/name.ext" has the key "dir/name", up to the first period of the last component, and the
 * field "ext", in lower case (of ASCII). Successive members with one key are one sample. The key of
 * "dir/.ext" is "dir/", if dir has no periods. Members without a period or a key, and "__meta__"
 * and what is in it, are recorded in b as left out. A field that occurs twice in a sample is
 * -LE_CORRUPT.
 *
 * Adds the archive's samples to b; the archive was added as a file before.
 */
int tar_index(struct index_builder *b, const struct format_input *in,
	      struct format_fault *ret_fault) CHECK_RESULT;

#endif
