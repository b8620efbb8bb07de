/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file without content in the folder of a store. It reserves space, so that the store can be
 * opened when its disk is full: RocksDB writes before it can read. An open removes the ballast
 * then, and it is made again when there is space. It is at most a sixteenth of the disk.
 *
 * Any thread, one at a time for each store. The functions block.
 */
#ifndef LEAT_COMMON_KV_KV_BALLAST_H
#define LEAT_COMMON_KV_KV_BALLAST_H

#include <stdbool.h>
#include <stdint.h>

/* Removes the ballast if the disk of the folder is full, or almost. */
void kv_ballast_drop_if_full(const char *folder);
/* Removes the ballast, after the store has found no space. Returns false if there is none. */
bool kv_ballast_drop(const char *folder);
/* Makes a ballast of about that many bytes, if there is none with space allocated and the disk has
 * much more free space than that. Ignores failures: a later call tries again. */
void kv_ballast_keep(const char *folder, uint64_t bytes);

#endif
