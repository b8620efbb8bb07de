/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sample index: which bytes of which file make up which sample. It is built when a data set is
 * made (or opened without a manifest) and stored beside the manifest as one binary file, in one
 * layout for all formats. Files are sorted by the bytes of their path and samples are in file
 * order, so a sample's number is the same on every node.
 *
 * A finished index is immutable; any thread may read it. index_decode checks every byte of an index
 * from outside.
 */
#ifndef LEAT_CLIENT_DATASET_FORMATS_INDEX_H
#define LEAT_CLIENT_DATASET_FORMATS_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define INDEX_FIELDS_MAX  ((1u << 24) - 1) /* names of fields in a data set */
#define INDEX_MEMBERS_MAX 65536u /* members of one sample: each field at most once */
#define INDEX_FILES_MAX   (1u << 28)
#define INDEX_SAMPLES_MAX ((uint64_t)1 << 34)
/* Entries of what was left out; further reasons and kinds share the last. */
#define INDEX_LEFT_MAX    16u
#define INDEX_PATH_MAX    4095u
#define INDEX_HEAD_SIZE   64u /* of the file; it ends with the checksum of the whole file */

enum index_format {
	INDEX_FILES,
	INDEX_TAR,
	INDEX_TFRECORD,
	INDEX_MDS,
	INDEX_FFRECORD,
	INDEX_NPZ,
	INDEX_NPY,
	INDEX_FIXED,
	INDEX_FORMATS
};

/* How a member's bytes are packed in the file, and which checksum of the unpacked bytes the file
 * has. */
enum index_codec {
	INDEX_PLAIN,
	INDEX_DEFLATED /* RFC 1951 */
};
enum index_check {
	INDEX_UNCHECKED,
	INDEX_CRC32C,
	INDEX_CRC32
};

/* Why a file, or a member of an archive, belongs to no sample. */
enum index_left_why {
	INDEX_LEFT_HIDDEN, /* its name, or that of a folder, begins with a period */
	INDEX_LEFT_FORMAT, /* it is not of the data set's format */
	INDEX_LEFT_BESIDE, /* it lies beside class folders, which have no file of its kind */
	INDEX_LEFT_MEMBER, /* a member of an archive with a name that gives no key */
	INDEX_LEFT_WHYS
};

/* How a file is packed as a whole: then offsets of members count in its unpacked bytes. */
enum packing {
	PACKED_NOT,
	PACKED_GZIP,
	PACKED_ZSTD,
	PACKED_LZ4,
	PACKED_XZ,
	PACKED_BZIP2,
	PACKINGS
};

/* These structs have the same layout in the file as in memory: little-endian, no padding. */
struct index_file {
	uint64_t path; /* offset in strings */
	uint64_t size;
	uint64_t first; /* number of its first sample */
	uint64_t plain; /* size of its unpacked bytes; not packed: its size */
	uint64_t packing;
};
struct index_sample {
	uint64_t first; /* number of its first member */
	uint64_t key;   /* offset in strings */
	uint32_t file;
	int32_t label; /* number of its class, -1: none */
};
struct index_member {
	uint64_t off, len; /* in the file, or in its unpacked bytes */
	uint64_t raw;      /* bytes after inflating */
	uint32_t crc;
	uint32_t field : 24, codec : 4, check : 4;
};

/* The files or members left out for one reason, of one kind. */
struct index_left {
	uint64_t kind;  /* the end of their names, "jpg"; "": various; offset in strings */
	uint64_t first; /* path of the first of them; offset in strings */
	uint64_t n, bytes;
	uint64_t why;
};

struct sample_index {
	enum index_format format;
	bool guessed; /* the format was not given */
	uint32_t n_files, n_fields, n_classes, n_left;
	uint64_t n_samples, n_members, strings_len;
	struct index_file *files;     /* n_files + 1: the last one marks the end of the samples */
	struct index_sample *samples; /* n_samples + 1: the last one marks the end of the members */
	struct index_member *members;
	uint64_t *fields; /* names, offsets in strings */
	uint64_t *types;  /* of fields: "<f4[3,224]", "npy", or the format's name for it; "":
			   * bytes */
	uint64_t *classes;
	struct index_left *left;
	uint32_t *slots; /* hash table of fields by name: number + 1; not in the file */
	uint32_t n_slots;
	char *strings; /* each NUL-terminated, and the array ends with NUL */
};

static inline const char *index_string(const struct sample_index *x, uint64_t off)
{
	return x->strings + off;
}
/* Returns "hidden", "format", "beside" or "member". */
const char *index_left_name(uint64_t why);
void index_destroy(struct sample_index *x); /* NULL is fine */
/* Returns the number of a field, or -1. */
int index_field(const struct sample_index *x, const char *name);
/* While an index is made: enters field f into the slots, after the fields before it. -LE_EXIST:
 * one of these has its name. -LE_NOMEM. */
int index_know_field(struct sample_index *x, uint32_t f) CHECK_RESULT;
/* Returns n_files + 1 sample numbers for struct order_spec, malloc'd. NULL without memory. */
uint64_t *index_shard_firsts(const struct sample_index *x);
/* Returns the order word of ORDER.md. */
uint64_t index_order_word(const struct sample_index *x);
/* Returns the bytes of all members, unpacked. */
uint64_t index_bytes(const struct sample_index *x);

/* ---- building: calls in this order; index_builder_finish returns the first error ---- */
struct index_builder;
int index_builder_create(enum index_format format, struct index_builder **ret_builder) CHECK_RESULT;
void index_builder_destroy(struct index_builder *b); /* NULL is fine */
/* Adds a file. Files must come in strictly ascending order of their path. */
void index_add_file(struct index_builder *b, const char *path, uint64_t size);
/* Sets the packing of the file added last and the size of its unpacked bytes, before its
 * samples. */
void index_file_packed(struct index_builder *b, enum packing packing, uint64_t plain);
/* Adds a sample to the file added last. label -1: none. */
void index_add_sample(struct index_builder *b, const char *key, size_t key_len, int32_t label);
/* Adds a member to the sample added last. */
void index_add_member(struct index_builder *b, const char *field, size_t field_len, uint64_t off,
		      uint64_t len);
/* Set checksum and packing of the member added last. */
void index_member_check(struct index_builder *b, enum index_check check, uint32_t crc);
void index_member_deflated(struct index_builder *b, uint64_t raw);
/* Sets the type of a field. Two different types make none. */
void index_field_type(struct index_builder *b, const char *field, size_t field_len,
		      const char *type);
/* Records n files or members that belong to no sample. A second call with the same reason and
 * kind adds to n and bytes. */
struct index_left_out {
	enum index_left_why why;
	const char *kind, *first;
	uint64_t n, bytes;
};
void index_add_left(struct index_builder *b, const struct index_left_out *l);
void index_set_guessed(struct index_builder *b);
void index_add_class(struct index_builder *b, const char *name, size_t len);
/* True if the sample added last has this field. */
bool index_has_member(const struct index_builder *b, const char *field, size_t field_len);
int index_builder_error(const struct index_builder *b) CHECK_RESULT;
int index_builder_finish(struct index_builder *b, struct sample_index **ret_index) CHECK_RESULT;

/* ---- the file: header, arrays, strings, xxh3 ---- */
/* Encodes the index: malloc'd. */
int index_encode(const struct sample_index *x, void **ret_data, size_t *ret_len) CHECK_RESULT;
/* Decodes an index. -LE_CORRUPT if index_encode could not have written it, -LE_NOTSUP for
 * another version. */
int index_decode(const void *data, size_t len, struct sample_index **ret_index) CHECK_RESULT;

#endif
