/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The read calls of ll.h: cached, direct, and under chunk leases. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_READ_H
#define LEAT_CLIENT_DATA_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct block_sums;
struct client;
struct ll_file;

/* Like ll_pread, and records the blocks' checksums in sums; NULL: not wanted. Yields. */
int64_t read_with_sums(struct ll_file *f, void *buf, uint64_t len, uint64_t off,
		 struct block_sums *sums) CHECK_RESULT;

/* Returns the present size of the file, or the lower bound of a shared lease if that is at least
 * `enough`. Requests it unless the client has a lease or the file is sealed. Returns 0 or the
 * error. Yields. */
int size_for_read(struct ll_file *f, uint64_t enough, uint64_t *ret_size) CHECK_RESULT;
/* Returns true if received data can be placed directly in this memory; otherwise only in slots.
 * Does not yield. */
bool read_lands_directly(const struct client *c, const void *base, uint64_t len);

#endif
