/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Bloom filter of the names that a directory may have although they are not in the dentry cache.
 * Its blocks are one cache line each (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient
 * Bloom Filters, 2007). The filter grows in parts, each four times as large as the one before if
 * there is space. Nothing is ever removed; a false hit costs one request.
 *
 * Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_CACHE_BLOOM_FILTER_H
#define LEAT_CLIENT_CACHE_BLOOM_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct bloom_filter;

/* Adds the hash of a name (well mixed) to *f, which may be NULL at first. *room is the number of
 * bytes that all filters together may still use; it is reduced by the size of a new part. Returns
 * 0, or -LE_NOMEM if a new part does not fit, and nothing is added. */
int bloom_filter_add(struct bloom_filter **f, uint64_t hash, size_t *space) CHECK_RESULT;
/* Returns false if the hash was never added. Returns true for added hashes, and falsely for about
 * one in several hundred other hashes. f may be NULL. */
bool bloom_filter_may_have(const struct bloom_filter *f, uint64_t hash);
/* Frees the filter, adds its bytes to *room and sets *f to NULL. */
void bloom_filter_free(struct bloom_filter **f, size_t *space);

#endif
