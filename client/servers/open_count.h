/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the opens of a file that the MDS has recorded in the present session, while the client
 * reopens all files in a new session. Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_SERVERS_OPEN_COUNT_H
#define LEAT_CLIENT_SERVERS_OPEN_COUNT_H

#include <stdbool.h>
#include <stdint.h>

struct inode_io;

/* Counts an open that the MDS has confirmed under `session`, so that the reopening of all files
 * does not open it a second time. Call it before the open is counted in d. flags: of open(2). */
void session_opened(struct inode_io *d, uint32_t flags, uint64_t session);
/* Counts a close that the MDS has confirmed. Call it before the open is taken out of d's counts.
 * flags: of open(2). */
void session_closed(struct inode_io *d, uint32_t flags);
/* Returns true if the MDS may not have recorded all opens of the file: the file waits to be
 * reopened in a new session, or the reopening was refused. */
bool session_misses(const struct inode_io *d);

/* Returns the counter of the opens with these flags that the MDS has recorded in the present
 * session. */
uint32_t *open_count_reopened(struct inode_io *d, uint32_t flags);

/* Returns true if the present session has refused some opens of the file. */
bool open_count_is_lost(const struct inode_io *d);

/* Returns true if the file still waits for its reopening, or is being reopened. */
bool open_count_is_reopening(const struct inode_io *d);

#endif
