/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks that lose their row while the store is in use. Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_LOST_ROWS_H
#define LEAT_OSSD_CHUNK_LOST_ROWS_H

#include "ossd/chunk/chunk_store.h"

/* Call when the index has no row of the chunk. If the chunk has a name, its row was lost since the
 * start: marks e as lost, and adds a row that marks the loss to the open group. Does nothing if e
 * is loaded or a change is pending, also if that became so meanwhile. Yields. */
int store_ent_row_lost(struct chunk_store *s, struct chunk_ent *e) CHECK_RESULT;

#endif
