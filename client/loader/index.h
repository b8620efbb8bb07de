/*
 * The sample index: which bytes of which file make up which sample. Built once, when a data set is
 * made (or opened without a manifest), kept beside the manifest as one binary file, the same
 * for all formats. Files are sorted by the bytes of their path, samples lie in file order, so that
 * a sample's number is the same everywhere.
 *
 * A finished index is immutable; any thread may read it. What comes from outside is checked
 * by index_decode before anybody believes it.
 */
#ifndef LEAT_LOADER_INDEX_H
#define LEAT_LOADER_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define INDEX_FIELDS_MAX  ((1u << 24) - 1) /* names of fields in a data set */
#define INDEX_MEMBERS_MAX 65536u /* members of one sample: each field at most once */
#define INDEX_FILES_MAX   (1u << 28)
#define INDEX_SAMPLES_MAX ((uint64_t)1 << 34)
#define INDEX_LEFT_MAX    16u /* reasons and kinds of what was left out; those beyond are one */
#define INDEX_PATH_MAX    4095u
#define INDEX_HEAD_SIZE   64u /* of the file; it ends with the checksum of all of it */

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

/* How a member's bytes are packed in the file, and what its format says of them unpacked. */
enum index_codec {
	INDEX_PLAIN,
	INDEX_DEFLATED /* RFC 1951 */
};
enum index_check {
	INDEX_UNCHECKED,
	INDEX_CRC32C,
	INDEX_CRC32
};

/* Why a file, or a member of an archive, is no part of any sample. */
enum index_left_why {
	INDEX_LEFT_HIDDEN, /* its name, or that of a folder, begins with a period */
	INDEX_LEFT_FORMAT, /* it is not of the data set's format */
	INDEX_LEFT_BESIDE, /* it lies beside class folders, which have none of its kind */
	INDEX_LEFT_MEMBER, /* a member of an archive that no sample can be called after */
	INDEX_LEFT_WHYS
};

/* How a file is packed as a whole: then what members say of it is of what comes out. */
enum packing {
	PACKED_NOT,
	PACKED_GZIP,
	PACKED_ZSTD,
	PACKED_LZ4,
	PACKED_XZ,
	PACKED_BZIP2,
	PACKINGS
};

/* These lie in the file as they lie in memory: little-endian, no padding. */
struct index_file {
	uint64_t path; /* offset in strings */
	uint64_t size;
	uint64_t first; /* its first sample */
	uint64_t plain; /* bytes that come out of it; not packed: its size */
	uint64_t packing;
};
struct index_sample {
	uint64_t first; /* its first member */
	uint64_t key;   /* offset in strings */
	uint32_t file;
	int32_t label; /* number of its class, -1: none */
};
struct index_member {
	uint64_t off, len; /* in the file */
	uint64_t raw;      /* bytes when unpacked */
	uint32_t crc;
	uint32_t field : 24, codec : 4, check : 4;
};

/* What was left out for one reason, of one kind. */
struct index_left {
	uint64_t kind;  /* the end of their names, "jpg"; "": others; offset in strings */
	uint64_t first; /* path of the first of them; offset in strings */
	uint64_t n, bytes;
	uint64_t why;
};

struct sample_index {
	enum index_format format;
	bool guessed; /* nobody said the format */
	uint32_t n_files, n_fields, n_classes, n_left;
	uint64_t n_samples, n_members, strings_len;
	struct index_file *files; /* n_files + 1: the last one only says where the samples end */
	struct index_sample *samples; /* n_samples + 1: the same */
	struct index_member *members;
	uint64_t *fields; /* names, offsets in strings */
	uint64_t *types;  /* of fields: "<f4[3,224]", "npy", what the format calls it; "": bytes */
	uint64_t *classes;
	struct index_left *left;
	uint32_t *slots; /* fields by the hash of their name: number + 1; not in the file */
	uint32_t n_slots;
	char *strings; /* NUL-terminated each, and at the end */
};

static inline const char *index_string(const struct sample_index *x, uint64_t off)
{
	return x->strings + off;
}
/* "hidden", "format", "beside", "member" */
const char *index_left_name(uint64_t why);
void index_destroy(struct sample_index *x); /* NULL is fine */
/* The number of a field, or -1. */
int index_field(const struct sample_index *x, const char *name);
/* Of an index that is being made: field f is found by its name from now on; those before it are.
 * -LE_EXIST: one of them has the name. -LE_NOMEM. */
int index_know_field(struct sample_index *x, uint32_t f) CHECK_RESULT;
/* n_files + 1 sample numbers, malloc'd, for struct order_spec. NULL without memory. */
uint64_t *index_shard_firsts(const struct sample_index *x);
/* The order word of ORDER.md. */
uint64_t index_order_word(const struct sample_index *x);
/* Bytes of all members, unpacked. */
uint64_t index_bytes(const struct sample_index *x);

/* ---- building: calls in this order; the first error stays and index_builder_finish returns it
 * ---- */
struct index_builder;
int index_builder_create(enum index_format format, struct index_builder **ret_builder) CHECK_RESULT;
void index_builder_destroy(struct index_builder *b); /* NULL is fine */
/* Files must come in strictly ascending order of their path. */
void index_add_file(struct index_builder *b, const char *path, uint64_t size);
/* Of the file added last: so many bytes come out of it. Before its samples. */
void index_file_packed(struct index_builder *b, enum packing packing, uint64_t plain);
/* Belongs to the file added last. label -1: none. */
void index_add_sample(struct index_builder *b, const char *key, size_t key_len, int32_t label);
/* Belongs to the sample added last. */
void index_add_member(struct index_builder *b, const char *field, size_t field_len, uint64_t off,
		      uint64_t len);
/* Of the member added last. */
void index_member_check(struct index_builder *b, enum index_check check, uint32_t crc);
void index_member_deflated(struct index_builder *b, uint64_t raw);
/* What the field's bytes are. Two different types make none. */
void index_field_type(struct index_builder *b, const char *field, size_t field_len,
		      const char *type);
/* Takes back the sample added last, with its members. */
void index_drop_sample(struct index_builder *b);
/* n of them, not part of any file or sample. The same reason and kind again adds to it. */
struct index_left_out {
	enum index_left_why why;
	const char *kind, *first;
	uint64_t n, bytes;
};
void index_add_left(struct index_builder *b, const struct index_left_out *l);
void index_set_guessed(struct index_builder *b);
void index_add_class(struct index_builder *b, const char *name, size_t len);
/* The sample added last has this field already. */
bool index_has_member(const struct index_builder *b, const char *field, size_t field_len);
int index_builder_error(const struct index_builder *b) CHECK_RESULT;
int index_builder_finish(struct index_builder *b, struct sample_index **ret_index) CHECK_RESULT;

/* ---- the file: header, arrays, strings, xxh3 ---- */
/* malloc'd */
int index_encode(const struct sample_index *x, void **ret_data, size_t *ret_len) CHECK_RESULT;
/* -LE_CORRUPT for anything that index_encode would not have written, -LE_NOTSUP for what another
 * version of it has. */
int index_decode(const void *data, size_t len, struct sample_index **ret_index) CHECK_RESULT;

#endif
