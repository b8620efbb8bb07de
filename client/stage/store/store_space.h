/* SPDX-License-Identifier: Apache-2.0 */
/* Space for a copy, reserved before the first byte, under store_lock_admission. */
#ifndef LEAT_CLIENT_STAGE_STORE_STORE_SPACE_H
#define LEAT_CLIENT_STAGE_STORE_STORE_SPACE_H

#include "client/stage/store/local_store.h"

/* Reserves bytes in one directory. -LE_NOSPC. Returns 0 where the file system cannot do that.
 * Yields. */
int store_reserve(struct local_store *s, uint32_t place, uint64_t bytes) CHECK_RESULT;
/* Releases as many of these bytes as the file is about to allocate. Yields. */
void store_reserve_use(struct local_store *s, uint32_t file, uint64_t bytes);
/* Releases the rest of these bytes. Yields. */
void store_reserve_end(struct local_store *s);
/* Returns the bytes that the copy occupies on disks, including reserved ones. m NULL: its files
 * are not counted. Yields. */
uint64_t store_occupied(struct local_store *s, const struct manifest *m);

#endif
