/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The details of a failure that a status cannot express: path, offset, origin and reason. Keeps the
 * first failure. Owned by the operation; only its loop writes.
 */
#ifndef LEAT_CLIENT_DATASET_ERROR_DETAIL_H
#define LEAT_CLIENT_DATASET_ERROR_DETAIL_H

#include <stdint.h>

#include "common/base/status.h"

enum detail_origin {
	ORIGIN_NONE,
	ORIGIN_LOCAL,
	ORIGIN_SERVER,
	ORIGIN_DECODER,
	ORIGIN_PEER
};

struct detail {
	int rc; /* 0: nothing failed */
	enum detail_origin origin;
	uint64_t off; /* UINT64_MAX: the file as a whole */
	char path[4096];
	char what[200]; /* one sentence for people, without the path */
};

/* Sets the details, unless d is NULL or has a failure already. Returns rc, so that a function can
 * `return detail_set(...)`. path may be NULL. */
int detail_set(struct detail *d, int rc, const char *path, uint64_t off, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif
