/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of RocksDB's write-ahead log (db/log_format.h) that Leat depends on: blocks with
 * fragments of records, each with a head.
 */
#ifndef LEAT_COMMON_KV_KV_WAL_H
#define LEAT_COMMON_KV_KV_WAL_H

#include <stdbool.h>

#define KV_WAL_BLOCK_SIZE 32768u
#define KV_WAL_HEAD_SIZE  7u /* of each fragment; one begins in each block */

/*
 * Returns whether the damage in the newest write-ahead log in the folder at path is its torn tail:
 * no whole record begins after the first damage. Blocks: call it on a worker.
 */
bool kv_wal_damage_is_tail(const char *path);

#endif
