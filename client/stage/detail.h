/*
 * What a status alone cannot say: where something failed, and what. The first failure stays. Owned
 * by whoever runs the operation; only its loop writes.
 */
#ifndef LEAT_STAGE_DETAIL_H
#define LEAT_STAGE_DETAIL_H

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
	uint64_t off; /* UINT64_MAX: of the file as a whole */
	char path[4096];
	char what[200]; /* one sentence for people, without the path */
};

/* Returns rc, so that failing functions can `return detail_set(...)`. d NULL is fine. */
int detail_set(struct detail *d, int rc, const char *path, uint64_t off, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif
