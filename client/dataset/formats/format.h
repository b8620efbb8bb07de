/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common parts of the formats of data sets: reading a file while its index is made, and reporting
 * damage. format_table.h lists all formats. A format does not depend on file systems: it reads one
 * file (`format_input`) and adds its samples to the index (`index.h`).
 *
 * No byte is trusted: every number is checked against the file's size, every list is bounded.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_FORMAT_H
#define LEAT_CLIENT_DATASET_FORMATS_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "client/dataset/formats/index.h"

struct format_input {
	/* Reads up to len bytes at off. Returns how many (fewer only at the end of the file), or
	 * a negative status. */
	int64_t (*read)(void *arg, void *buf, size_t len, uint64_t off);
	void *arg;
	uint64_t size;
	const char *path; /* for keys of samples; NULL: none */
};

/* A damaged place in a file. */
struct format_fault {
	uint64_t off;
	const char *what;
};

/* For INDEX_FIXED: a file consists of a header of `skip` bytes and records of `record` bytes. */
struct format_options {
	uint64_t record, skip;
};

/* Reads all len bytes, else -LE_CORRUPT with *ret_fault ("truncated"). */
int format_read(const struct format_input *in, void *buf, size_t len, uint64_t off,
		struct format_fault *ret_fault) CHECK_RESULT;
/* Sets *f and returns -LE_CORRUPT. */
int format_damaged(struct format_fault *f, uint64_t off, const char *what);

struct format {
	const char *name;
	enum index_format id;
	/* Ends of file names that suggest this format. */
	const char *const *suffixes;
	/* Adds the samples of a file to b; the file was added before. NULL: one sample per file
	 * (files.h). */
	int (*index)(struct index_builder *b, const struct format_input *in,
		     const struct format_options *o, struct format_fault *ret_fault);
};

#endif
