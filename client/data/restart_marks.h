/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks in restart memory the files that have data which is not durable, so that the next process
 * can report a loss. Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_DATA_RESTART_MARKS_H
#define LEAT_CLIENT_DATA_RESTART_MARKS_H

#include <stdbool.h>

#include "common/base/status.h"

struct inode_io;

/* Marks the file before bytes are acknowledged to a program without being durable. The caller does
 * not yield in between. Returns false if there is no free mark: then the bytes must be written
 * through. */
bool restart_mark_begin(struct inode_io *d) CHECK_RESULT;
/* Updates the mark after writes of the file have progressed or failed. unflushed:
 * wb_has_unflushed. */
void restart_mark_update(struct inode_io *d, bool unflushed);

#endif
