/*
 * What the formats of data sets share: how their files are read while an index is made, how damage
 * is told, and the table of all formats. A format knows nothing of file systems: it reads one file
 * (`format_input`) and says where its samples lie (`index.h`).
 *
 * No byte is trusted: every number is checked against the file's size, every list is bounded.
 */
#ifndef LEAT_LOADER_FORMAT_H
#define LEAT_LOADER_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "client/loader/index.h"

struct format_input {
	/* Up to len bytes at off: how many (short only at the end of the file), or a negative
	 * status. */
	int64_t (*read)(void *arg, void *buf, size_t len, uint64_t off);
	void *arg;
	uint64_t size;
	const char *path; /* for names of samples; NULL: none */
};

/* What was wrong, and where. */
struct format_fault {
	uint64_t off;
	const char *what;
};

/* Of INDEX_FIXED: a file is a header of `skip` bytes and records of `record` bytes each. */
struct format_options {
	uint64_t record, skip;
};

/* All len bytes, else -LE_CORRUPT with *ret_fault ("truncated"). */
int format_read(const struct format_input *in, void *buf, size_t len, uint64_t off,
		struct format_fault *ret_fault) CHECK_RESULT;
/* Notes the fault, returns -LE_CORRUPT. */
int format_damaged(struct format_fault *f, uint64_t off, const char *what);

struct format {
	const char *name;
	enum index_format id;
	/* Of a file's name: does it belong to a data set of this format? */
	const char *const *suffixes;
	/* Adds the file's samples to b, to which it was added as a file. NULL: one sample per file
	 * (files.h). */
	int (*index)(struct index_builder *b, const struct format_input *in,
		     const struct format_options *o, struct format_fault *ret_fault);
};

/* In the order in which a folder's format is guessed; ends with a NULL name. */
extern const struct format format_table[];
/* By name; "fixed:N" and "fixed:N+SKIP" fill in ret_options. NULL: no such format. */
const struct format *format_find(const char *text, struct format_options *ret_options);
const struct format *format_of(enum index_format id);
bool format_matches(const struct format *f, const char *path);

/*
 * TFRecord (tensorflow.org/tutorials/load_data/tfrecord): u64 length, masked CRC-32C of it, data,
 * masked CRC-32C of the data. One sample per record, field "record". The CRC of a length is checked
 * here, that of the data goes into the index and is checked whenever the record is read.
 */
int tfrecord_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;
/*
 * FFRecord (github.com/HFAiLab/ffrecord): u32 CRC, u64 n, n × u32 CRC-32, n × u64 offset, samples.
 * Field "record". The CRCs go into the index.
 */
int ffrecord_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;
/*
 * MosaicML Streaming, MDS version 2 (github.com/mosaicml/streaming, base/format/mds): u32 n,
 * (n + 1) × u32 offset, a JSON text that names the columns, samples. A field for each column, with
 * its encoding as type. Compressed shards: -LE_NOTSUP.
 */
int mds_index(struct index_builder *b, const struct format_input *in,
	      const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;
/*
 * NumPy archives: each file is one sample, each member "x.npy" the field "x" of type "npy" (header
 * and data, see leat_array_parse). Stored and deflated members; zip64; no encryption.
 */
int npz_index(struct index_builder *b, const struct format_input *in,
	      const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;
/* NumPy arrays (numpy.org, NEP 1): each row of the first axis is a sample, field "data", whose type
 * says what a row is: "<f4[3,224,224]". C order only. */
int npy_rows_index(struct index_builder *b, const struct format_input *in,
		   const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;
/* Records of equal size; field "record". */
int fixed_index(struct index_builder *b, const struct format_input *in,
		const struct format_options *o, struct format_fault *ret_fault) CHECK_RESULT;

#endif
