/*
 * What comes out of a compressed archive, as a file beside the copy of the archives: it is there
 * only while they are being unpacked, never synced, never kept. Its blocks have checksums in
 * memory, made when they came out of bytes that were verified, so that what is read back later is
 * verified too. Owned by one loop.
 */
#ifndef LEAT_STAGE_UNPACK_PLAIN_H
#define LEAT_STAGE_UNPACK_PLAIN_H

#include "client/loader/formats/format.h"
#include "common/base/decompress.h"
#include "common/rt/env.h"

#define PLAIN_BLOCK (64u << 10) /* of its checksums */

struct plain {
	uint64_t size;
	uint64_t *sums;
	size_t n_sums, cap_sums;
};

/* Which kind is it, by its name (".tar.gz")? -1: none. *ret_suffix: how long that end is. */
int plain_kind(const char *path, size_t *ret_suffix);

struct plain_options {
	enum decompress_kind kind;
	uint64_t max;           /* so many bytes at most */
	void (*report)(void *arg, uint64_t bytes); /* of the archive, so far; may be NULL */
	void *arg;
};
/* Makes the file at path. -LE_CORRUPT or -LE_NOTSUP with *ret_fault; -LE_FBIG: more than max would
 * come out; what in->read returns. Yields. */
int plain_make(struct env *env, const char *path, const struct format_input *in,
	       const struct plain_options *o, struct plain *ret_plain,
	       struct format_fault *ret_fault) CHECK_RESULT;
void plain_fini(struct plain *p);
/* Are these the bytes that came out? off and len in whole blocks, or to the end. */
bool plain_check(const struct plain *p, const void *data, uint64_t len, uint64_t off);

#endif
