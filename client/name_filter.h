/*
 * Which names a directory may have that are not remembered any more: a Bloom filter of blocks of
 * one cache line each (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters,
 * 2007), in parts, each four times as large as the one before where there is room for that. Nothing
 * is ever taken out; that a name may be there only costs a question.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_NAME_FILTER_H
#define LEAT_CLIENT_NAME_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct name_filter;

/* Adds the hash of a name (well mixed) to *f, which may be NULL at first. *room: bytes that all
 * filters together may still take. -LE_NOMEM: beyond that, nothing is added. */
int name_filter_add(struct name_filter **f, uint64_t hash, size_t *room) CHECK_RESULT;
/* False: it was never added. True, of one in a few hundred that was not, too. */
bool name_filter_may_have(const struct name_filter *f, uint64_t hash);
/* Gives its bytes back. */
void name_filter_free(struct name_filter **f, size_t *room);

#endif
