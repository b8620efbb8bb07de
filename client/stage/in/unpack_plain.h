/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of a compressed archive, as a file beside the copy of the archives. It exists only
 * while the archives are unpacked and is never synced. The checksums of its blocks are in memory,
 * computed from output of verified bytes, so that data read back later is verified too. Owned by
 * one loop.
 */
#ifndef LEAT_CLIENT_STAGE_IN_UNPACK_PLAIN_H
#define LEAT_CLIENT_STAGE_IN_UNPACK_PLAIN_H

#include "client/dataset/formats/format.h"
#include "common/base/decompress.h"
#include "common/rt/env.h"

#define PLAIN_BLOCK (64u << 10) /* of its checksums */

struct plain {
	uint64_t size;
	uint64_t *sums;
	size_t n_sums, cap_sums;
};

struct plain_options {
	enum decompress_kind kind;
	uint64_t max;           /* limit of the output in bytes */
	void (*report)(void *arg, uint64_t bytes); /* of the archive, so far; may be NULL */
	void *arg;
};
/* Unpacks an archive into the file at path. -LE_CORRUPT or -LE_NOTSUP with *ret_fault; -LE_FBIG:
 * the output would exceed max; or what in->read returns. Yields. */
int plain_make(struct env *env, const char *path, const struct format_input *in,
	       const struct plain_options *o, struct plain *ret_plain,
	       struct format_fault *ret_fault) CHECK_RESULT;
void plain_fini(struct plain *p);
/* Returns whether data equals the output at off. off and len are whole blocks, or reach the end. */
bool plain_check(const struct plain *p, const void *data, uint64_t len, uint64_t off);

#endif
