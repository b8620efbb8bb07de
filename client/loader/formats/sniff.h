/*
 * What a file is, told by its bytes: a record, a header or a table that only this format has, and
 * of a compressed file what comes out of its first bytes. The name is believed only where the bytes
 * say nothing, so that a damaged shard is found to be damaged and is not taken for something else.
 * Reads a KiB or two, of a packed file what is needed for a KiB to come out, at most SNIFF_MAX. The
 * bytes are not trusted.
 */
#ifndef LEAT_LOADER_SNIFF_H
#define LEAT_LOADER_SNIFF_H

#include "client/loader/formats/format.h"

#define SNIFF_MAX ((4u << 20) + (64u << 10))

struct sniffed {
	enum index_format format; /* INDEX_FILES: none of those that are known */
	enum packing packing;     /* of a file that is none of the formats: PACKED_NOT */
};

/* What in->read returns where that fails, -LE_NOMEM. in->path may be NULL. Yields if reads do. */
int sniff(const struct format_input *in, struct sniffed *ret_sniffed) CHECK_RESULT;
/* What the name alone says. */
struct sniffed sniff_name(const char *path);
/* "gzip", for people. */
const char *packing_name(enum packing p);

#endif
